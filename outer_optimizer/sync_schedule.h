// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The steps at which each fragment is sent and applied: a pure function of H
// (inner steps per round), the fragments' send offsets t_p, tau (overlap steps)
// and the run's total steps. Coordinator and islands all compute it, so it is
// never sent.
//
// Steps are counted when they are complete: "at step t" means after inner step
// t. At step t
//   * fragment p is sent if (t - t_p) mod H == 0 and t >= H + t_p: the k-th of
//     these sends, at t_p + k H, makes version k of the fragment (from the
//     anchor of version k - 1);
//   * its update is applied tau steps later, so that training overlaps with
//     the transfer;
//   * at the last step, every fragment whose last regular send was earlier is
//     sent once more, so that no training is lost. Updates on their way are
//     applied before that, and updates of the last sends at once, because no
//     training is left to overlap with.
//
// P = 1, t_0 = 0, tau = 0 is DiLoCo: send and apply at H, 2H, 3H, ...
//
// Source: Streaming DiLoCo (Douillard et al., arXiv 2501.18512), algorithm 2;
// the final sends are ours.
#ifndef OUTER_OPTIMIZER_SYNC_SCHEDULE_H_
#define OUTER_OPTIMIZER_SYNC_SCHEDULE_H_

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/fragment.pb.h"
#include "proto/run_config.pb.h"

namespace causeway {

// Immutable, thread-safe.
class SyncSchedule {
 public:
  struct Options {
    // H.
    uint64_t round_steps = 0;
    // t_p, one for each fragment, all less than H.
    std::vector<uint64_t> send_offsets;
    // tau, less than H.
    uint64_t overlap_steps = 0;
    uint64_t total_steps = 0;
  };

  struct Send {
    uint32_t fragment = 0;
    uint64_t step = 0;
    // The version that the round makes, from 1.
    uint64_t version = 0;

    friend bool operator==(const Send&, const Send&) = default;
  };

  // Returns INVALID_ARGUMENT, naming the option, if one is out of range.
  static absl::StatusOr<SyncSchedule> Create(Options options);
  static absl::StatusOr<SyncSchedule> Create(const v1::RunConfig& config,
                                             const v1::FragmentPlan& plan);

  uint32_t fragments() const {
    return static_cast<uint32_t>(options_.send_offsets.size());
  }
  uint64_t total_steps() const { return options_.total_steps; }
  uint64_t round_steps() const { return options_.round_steps; }
  uint64_t overlap_steps() const { return options_.overlap_steps; }

  // Returns the sends at `step`, ordered by fragment.
  std::vector<Send> SendsAt(uint64_t step) const;
  bool IsSentAt(uint32_t fragment, uint64_t step) const;

  // Returns the first send after `step`; none when the run is over.
  std::optional<Send> NextSend(uint32_t fragment, uint64_t step) const;

  // Returns the last step at which an island applies the update of its send at
  // `send_step` (without max_overlap_steps).
  uint64_t ApplyStep(uint64_t send_step) const;

  // Returns the version that a fragment has at the end of the run, which is its
  // number of rounds: at least 1.
  uint64_t FinalVersion(uint32_t fragment) const;
  uint64_t TotalRounds() const;

  // Returns the step at which the round of `version` is sent: the version
  // contains training up to this step. 0 for version 0; the last step for the
  // final version and above.
  uint64_t StepOfVersion(uint32_t fragment, uint64_t version) const;

  // Returns the newest version of the whole model that a set of versions (one
  // for each fragment) has reached: each fragment has at least this version, or
  // its last one.
  uint64_t ModelVersion(absl::Span<const uint64_t> versions) const;
  // Returns whether the set is exactly this version, with no fragment ahead.
  bool IsModelVersion(absl::Span<const uint64_t> versions) const;
  uint64_t FinalModelVersion() const;

  // Returns the run's position, in inner steps, for a set of versions (one for
  // each fragment): the latest StepOfVersion.
  uint64_t RunPosition(absl::Span<const uint64_t> versions) const;

  // Returns `step`, moved to where an island with these versions can be: not
  // behind RunPosition, and not beyond a send whose round is still open.
  // Islands that join or were away continue from there.
  uint64_t ClampToVersions(uint64_t step,
                           absl::Span<const uint64_t> versions) const;

 private:
  explicit SyncSchedule(Options options) : options_(std::move(options)) {}

  Options options_;
};

}  // namespace causeway

#endif  // OUTER_OPTIMIZER_SYNC_SCHEDULE_H_
