// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/chaos/schedule.h"

#include <array>
#include <numeric>
#include <random>

namespace causeway {

absl::string_view FaultKindName(FaultKind kind) {
  switch (kind) {
    case FaultKind::kKillIsland:
      return "kill_island";
    case FaultKind::kStopIsland:
      return "stop_island";
    case FaultKind::kResetConnections:
      return "reset_connections";
    case FaultKind::kPartition:
      return "partition";
    case FaultKind::kLoss:
      return "loss";
    case FaultKind::kKillCoordinator:
      return "kill_coordinator";
    case FaultKind::kGuest:
      return "guest";
  }
  return "unknown";
}

std::vector<Fault> MakeSchedule(const ScheduleOptions& options) {
  // The results of std::uniform_*_distribution differ between libraries, so
  // this does not use them.
  std::mt19937_64 random(options.seed);
  std::array<int, kFaultKinds> deck;
  std::iota(deck.begin(), deck.end(), 0);
  std::vector<Fault> faults;
  size_t next = deck.size();
  for (absl::Duration at = options.interval / 2;
       at + options.interval <= options.duration; at += options.interval) {
    if (next == deck.size()) {
      for (size_t i = deck.size() - 1; i > 0; --i) {
        std::swap(deck[i], deck[random() % (i + 1)]);
      }
      next = 0;
    }
    const double share = 0.2 + 0.2 * static_cast<double>(random() % 1000) / 999;
    const auto kind = static_cast<FaultKind>(deck[next++]);
    faults.push_back({.at = at,
                      .kind = kind,
                      .island = static_cast<int>(
                          random() % static_cast<uint64_t>(options.islands)),
                      .lasts = (kind == FaultKind::kGuest ? 2 : 1) * share *
                               options.interval});
  }
  return faults;
}

}  // namespace causeway
