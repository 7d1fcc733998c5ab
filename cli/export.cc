// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "cli/export.h"

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "cli/human.h"
#include "common/file.h"
#include "common/safetensors.h"
#include "common/status_macros.h"
#include "nlohmann/json.hpp"
#include "worker/data/tokenizer.h"

namespace causeway {
namespace {

std::string ConfigPath(const std::string& model_path) {
  return absl::StrCat(ParentDirectory(model_path), "/config.json");
}

absl::Status CheckAbsent(const std::string& path) {
  if (access(path.c_str(), F_OK) != 0) return absl::OkStatus();
  return absl::AlreadyExistsError(absl::StrCat(
      path, " exists; --force replaces it, --out names another place"));
}

}  // namespace

std::string LlamaConfigJson(const TrainedModel& model) {
  const v1::ModelConfig& config = model.config.model();
  nlohmann::ordered_json json = {
      {"architectures", {"LlamaForCausalLM"}},
      {"model_type", "llama"},
      {"vocab_size", config.vocab_size()},
      {"hidden_size", config.hidden_size()},
      {"intermediate_size", config.intermediate_size()},
      {"num_hidden_layers", config.layers()},
      {"num_attention_heads", config.heads()},
      {"num_key_value_heads", config.kv_heads()},
      {"head_dim", config.hidden_size() / config.heads()},
      {"hidden_act", "silu"},
      {"attention_bias", false},
      {"mlp_bias", false},
      {"max_position_embeddings", config.sequence_length()},
      {"rope_theta", config.rope_theta()},
      {"rope_scaling", nullptr},
      {"rms_norm_eps", config.norm_epsilon()},
      {"initializer_range", config.init_stddev()},
      {"tie_word_embeddings", config.tie_embeddings()},
      {"torch_dtype", "float32"},
  };
  // The library's defaults belong to another vocabulary.
  const bool bytes = model.config.data().tokenizer() == v1::DataConfig::BYTES;
  json["bos_token_id"] = nullptr;
  json["eos_token_id"] = nullptr;
  if (bytes) {
    json["bos_token_id"] = kBeginOfText;
    json["eos_token_id"] = kEndOfText;
  }
  return json.dump(2) + "\n";
}

absl::Status ExportModel(const TrainedModel& model, const std::string& path,
                         bool force) {
  const std::string config_path = ConfigPath(path);
  if (!force) {
    RETURN_IF_ERROR(CheckAbsent(path));
    RETURN_IF_ERROR(CheckAbsent(config_path));
  }
  // "format" tells the Hugging Face libraries which framework named the
  // tensors.
  Safetensors file{
      .metadata = {{"format", "pt"},
                   {"causeway.run_id", model.run_id},
                   {"causeway.versions", absl::StrJoin(model.versions, ",")}}};
  const absl::Span<const float> parameters = model.parameters;
  for (const TensorSpec& tensor : model.layout.tensors) {
    file.tensors.push_back(
        FloatTensor(tensor.name, tensor.shape,
                    parameters.subspan(static_cast<size_t>(tensor.offset),
                                       static_cast<size_t>(tensor.size))));
  }
  RETURN_IF_ERROR(WriteSafetensors(path, std::move(file)));
  return WriteFileAtomically(config_path, {LlamaConfigJson(model)});
}

Command ExportCommand() {
  struct Flags {
    std::string out;
    bool force = false;
  };
  const auto flags = std::make_shared<Flags>();
  Command command{
      .name = "export",
      .arguments = "STATE_DIR",
      .summary = "Writes a run's model for the Hugging Face libraries.",
      .details =
          "STATE_DIR is the coordinator's state directory; the coordinator may "
          "be running. The command writes the merged model as fp32 tensors "
          "with Llama names, and a config.json for LlamaForCausalLM in the "
          "same directory."};
  command.flags.AddRequired("out", "FILE", "The safetensors file to write.",
                            &flags->out);
  command.flags.Add("force", "", "Replaces existing files.", &flags->force);
  command.run = [=](const Invocation& call) -> absl::Status {
    ASSIGN_OR_RETURN(const TrainedModel model,
                     LoadTrainedModel(call.arguments[0]));
    RETURN_IF_ERROR(ExportModel(model, flags->out, flags->force));
    call.out << DescribeTrainedModel(model) << ": "
             << HumanCount(static_cast<double>(model.layout.size))
             << " parameters in " << model.layout.tensors.size()
             << " tensors written to " << flags->out << " and "
             << ConfigPath(flags->out) << "\n";
    return absl::OkStatus();
  };
  return command;
}

}  // namespace causeway
