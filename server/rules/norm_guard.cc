// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/rules/norm_guard.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
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

// Returns the contributions that changed something in the newest whole rounds
// that have `count`, newest round first. `rounds` are oldest first.
template <typename Rounds>
std::vector<NormGuard::Sample> Lately(const Rounds& rounds, uint64_t count) {
  std::vector<NormGuard::Sample> lately;
  uint64_t contributions = 0;
  for (auto round = rounds.rbegin();
       round != rounds.rend() && contributions < count; ++round) {
    contributions += round->size();
    std::copy_if(round->begin(), round->end(), std::back_inserter(lately),
                 [](const auto& merged) { return merged.norm != 0; });
  }
  return lately;
}

}  // namespace

uint64_t NormGuard::Memory(uint64_t max_islands) {
  return std::max(kLately, max_islands);
}

bool NormGuard::ShowUsual(absl::Span<const MergedRound> rounds) {
  return Lately(rounds, kLately).size() >= kLeast;
}

NormGuard::Usual NormGuard::UsualFor(uint64_t inner_steps,
                                     uint64_t rounds) const {
  std::vector<double> norms;
  std::vector<double> steps;
  for (const Sample& merged : Lately(rounds_, std::max(kLately, live_))) {
    norms.push_back(merged.norm);
    steps.push_back(static_cast<double>(merged.inner_steps));
  }
  const size_t lately = norms.size();
  if (lately < kLeast) return {.lately = lately, .norm = first_usual_};
  const double most = std::min(static_cast<double>(rounds), kMostWindows);
  return {.lately = lately,
          .norm = Median(std::move(norms)),
          .windows = std::clamp(
              static_cast<double>(inner_steps) / Median(std::move(steps)), 1.0,
              std::max(1.0, most))};
}

std::string NormGuard::Objection(const Sample& sample, uint64_t rounds,
                                 const RankParts& parts) const {
  const Usual usual = UsualFor(sample.inner_steps, rounds);
  const double expected = usual.windows * usual.norm;
  const double most = factor_ == 0 ? std::numeric_limits<double>::infinity()
                                   : factor_ * expected;
  if (sample.norm <= most && std::isfinite(sample.norm)) return "";
  // The geometric mean of the expected norm and the largest allowed one.
  const double plainly_usual = std::sqrt(factor_) * expected;
  const std::string explained = parts_.Explain(parts, most, plainly_usual);
  if (!std::isfinite(sample.norm)) {
    return absl::StrCat("a value of it is not finite", explained);
  }
  if (usual.lately < kLeast) {
    return absl::StrFormat(
        "its norm, %.4g, is more than %g times that of the parameters, %.4g, "
        "and only %d contributions were merged to compare with%s",
        sample.norm, factor_, usual.norm, usual.lately, explained);
  }
  return absl::StrFormat(
      "its norm, %.4g, is more than %g times the median of the last %d merged, "
      "%.4g%s%s",
      sample.norm, factor_, usual.lately, usual.norm,
      usual.windows > 1
          ? absl::StrFormat(", for a window of %.1f times the length",
                            usual.windows)
          : "",
      explained);
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
