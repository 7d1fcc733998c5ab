// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Describes the islands' links for people.
#ifndef CLI_LINK_REPORT_H_
#define CLI_LINK_REPORT_H_

#include <ostream>

#include "proto/status.pb.h"

namespace causeway {

// Prints an empty line, then a line for each live island and direction: the
// rate that transfers reached, how long transfers were under way, how long
// pacing held them back, and how much was sent more than once. Prints nothing
// if no island is live.
void PrintLinks(const v1::ListIslandsResponse& islands, std::ostream& out);

}  // namespace causeway

#endif  // CLI_LINK_REPORT_H_
