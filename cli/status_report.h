// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Formats a coordinator's answers as text for people and as JSON for programs.
// Pure functions.
#ifndef CLI_STATUS_REPORT_H_
#define CLI_STATUS_REPORT_H_

#include <ostream>
#include <string>

#include "absl/time/time.h"
#include "cli/coordinator_client.h"
#include "proto/control.pb.h"
#include "proto/status.pb.h"

namespace causeway {

// Prints the whole run: a paragraph of facts, the islands, the fragments.
void PrintStatus(const StatusSnapshot& snapshot, absl::Time now,
                 std::ostream& out);

// Prints the run's state and what needs attention.
void PrintCheck(const v1::RunStatus& run, absl::Time now, std::ostream& out);

// Print a table with one row each.
void PrintIslands(const StatusSnapshot& snapshot, std::ostream& out);
void PrintFragments(const v1::ListFragmentsResponse& fragments, absl::Time now,
                    std::ostream& out);
// The peer with the most memory comes first.
void PrintPeers(const v1::ListPeersResponse& peers, std::ostream& out);

// Prints one line: id, local time, kind, island, text.
void PrintEvent(const v1::Event& event, absl::TimeZone zone, std::ostream& out);

// Returns one line: {"run": RunStatus, "islands": [IslandStatus...],
// "fragments": [FragmentStatus...]} in protobuf's JSON mapping with the field
// names of proto/status.proto: 64-bit integers are strings, bytes are base64.
std::string StatusJson(const StatusSnapshot& snapshot);

// Returns one message in the same mapping, as one line.
std::string MessageJson(const google::protobuf::Message& message);

// Prints an empty line, then a line for each live island and direction: the
// rate of transfers, how long they were under way, how long pacing delayed
// them, and how much was sent more than once. Prints nothing if no island is
// live.
void PrintLinks(const v1::ListIslandsResponse& islands, std::ostream& out);

}  // namespace causeway

#endif  // CLI_STATUS_REPORT_H_
