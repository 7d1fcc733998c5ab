// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The events that the coordinator records for people.
#ifndef SERVER_RULES_COORDINATOR_EVENTS_H_
#define SERVER_RULES_COORDINATOR_EVENTS_H_

#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "proto/coordinator.pb.h"

namespace causeway {

// An event for people; proto/status.proto lists the kinds.
struct CoordinatorEvent {
  std::string kind;
  std::string island_id;
  std::string text;
};

// Returns the event of a change in the trouble of an island's ranks, from the
// island's last report to this one. Either kind may be unspecified. Returns
// nothing if the trouble is still the same, whatever it costs by now.
std::optional<CoordinatorEvent> RankEvent(absl::string_view island_id,
                                          const v1::RankTrouble& before,
                                          const v1::RankTrouble& now);

}  // namespace causeway

#endif  // SERVER_RULES_COORDINATOR_EVENTS_H_
