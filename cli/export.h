// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// `causeway export`: writes a run's model in the form that the Hugging Face
// libraries load: a safetensors file of fp32 tensors with Llama names, and
// beside it a config.json for LlamaForCausalLM.
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
// directory, each atomically. ALREADY_EXISTS if one of the files exists and
// `force` is not set; errors of WriteSafetensors.
absl::Status ExportModel(const TrainedModel& model, const std::string& path,
                         bool force);

// Returns the configuration in the terms of LlamaConfig. Ends with a newline.
std::string LlamaConfigJson(const TrainedModel& model);

}  // namespace causeway

#endif  // CLI_EXPORT_H_
