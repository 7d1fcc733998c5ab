// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "cli/commands.h"
#include "cli/hugging_face.h"
#include "cli/human.h"
#include "common/checkpoint/initial_values.h"
#include "common/checkpoint/tensor_files.h"
#include "common/config/run_config.h"
#include "common/foreign/file.h"
#include "common/os/file.h"
#include "common/printable.h"
#include "common/status_macros.h"
#include "common/tensors/model_layout.h"
#include "google/protobuf/text_format.h"

namespace causeway {
namespace {

struct ImportFlags {
  std::string out;
  std::string name;
  uint32_t sequence_length = 0;
  uint64_t total_steps = 1000;
  uint32_t batch_size = 8;
  bool force = false;
};

bool Exists(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

// Returns the directory's name in the letters that a run's name may have.
std::string NameOf(const std::string& directory) {
  const auto path = std::filesystem::weakly_canonical(directory);
  std::string name = absl::AsciiStrToLower(path.filename().string());
  for (char& c : name) {
    if (!absl::ascii_isalnum(c)) c = '-';
  }
  return name.substr(0, 64);
}

absl::StatusOr<std::string> ConfigurationOf(const std::string& directory,
                                            const ImportFlags& flags) {
  ASSIGN_OR_RETURN(const std::string json,
                   ReadForeignFile(absl::StrCat(directory, "/config.json")));
  v1::RunConfig config;
  config.set_name(flags.name.empty() ? NameOf(directory) : flags.name);
  ASSIGN_OR_RETURN(*config.mutable_model(),
                   ReadHuggingFaceConfig(json, flags.sequence_length));
  const std::string tokenizer = absl::StrCat(directory, "/tokenizer.model");
  const bool sentencepiece = Exists(tokenizer);
  if (sentencepiece) RETURN_IF_ERROR(OpenForeignFile(tokenizer).status());
  config.mutable_data()->set_tokenizer(sentencepiece
                                           ? v1::DataConfig::SENTENCEPIECE
                                           : v1::DataConfig::PRETOKENIZED);
  v1::TrainingConfig& training = *config.mutable_training();
  training.set_total_steps(flags.total_steps);
  training.set_batch_size(flags.batch_size);
  training.set_micro_batch_size(1);
  config.mutable_synchronization()->set_inner_steps_per_round(
      static_cast<uint32_t>(std::min<uint64_t>(100, flags.total_steps)));
  std::string text;
  google::protobuf::TextFormat::PrintToString(config, &text);
  // A line break in a path would end the comment.
  const std::string model = Printable(directory);
  return absl::StrCat("# Continues training the model in ", model, ":\n",
                      "#   causeway-coordinator --config ",
                      Printable(flags.out), " --initial_parameters ", model,
                      " --state_dir ...\n",
                      "# training and synchronization are a start; "
                      "docs/configuration.md has all "
                      "fields.\n",
                      text);
}

absl::Status RunImport(const ImportFlags& flags, const Invocation& call) {
  const std::string& directory = call.arguments[0];
  ASSIGN_OR_RETURN(const std::string text, ConfigurationOf(directory, flags));
  ASSIGN_OR_RETURN(const v1::RunConfig config, ParseRunConfig(text, flags.out));
  const ModelLayout layout = MakeModelLayout(config.model());
  ASSIGN_OR_RETURN(const TensorFiles files, TensorFiles::Open(directory));
  RETURN_IF_ERROR(CheckTensors(files, layout));
  if (!flags.force && Exists(flags.out)) {
    return absl::AlreadyExistsError(absl::StrCat(
        flags.out, " exists; --force replaces it, --out names another place"));
  }
  RETURN_IF_ERROR(WriteFileAtomically(flags.out, {text}));
  call.out << "A model of " << HumanCount(layout.size) << " parameters in "
           << layout.tensors.size() << " tensors. The configuration is in "
           << flags.out
           << "; start the run with\n  causeway-coordinator --config "
           << flags.out << " --initial_parameters " << directory
           << " --state_dir DIR\n";
  return absl::OkStatus();
}

}  // namespace

Command ImportCommand() {
  const auto flags = std::make_shared<ImportFlags>();
  Command command{
      .name = "import",
      .arguments = "HF_DIR",
      .summary =
          "Writes the configuration of a run that continues training a model.",
      .details =
          "HF_DIR is a directory of the Hugging Face libraries with "
          "config.json and safetensors files: Llama (2 to 3.3, SmolLM2, "
          "TinyLlama), Mistral, Qwen2, Qwen2.5, Qwen3, SmolLM3 or OLMo 2. The "
          "command checks that a run can begin with its tensors; the "
          "coordinator reads them at its first start."};
  FlagSet& set = command.flags;
  set.AddRequired("out", "FILE", "The configuration to write.", &flags->out);
  set.Add("name", "NAME", "The run's name; by default that of the directory.",
          &flags->name);
  set.Add("sequence_length", "N",
          "Tokens of a training sequence; 0 for the longest that the model was "
          "made for.",
          &flags->sequence_length);
  set.Add("total_steps", "N", "Inner steps of the run.", &flags->total_steps);
  set.Add("batch_size", "N", "Sequences in an inner step of an island.",
          &flags->batch_size);
  set.Add("force", "", "Replaces an existing file.", &flags->force);
  command.run = [=](const Invocation& call) { return RunImport(*flags, call); };
  return command;
}

}  // namespace causeway
