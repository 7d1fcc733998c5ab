// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "cli/plan/settings_search.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <set>
#include <tuple>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "common/status_macros.h"
#include "common/tensors/model_layout.h"
#include "outer_optimizer/fragment_plan.h"

namespace causeway {
namespace {

constexpr uint32_t kRoundSteps[] = {1,   2,   5,    10,   20,   50,   100,
                                    200, 500, 1000, 2000, 5000, 10000};
constexpr uint32_t kOverlapSteps[] = {0, 1, 2, 5, 10, 20};
// Sorted from the most bits to the fewest. Each of the other formats takes as
// many bits as one of these and loses more (docs/benchmarks.md).
constexpr v1::Format kFormats[] = {v1::FP32, v1::BF16, v1::INT8, v1::INT4,
                                   v1::ECQ};
// The bits per value of ECQ if the configuration has no rate.
constexpr double kEcqBits = 2;
constexpr uint32_t kLayersPerFragment = 3;
// The tolerance for sums of many times, which are not exact.
constexpr double kTolerance = 1e-6;

// Tries rounds from the shortest until one is enough; returns false if none is.
// Sets `best` to that one, or else to the highest utilization so far.
absl::StatusOr<bool> TryRounds(RunAssumptions assumptions,
                               const std::set<uint32_t>& fragment_counts,
                               double utilization, Settings& best) {
  v1::SynchronizationConfig& sync =
      *assumptions.config.mutable_synchronization();
  for (const uint32_t round_steps : kRoundSteps) {
    for (const uint32_t fragments : fragment_counts) {
      if (sync.overlap_steps() + sync.max_overlap_steps() >= round_steps ||
          fragments > round_steps) {
        continue;
      }
      sync.set_inner_steps_per_round(round_steps);
      sync.set_fragments(fragments);
      ASSIGN_OR_RETURN(RunPrediction prediction, PredictRun(assumptions));
      const double reached = prediction.simulated.utilization;
      const bool enough = reached >= utilization - kTolerance;
      if (enough || reached > best.prediction.simulated.utilization) {
        best = {sync, std::move(prediction)};
      }
      if (enough) return true;
    }
  }
  return false;
}

bool Beats(const Settings& a, const Settings& b) {
  const auto format = [](const Settings& settings) {
    return std::find(std::begin(kFormats), std::end(kFormats),
                     settings.synchronization.uplink_format());
  };
  return a.synchronization.inner_steps_per_round() <=
             b.synchronization.inner_steps_per_round() &&
         a.synchronization.overlap_steps() <=
             b.synchronization.overlap_steps() &&
         format(a) <= format(b);
}

}  // namespace

absl::StatusOr<FoundSettings> FindSettings(const RunAssumptions& assumptions,
                                           double utilization) {
  if (!(utilization > 0 && utilization <= 1)) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "the wanted utilization is %g; it must be above 0 and at most 1",
        utilization));
  }
  const uint32_t layers = CountBlocks(assumptions.layout);
  const std::set<uint32_t> fragment_counts = {
      1, std::min((layers + kLayersPerFragment - 1) / kLayersPerFragment + 1,
                  MostFragments(assumptions.layout))};
  RunAssumptions tried = assumptions;
  tried.uplink_bits = 0;
  tried.downlink_bits = 0;
  v1::SynchronizationConfig& sync = *tried.config.mutable_synchronization();
  if (sync.ecq_bits() == 0) sync.set_ecq_bits(kEcqBits);
  // Settings are compared by their bits, so all islands need the same.
  sync.clear_uplink_bits_floor();
  FoundSettings found;
  for (const v1::Format format : kFormats) {
    sync.set_uplink_format(format);
    sync.set_downlink_format(format);
    for (const uint32_t overlap : kOverlapSteps) {
      sync.set_overlap_steps(overlap);
      Settings settings;
      ASSIGN_OR_RETURN(const bool enough, TryRounds(tried, fragment_counts,
                                                    utilization, settings));
      if (settings.prediction.simulated.utilization >
          found.closest.prediction.simulated.utilization) {
        found.closest = settings;
      }
      // Later iterations of these loops have fewer bits or a larger tau.
      if (enough && std::none_of(found.reaching.begin(), found.reaching.end(),
                                 [&](const Settings& other) {
                                   return Beats(other, settings);
                                 })) {
        found.reaching.push_back(std::move(settings));
      }
    }
  }
  if (found.closest.prediction.simulated.islands.empty()) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "synchronization.max_overlap_steps is %u; rounds of at most %u steps "
        "are tried, which have to be longer",
        sync.max_overlap_steps(), kRoundSteps[std::size(kRoundSteps) - 1]));
  }
  std::stable_sort(found.reaching.begin(), found.reaching.end(),
                   [](const Settings& a, const Settings& b) {
                     const auto key = [](const Settings& settings) {
                       return std::make_tuple(
                           settings.synchronization.inner_steps_per_round(),
                           settings.synchronization.overlap_steps());
                     };
                     return key(a) < key(b);
                   });
  return found;
}

}  // namespace causeway
