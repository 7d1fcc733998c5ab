// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The `history` command: loss, speed, traffic and participation over a run.
#ifndef CLI_HISTORY_HISTORY_H_
#define CLI_HISTORY_HISTORY_H_

#include <cstdint>
#include <ostream>

#include "absl/time/time.h"
#include "cli/command_line.h"
#include "common/clock.h"
#include "proto/status.pb.h"

namespace causeway {

// The table shows times in `zone`.
Command HistoryCommand(Clock now, absl::TimeZone zone);

// Prints a table of the newest `rows` versions of the model; all if 0.
void PrintHistory(const v1::GetHistoryResponse& history, uint64_t rows,
                  absl::TimeZone zone, std::ostream& out);

// Prints the columns' names, then a line for each version, with times in UTC
// and the training loss of each island in a column of its own. Unmeasured
// values are empty.
void PrintHistoryCsv(const v1::GetHistoryResponse& history, std::ostream& out);

}  // namespace causeway

#endif  // CLI_HISTORY_HISTORY_H_
