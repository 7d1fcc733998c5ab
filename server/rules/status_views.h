// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Describe a run as the Status service does, as far as the rules know it. Pure
// functions of a Coordinator; they change nothing that it decides.
#ifndef SERVER_RULES_STATUS_VIEWS_H_
#define SERVER_RULES_STATUS_VIEWS_H_

#include "absl/time/time.h"
#include "proto/status.pb.h"
#include "server/rules/coordinator.h"

namespace causeway {

// Leaves out what is measured of the coordinator's process: bytes, memory,
// times, connections.
v1::RunStatus DescribeRun(Coordinator& coordinator);
v1::ListIslandsResponse DescribeIslands(Coordinator& coordinator,
                                        bool include_departed, absl::Time now);
v1::ListFragmentsResponse DescribeFragments(Coordinator& coordinator);

}  // namespace causeway

#endif  // SERVER_RULES_STATUS_VIEWS_H_
