// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The links of the islands, for people.
#ifndef CLI_LINK_REPORT_H_
#define CLI_LINK_REPORT_H_

#include <ostream>

#include "proto/status.pb.h"

namespace causeway {

// A line for each live island and direction: the rate that transfers reached,
// how long there were any, how long pacing held them back, and what was sent
// more than once. An empty line comes first. Nothing if no island is live.
void PrintLinks(const v1::ListIslandsResponse& islands, std::ostream& out);

}  // namespace causeway

#endif  // CLI_LINK_REPORT_H_
