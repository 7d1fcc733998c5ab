// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// `causeway validate`: checks a run's configuration, and the data it is to be
// trained on, before anything is started; and says what the run will be.
#ifndef CLI_VALIDATE_H_
#define CLI_VALIDATE_H_

#include <ostream>
#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "cli/command_line.h"
#include "proto/run_config.pb.h"

namespace causeway {

Command ValidateCommand();

// Checks `config`, which must be resolved, for what only several fields
// together show; and the data at `paths`, if any, as an island would. Prints
// what the run will be to `out`.
absl::Status Validate(const v1::RunConfig& config,
                      absl::Span<const std::string> paths, std::ostream& out);

}  // namespace causeway

#endif  // CLI_VALIDATE_H_
