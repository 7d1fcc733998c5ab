// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// `causeway export`: the model of a run as the Hugging Face libraries load it,
// a safetensors file of fp32 tensors with Llama names and a config.json for
// LlamaForCausalLM beside it:
//
//   transformers.AutoModelForCausalLM.from_pretrained("DIRECTORY")
//
// loads DIRECTORY/model.safetensors.
#ifndef CLI_EXPORT_H_
#define CLI_EXPORT_H_

#include <string>

#include "absl/status/status.h"
#include "cli/command_line.h"
#include "cli/trained_model.h"

namespace causeway {

Command ExportCommand();

// Writes the tensors to `path` and the configuration to config.json in the same
// directory, each atomically. ALREADY_EXISTS if one of them is there and
// `force` is not set; errors of WriteSafetensors.
absl::Status ExportModel(const TrainedModel& model, const std::string& path,
                         bool force);

// The configuration as LlamaConfig names it. Ends with a newline.
std::string LlamaConfigJson(const TrainedModel& model);

}  // namespace causeway

#endif  // CLI_EXPORT_H_
