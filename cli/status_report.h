// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// What a run looks like: a coordinator's answers as text for people and as
// JSON for programs. Pure functions.
#ifndef CLI_STATUS_REPORT_H_
#define CLI_STATUS_REPORT_H_

#include <ostream>
#include <string>

#include "absl/time/time.h"
#include "cli/status_client.h"
#include "proto/status.pb.h"

namespace causeway {

// The whole run: a paragraph of facts, the islands, the fragments.
void PrintStatus(const StatusSnapshot& snapshot, absl::Time now,
                 std::ostream& out);

// One table row each.
void PrintIslands(const v1::ListIslandsResponse& islands, std::ostream& out);
void PrintFragments(const v1::ListFragmentsResponse& fragments, absl::Time now,
                    std::ostream& out);

// One line: id, local time, kind, island, text.
void PrintEvent(const v1::Event& event, absl::TimeZone zone, std::ostream& out);

// {"run": RunStatus, "islands": [IslandStatus...], "fragments":
// [FragmentStatus...]} in protobuf's JSON mapping with the field names of
// proto/status.proto: 64-bit integers are strings, bytes are base64. One line.
std::string StatusJson(const StatusSnapshot& snapshot);

// One message in the same mapping. One line.
std::string MessageJson(const google::protobuf::Message& message);

// Time until the last step at the current speed; infinite if nothing moves.
absl::Duration TimeLeft(const v1::RunStatus& run);

}  // namespace causeway

#endif  // CLI_STATUS_REPORT_H_
