// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Describe a run in the Status service's messages. Pure functions: they change
// nothing that the Coordinator decides.
#ifndef SERVER_RULES_STATUS_VIEWS_H_
#define SERVER_RULES_STATUS_VIEWS_H_

#include <cstdint>

#include "absl/time/time.h"
#include "proto/status.pb.h"
#include "server/rules/coordinator.h"

namespace causeway {

// Leaves out what is measured of the coordinator's process: bytes, memory,
// times, connections.
v1::RunStatus DescribeRun(Coordinator& coordinator);
// Returns a page that ends with the island that fills `page_bytes`.
v1::ListIslandsResponse DescribeIslands(Coordinator& coordinator,
                                        const v1::ListIslandsRequest& request,
                                        uint64_t page_bytes, absl::Time now);
v1::ListFragmentsResponse DescribeFragments(Coordinator& coordinator);

}  // namespace causeway

#endif  // SERVER_RULES_STATUS_VIEWS_H_
