// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// `causeway import`: writes the configuration of a run that begins with a model
// of the Hugging Face libraries.
#ifndef CLI_IMPORT_H_
#define CLI_IMPORT_H_

#include "cli/command_line.h"

namespace causeway {

Command ImportCommand();

}  // namespace causeway

#endif  // CLI_IMPORT_H_
