// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "outer_optimizer/sync_schedule.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "glog/logging.h"

namespace causeway {

absl::StatusOr<SyncSchedule> SyncSchedule::Create(Options options) {
  if (options.round_steps == 0) {
    return absl::InvalidArgumentError(
        "inner_steps_per_round is 0, want at least 1");
  }
  if (options.total_steps == 0) {
    return absl::InvalidArgumentError("total_steps is 0, want at least 1");
  }
  if (options.send_offsets.empty()) {
    return absl::InvalidArgumentError("there are no fragments");
  }
  if (options.overlap_steps >= options.round_steps) {
    return absl::InvalidArgumentError(
        absl::StrFormat("overlap_steps is %d, want less than "
                        "inner_steps_per_round, which is %d",
                        options.overlap_steps, options.round_steps));
  }
  for (size_t p = 0; p < options.send_offsets.size(); ++p) {
    if (options.send_offsets[p] >= options.round_steps) {
      return absl::InvalidArgumentError(
          absl::StrFormat("send offset of fragment %d is %d, want less than "
                          "inner_steps_per_round, which is %d",
                          p, options.send_offsets[p], options.round_steps));
    }
  }
  return SyncSchedule(std::move(options));
}

absl::StatusOr<SyncSchedule> SyncSchedule::Create(
    const v1::RunConfig& config, const v1::FragmentPlan& plan) {
  Options options{
      .round_steps = config.synchronization().inner_steps_per_round(),
      .overlap_steps = config.synchronization().overlap_steps(),
      .total_steps = config.training().total_steps(),
  };
  for (const v1::Fragment& fragment : plan.fragments()) {
    options.send_offsets.push_back(fragment.send_offset_steps());
  }
  return Create(std::move(options));
}

std::vector<SyncSchedule::Send> SyncSchedule::SendsAt(uint64_t step) const {
  std::vector<Send> sends;
  for (uint32_t fragment = 0; fragment < fragments(); ++fragment) {
    if (IsSentAt(fragment, step)) {
      sends.push_back(*NextSend(fragment, step - 1));
    }
  }
  return sends;
}

bool SyncSchedule::IsSentAt(uint32_t fragment, uint64_t step) const {
  if (step == 0) return false;
  const std::optional<Send> send = NextSend(fragment, step - 1);
  return send.has_value() && send->step == step;
}

std::optional<SyncSchedule::Send> SyncSchedule::NextSend(uint32_t fragment,
                                                         uint64_t step) const {
  if (step >= options_.total_steps) return std::nullopt;
  const uint64_t offset = options_.send_offsets[fragment];
  // The number of regular sends up to `step`.
  const uint64_t sent =
      step < offset ? 0 : (step - offset) / options_.round_steps;
  const uint64_t version = sent + 1;
  return Send{.fragment = fragment,
              .step = StepOfVersion(fragment, version),
              .version = version};
}

uint64_t SyncSchedule::ApplyStep(uint64_t send_step) const {
  CHECK_LE(send_step, options_.total_steps);
  return send_step +
         std::min(options_.overlap_steps, options_.total_steps - send_step);
}

uint64_t SyncSchedule::FinalVersion(uint32_t fragment) const {
  const uint64_t offset = options_.send_offsets[fragment];
  if (options_.total_steps <= offset) return 1;
  const uint64_t steps = options_.total_steps - offset;
  // Rounded up, because a last window that is shorter than H is a round, too.
  return (steps - 1) / options_.round_steps + 1;
}

uint64_t SyncSchedule::TotalRounds() const {
  uint64_t rounds = 0;
  for (uint32_t fragment = 0; fragment < fragments(); ++fragment) {
    rounds += FinalVersion(fragment);
  }
  return rounds;
}

uint64_t SyncSchedule::StepOfVersion(uint32_t fragment,
                                     uint64_t version) const {
  if (version == 0) return 0;
  if (version >= FinalVersion(fragment)) return options_.total_steps;
  return options_.send_offsets[fragment] + version * options_.round_steps;
}

uint64_t SyncSchedule::FinalModelVersion() const {
  uint64_t version = 0;
  for (uint32_t fragment = 0; fragment < fragments(); ++fragment) {
    version = std::max(version, FinalVersion(fragment));
  }
  return version;
}

uint64_t SyncSchedule::ModelVersion(absl::Span<const uint64_t> versions) const {
  CHECK_EQ(versions.size(), options_.send_offsets.size());
  uint64_t version = FinalModelVersion();
  for (uint32_t fragment = 0; fragment < fragments(); ++fragment) {
    if (versions[fragment] >= FinalVersion(fragment)) continue;
    version = std::min(version, versions[fragment]);
  }
  return version;
}

bool SyncSchedule::IsModelVersion(absl::Span<const uint64_t> versions) const {
  return *std::max_element(versions.begin(), versions.end()) <=
         ModelVersion(versions);
}

uint64_t SyncSchedule::RunPosition(absl::Span<const uint64_t> versions) const {
  CHECK_EQ(versions.size(), options_.send_offsets.size());
  uint64_t position = 0;
  for (uint32_t fragment = 0; fragment < fragments(); ++fragment) {
    position = std::max(position, StepOfVersion(fragment, versions[fragment]));
  }
  return position;
}

uint64_t SyncSchedule::ClampToVersions(
    uint64_t step, absl::Span<const uint64_t> versions) const {
  uint64_t latest = options_.total_steps;
  for (uint32_t fragment = 0; fragment < fragments(); ++fragment) {
    if (versions[fragment] >= FinalVersion(fragment)) continue;
    latest =
        std::min(latest, StepOfVersion(fragment, versions[fragment] + 1) - 1);
  }
  return std::min(std::max(step, RunPosition(versions)), latest);
}

}  // namespace causeway
