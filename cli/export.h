// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// `causeway export`: writes a run's model as a directory that the Hugging Face
// libraries load:
//
//   transformers.AutoModelForCausalLM.from_pretrained("DIRECTORY")
//
// The tensors go from the coordinator's files to the new ones piece by piece,
// so that the command needs little memory, whatever the size of the model.
#ifndef CLI_EXPORT_H_
#define CLI_EXPORT_H_

#include "cli/command_line.h"
#include "cli/progress.h"

namespace causeway {

// Progress goes to Invocation::err.
Command ExportCommand(ProgressEnvironment progress);

}  // namespace causeway

#endif  // CLI_EXPORT_H_
