// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/rules/inner_steps.h"

#include <algorithm>
#include <cmath>

namespace causeway {
namespace {

// Islands whose speeds differ by less than this factor count as equal even if
// the window is short, because measured times vary.
constexpr double kEquals = 1.25;

// The most by which an island counts as faster than the median island. Speed is
// a claim; a false one leaves the others at least an eighth of H.
constexpr double kMostLead = 8;

}  // namespace

uint64_t InnerSteps(const InnerStepsOptions& options, absl::Duration own,
                    std::vector<absl::Duration> all) {
  if (options.shares == v1::SynchronizationConfig::NOBODY) return 0;
  std::erase_if(
      all, [](absl::Duration step) { return step <= absl::ZeroDuration(); });
  if (own <= absl::ZeroDuration() || all.empty()) return 0;
  // Returns the step time of the island with this rank.
  const auto at = [&all](size_t rank) {
    std::nth_element(all.begin(), all.begin() + rank, all.end());
    return all[rank];
  };
  const auto steps = static_cast<double>(options.steps);
  // The step time of the island that this one must keep up with.
  absl::Duration pace = at(0);
  const absl::Duration fastest = at(all.size() / 2) / kMostLead;
  if (options.shares == v1::SynchronizationConfig::ALWAYS_LATE) {
    pace = at(std::min<size_t>(std::max(options.quorum, 1u), all.size()) - 1);
    const absl::Duration overlap =
        static_cast<double>(options.overlap_steps) * pace;
    absl::Duration window = options.grace;
    if (options.grace_overlap_share > 0) {
      window = std::min(window, options.grace_overlap_share * overlap);
    }
    const absl::Duration lag = steps * (own - pace) + overlap;
    if (own < kEquals * pace || lag <= window) return 0;
  }
  pace = std::max(pace, fastest);
  const double share = steps * absl::FDivDuration(pace, own);
  return static_cast<uint64_t>(std::clamp(std::round(share), 1.0, steps));
}

}  // namespace causeway
