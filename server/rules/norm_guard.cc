// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/rules/norm_guard.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"

namespace causeway {
namespace {

// Returns the median, or the upper of two middle values, so that contributions
// pass in doubt.
double Median(std::vector<double> values) {
  const auto middle =
      values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

uint64_t NormGuard::Memory(uint64_t max_islands) {
  return std::max(kLately, max_islands);
}

std::string NormGuard::Objection(const Sample& sample, uint64_t rounds) const {
  if (!std::isfinite(sample.norm)) return "a value of it is not finite";
  if (factor_ == 0) return "";
  std::vector<double> norms;
  std::vector<double> steps;
  uint64_t contributions = 0;
  for (auto round = rounds_.rbegin();
       round != rounds_.rend() && contributions < std::max(kLately, live_);
       ++round) {
    contributions += round->size();
    for (const Sample& merged : *round) {
      if (merged.norm == 0) continue;
      norms.push_back(merged.norm);
      steps.push_back(static_cast<double>(merged.inner_steps));
    }
  }
  const size_t lately = norms.size();
  if (lately < kLeast) {
    if (sample.norm <= factor_ * first_usual_) return "";
    return absl::StrFormat(
        "its norm, %.4g, is more than %g times that of the parameters, %.4g, "
        "and only %d contributions were merged to compare with",
        sample.norm, factor_, first_usual_, lately);
  }
  const double usual = Median(std::move(norms));
  const double most = std::min(static_cast<double>(rounds), kMostWindows);
  const double windows = std::clamp(
      static_cast<double>(sample.inner_steps) / Median(std::move(steps)), 1.0,
      std::max(1.0, most));
  if (sample.norm <= factor_ * windows * usual) return "";
  return absl::StrFormat(
      "its norm, %.4g, is more than %g times the median of the last %d merged, "
      "%.4g%s",
      sample.norm, factor_, lately, usual,
      windows > 1
          ? absl::StrFormat(", for a window of %.1f times the length", windows)
          : "");
}

void NormGuard::Merged(MergedRound round, uint64_t live) {
  live_ = live;
  remembered_ += round.size();
  rounds_.push_back(std::move(round));
  while (remembered_ - rounds_.front().size() >= memory_) {
    remembered_ -= rounds_.front().size();
    rounds_.pop_front();
  }
}

}  // namespace causeway
