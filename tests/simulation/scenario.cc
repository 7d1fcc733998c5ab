// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/scenario.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tests/simulation/virtual_time.h"

namespace causeway::simulation {
namespace {

constexpr absl::string_view kFaultNames[kFaults] = {
    "delay",         "loss",         "duplicate",
    "partition",     "island-kill",  "island-stall",
    "island-leave",  "late-island",  "coordinator-kill",
    "slow-disk",     "failed-write", "unknown-write",
    "pause",         "evict",        "clock-skew",
    "checkpoint",    "drain",        "outlier",
    "silent-island", "slow-load",    "damaged-snapshot"};

void DrawMembership(uint32_t islands, Chance& chance,
                    v1::MembershipConfig& membership) {
  membership.set_max_islands(islands);
  membership.set_min_islands(static_cast<uint32_t>(chance.Between(1, islands)));
  membership.set_quorum(static_cast<uint32_t>(chance.Between(1, islands)));
  membership.set_grace_seconds(static_cast<double>(chance.Between(2, 60)));
  membership.set_lease_seconds(static_cast<double>(chance.Between(6, 15)));
  membership.set_heartbeat_seconds(membership.lease_seconds() /
                                   static_cast<double>(chance.Between(3, 5)));
}

// Returns how old an island's news of the others' steps may be: two heartbeats,
// and the time on the way.
absl::Duration Unheard(const v1::MembershipConfig& membership) {
  return 2 * absl::Seconds(membership.heartbeat_seconds()) + absl::Seconds(2);
}

// Makes all islands equally fast, in a longer run. They can train on through a
// whole window while updates are late, and rounds wait for news that islands do
// not yet have of each other.
void MakeEven(Scenario& scenario) {
  std::fill(scenario.step_time.begin(), scenario.step_time.end(),
            scenario.step_time.front());
  v1::SynchronizationConfig& sync = *scenario.config.mutable_synchronization();
  sync.set_overlap_steps(sync.inner_steps_per_round() - 1);
  sync.set_max_overlap_steps(0);
  std::fill(scenario.overlap_steps.begin(), scenario.overlap_steps.end(),
            sync.overlap_steps());
  v1::TrainingConfig& training = *scenario.config.mutable_training();
  training.set_total_steps(2 * training.total_steps());
  v1::MembershipConfig& membership = *scenario.config.mutable_membership();
  membership.set_grace_seconds(std::ceil(absl::ToDoubleSeconds(
      Unheard(membership) + 2 * scenario.step_time.front())));
}

}  // namespace

absl::string_view FaultName(Fault fault) { return kFaultNames[fault]; }

std::string IslandName(uint32_t island) {
  return std::string(1, static_cast<char>('a' + island));
}

Scenario DrawScenario(uint64_t seed, const Limits& limits) {
  // Draw everything, whatever the limits are, so that a limit changes as little
  // of the history as possible.
  Chance chance(seed);
  Scenario scenario;
  const auto limited = [](uint64_t drawn, uint64_t limit) {
    return static_cast<uint32_t>(std::min(drawn, limit));
  };
  scenario.islands = limited(chance.Between(1, 5), limits.max_islands);
  const uint32_t fragments =
      limited(chance.Between(1, 3), limits.max_fragments);
  const uint64_t rounds = limited(chance.Between(1, 12), limits.max_rounds);
  const uint64_t round_steps = chance.Between(3, 10);

  v1::RunConfig& config = scenario.config;
  config.set_name("simulation");
  config.mutable_data()->set_shards(2);
  // The most tokens of an inner step; see below.
  config.mutable_training()->set_batch_size(8);
  config.mutable_model()->set_sequence_length(16);
  config.mutable_training()->set_total_steps(rounds * round_steps +
                                             chance.Pick(round_steps));
  v1::SynchronizationConfig& sync = *config.mutable_synchronization();
  sync.set_inner_steps_per_round(static_cast<uint32_t>(round_steps));
  sync.set_fragments(fragments);
  sync.set_overlap_steps(static_cast<uint32_t>(chance.Pick(round_steps)));
  // More than a window together is refused.
  sync.set_max_overlap_steps(
      limited(chance.Pick(4), round_steps - 1 - sync.overlap_steps()));
  sync.set_uplink_format(v1::FP32);
  sync.set_downlink_format(v1::FP32);
  sync.set_entropy_coding(false);
  if (seed % 2 == 0) {
    // The plan for uplinks is made, though FP32 has no use for it.
    sync.set_ecq_bits(4);
    sync.set_uplink_bits_floor(0.5);
  }
  config.mutable_storage()->set_versions_kept(
      static_cast<uint32_t>(chance.Between(2, 3)));
  config.mutable_storage()->set_update_history(
      static_cast<uint32_t>(chance.Between(2, 8)));
  DrawMembership(scenario.islands, chance, *config.mutable_membership());
  config.mutable_validation()->set_every_rounds(seed % 4);

  for (uint32_t id = 0; id < fragments; ++id) {
    v1::Fragment& fragment = *scenario.plan.add_fragments();
    fragment.set_id(id);
    fragment.set_size(kFragmentSize);
    fragment.set_send_offset_steps(id * (round_steps / fragments));
  }
  for (uint32_t island = 0; island < scenario.islands; ++island) {
    // Some islands have slower links, and a tau of their own.
    scenario.overlap_steps.push_back((seed + island) % 4 == 3
                                         ? sync.inner_steps_per_round() - 1
                                         : sync.overlap_steps());
    scenario.step_time.push_back(
        chance.Between(absl::Milliseconds(300), absl::Seconds(2)));
    scenario.tokens_per_step.push_back(chance.Between(1, 8) * 16);
  }
  if (seed % 3 == 0) MakeEven(scenario);
  scenario.faulty_time =
      std::min(chance.Between(absl::Seconds(20), absl::Minutes(2)),
               limits.max_faulty_time);
  // Half of the kinds or, more often, a quarter: some histories have few kinds,
  // so that a fault also acts alone.
  const uint64_t half = chance.Pick(1 << kFaults);
  const uint64_t other_half = chance.Pick(1 << kFaults);
  const uint64_t drawn = chance.OneIn(3) ? half : half & other_half;
  scenario.faults = static_cast<uint32_t>(drawn) & ~limits.without;
  v1::MembershipConfig& membership = *config.mutable_membership();
  if (scenario.IsSilent(0)) {
    membership.set_quorum(std::min(membership.quorum(), scenario.islands - 1));
  }
  return scenario;
}

bool Scenario::IsEven() const {
  return !Has(kClockSkew) && !Has(kOutlier) && !IsSilent(0) &&
         step_time.front() == step_time.back() &&
         absl::Seconds(config.membership().grace_seconds()) >=
             Unheard(config.membership()) + 2 * step_time.front();
}

std::string Scenario::Describe() const {
  const v1::MembershipConfig& membership = config.membership();
  const v1::SynchronizationConfig& sync = config.synchronization();
  std::string text = absl::StrFormat(
      "%d islands (start with %d, quorum %d), %d fragments, %d steps in rounds "
      "of %d, tau %d+%d, grace %.0f s, lease %.0f s, heartbeat %.1f s, "
      "%d versions and %d updates kept; %.0f s of:",
      islands, membership.min_islands(), membership.quorum(),
      plan.fragments_size(), config.training().total_steps(),
      sync.inner_steps_per_round(), sync.overlap_steps(),
      sync.max_overlap_steps(), membership.grace_seconds(),
      membership.lease_seconds(), membership.heartbeat_seconds(),
      config.storage().versions_kept(), config.storage().update_history(),
      absl::ToDoubleSeconds(faulty_time));
  for (uint32_t fault = 0; fault < kFaults; ++fault) {
    if (Has(static_cast<Fault>(fault))) {
      absl::StrAppend(&text, " ", kFaultNames[fault]);
    }
  }
  return text;
}

}  // namespace causeway::simulation
