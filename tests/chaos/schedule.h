// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The schedule of faults in a run of the chaos kit. It is made from a seed, so
// that a run can be repeated.
#ifndef TESTS_CHAOS_SCHEDULE_H_
#define TESTS_CHAOS_SCHEDULE_H_

#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace causeway {

enum class FaultKind {
  // SIGKILL of an island, which is started again.
  kKillIsland,
  // SIGSTOP of an island, and SIGCONT at the end of the fault.
  kStopIsland,
  // All TCP connections of an island are reset.
  kResetConnections,
  // An island's link carries nothing.
  kPartition,
  // An island's link loses a twentieth of all frames.
  kLoss,
  // SIGKILL of the coordinator, which is started again.
  kKillCoordinator,
  // One more island joins, and leaves by SIGTERM at the end of the fault.
  kGuest,
};
inline constexpr int kFaultKinds = 7;

absl::string_view FaultKindName(FaultKind kind);

struct Fault {
  // The time since the first commit of the run.
  absl::Duration at;
  FaultKind kind = FaultKind::kKillIsland;
  // The index of the affected island; meaningless for the coordinator and the
  // guest.
  int island = 0;
  // The duration of faults that end by themselves.
  absl::Duration lasts;

  friend bool operator==(const Fault&, const Fault&) = default;
};

struct ScheduleOptions {
  // No fault begins within the last `interval`.
  absl::Duration duration;
  // Each interval has one fault; it must be at least a few times as long as
  // processes take to start.
  absl::Duration interval;
  int islands = 1;
  uint64_t seed = 0;
};

// Returns the faults in order of time. Beginning with the first, each group of
// kFaultKinds faults has one of each kind. None lasts longer than 0.4
// intervals, except that guests stay twice as long.
std::vector<Fault> MakeSchedule(const ScheduleOptions& options);

}  // namespace causeway

#endif  // TESTS_CHAOS_SCHEDULE_H_
