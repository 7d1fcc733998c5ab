// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// What the coordinator records for people.
#ifndef SERVER_RULES_COORDINATOR_EVENTS_H_
#define SERVER_RULES_COORDINATOR_EVENTS_H_

#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "proto/coordinator.pb.h"

namespace causeway {

// Something worth telling people about; kinds as in proto/status.proto.
struct CoordinatorEvent {
  std::string kind;
  std::string island_id;
  std::string text;
};

// What is to be said when the ranks of an island had one trouble when it last
// reported and have another one now; the kind of either may be unspecified.
// Nothing if it is still the same one, however much it costs by now.
std::optional<CoordinatorEvent> RankEvent(absl::string_view island_id,
                                          const v1::RankTrouble& before,
                                          const v1::RankTrouble& now);

}  // namespace causeway

#endif  // SERVER_RULES_COORDINATOR_EVENTS_H_
