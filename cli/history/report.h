// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The `report` command: the page of a run (server/page) as one file with its
// data, which any browser shows without a coordinator.
#ifndef CLI_HISTORY_REPORT_H_
#define CLI_HISTORY_REPORT_H_

#include <string>

#include "cli/command_line.h"
#include "common/clock.h"
#include "proto/page.pb.h"

namespace causeway {

Command ReportCommand(Clock now);

// Returns the file. It loads nothing, and forbids the browser to load anything.
std::string ReportHtml(const v1::PageData& data);

}  // namespace causeway

#endif  // CLI_HISTORY_REPORT_H_
