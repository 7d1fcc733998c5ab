// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// A coordinator that leads its run, as a process.
#ifndef SERVER_LEAD_H_
#define SERVER_LEAD_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/http/http_server.h"
#include "proto/run_config.pb.h"
#include "server/election/election.h"
#include "server/fragment_heads.h"
#include "server/page/page_handlers.h"
#include "server/serve_options.h"

namespace causeway {

enum class LeadEnd {
  // The run is finished, or a signal came.
  kStopped,
  // Another coordinator leads the run; only with `end_when_replaced`.
  kReplaced,
};

// Leads the run in the state directory, which may be new, or in `opened` if
// given. `replaced` is the address of the coordinator from which this one has
// taken the run over, or empty. `election` is the election that it has won, or
// null.
absl::StatusOr<LeadEnd> Lead(const ServeOptions& options,
                             const v1::RunConfig& config,
                             const std::string& replaced, Election* election,
                             OpenedRun opened = {});

// Checks that all addresses of the options can be listened on; an error names
// the flag. A start whose port is in use must leave no trace in the state, and
// listening itself begins only when calls can be answered.
absl::Status CheckAddresses(const ServeOptions& options);

// Writes the port to the file of the options, if there is one.
absl::Status WritePortFile(const ServeOptions& options, int port);

// Serves the page, if the options ask for one; returns null otherwise.
absl::StatusOr<std::unique_ptr<HttpServer>> ServePage(
    const ServeOptions& options, const PageSource& source);

}  // namespace causeway

#endif  // SERVER_LEAD_H_
