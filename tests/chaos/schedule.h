// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// What goes wrong in a run of the chaos kit, and when: made from a seed, so
// that a run can be had again.
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
  // SIGSTOP of an island; SIGCONT when it is over.
  kStopIsland,
  // All TCP connections of an island are reset.
  kResetConnections,
  // Nothing gets over an island's link.
  kPartition,
  // An island's link loses a twentieth of all frames.
  kLoss,
  // SIGKILL of the coordinator, which is started again.
  kKillCoordinator,
  // One more island joins, and leaves by SIGTERM when it is over.
  kGuest,
};
inline constexpr int kFaultKinds = 7;

absl::string_view FaultKindName(FaultKind kind);

struct Fault {
  // Since the first commit of the run.
  absl::Duration at;
  FaultKind kind = FaultKind::kKillIsland;
  // Index of the island it strikes; meaningless for the coordinator and the
  // guest.
  int island = 0;
  // For those that end by themselves.
  absl::Duration lasts;

  friend bool operator==(const Fault&, const Fault&) = default;
};

struct ScheduleOptions {
  // No fault begins within the last `interval`.
  absl::Duration duration;
  // One fault each; at least a few times what processes take to start.
  absl::Duration interval;
  int islands = 1;
  uint64_t seed = 0;
};

// In order of time. Of any kFaultKinds faults in a row from the beginning, each
// is of another kind. None lasts longer than 0.4 intervals, but guests
// stay twice as long.
std::vector<Fault> MakeSchedule(const ScheduleOptions& options);

}  // namespace causeway

#endif  // TESTS_CHAOS_SCHEDULE_H_
