// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/rules/island_pace.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"

namespace causeway {
namespace {

// Returns the lower median, or 0 if there are no values.
double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + (values.size() - 1) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

std::optional<std::string> IslandPace::Heard(double step_seconds,
                                             std::vector<double> all_live) {
  if (step_seconds <= 0) return std::nullopt;
  std::erase_if(all_live, [](double seconds) { return seconds <= 0; });
  const double median = Median(std::move(all_live));
  // Too few reports show nothing.
  const double usual =
      usual_.size() < 2 * kReports ? 0 : Median({usual_.begin(), usual_.end()});
  usual_.push_back(step_seconds);
  if (usual_.size() > kUsual) usual_.pop_front();
  const double should = usual > 0 ? std::min(median, usual) : median;
  const double pace = should / step_seconds;
  others_are_faster_ = median / step_seconds <= kEven;
  const bool disagrees = is_slow_ ? pace > kEven : pace < kSlow;
  disagreeing_ = disagrees ? disagreeing_ + 1 : 0;
  if (disagreeing_ < kReports) return std::nullopt;
  disagreeing_ = 0;
  is_slow_ = !is_slow_;
  if (!is_slow_) return "is not slow any more";
  return absl::StrFormat(
      "takes %.3g s for a step, %s takes %.3g s", step_seconds,
      should == median ? "the median island" : "and usually", should);
}

}  // namespace causeway
