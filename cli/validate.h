// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// `causeway validate`: checks a run's configuration and its data before
// anything is started, and describes the run.
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

// Checks combinations of fields of the resolved `config`; the tensors of
// `checkpoint`, unless it is empty; and the data at `paths`, if any, as an
// island would. Describes the run on `out`.
absl::Status Validate(const v1::RunConfig& config,
                      const std::string& checkpoint,
                      absl::Span<const std::string> paths, std::ostream& out);

}  // namespace causeway

#endif  // CLI_VALIDATE_H_
