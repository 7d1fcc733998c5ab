// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "cli/hugging_face.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/substitute.h"
#include "common/foreign/file.h"
#include "common/printable.h"
#include "common/status_macros.h"
#include "common/tensors/model_layout.h"
#include "nlohmann/json.hpp"
#include "worker/data/tokenizer.h"

namespace causeway {
namespace {

using Json = nlohmann::json;

// The most special tokens of one kind; Llama 3 has three that end a text.
constexpr size_t kMostTokenIds = 64;

constexpr uint32_t kNoWindow = std::numeric_limits<uint32_t>::max();

// A kind of model that islands train.
struct Family {
  const char* model_type;
  const char* architecture;
  bool qkv_bias;
  bool qk_norm;
  bool qk_norm_across_heads;
  bool post_norm;
  // The library's own default of "head_dim"; 0 means
  // hidden_size / num_attention_heads.
  uint32_t head_dim;
  // If true, "sliding_window" counts only with "use_sliding_window".
  bool asks_for_window;
  // The library's own default of "sliding_window".
  uint32_t window = kNoWindow;
  // The libraries' own defaults of "no_rope_layer_interval" (0 if the family
  // lacks it) and "tie_word_embeddings".
  uint32_t no_rope_interval;
  bool tied;
  // The library's own default of "rms_norm_eps", which is not ours.
  double norm_epsilon = 1e-6;
  // The library's own default of "rope_theta".
  double rope_theta = 10000;
};
// An export takes the first family that has the model's tensors.
constexpr Family kFamilies[] = {
    {.model_type = "llama", .architecture = "LlamaForCausalLM"},
    {.model_type = "mistral",
     .architecture = "MistralForCausalLM",
     .window = 4096},
    {.model_type = "qwen2",
     .architecture = "Qwen2ForCausalLM",
     .qkv_bias = true,
     .asks_for_window = true,
     .window = 4096},
    {.model_type = "qwen3",
     .architecture = "Qwen3ForCausalLM",
     .qk_norm = true,
     .head_dim = 128,
     .asks_for_window = true,
     .window = 4096},
    {.model_type = "smollm3",
     .architecture = "SmolLM3ForCausalLM",
     .asks_for_window = true,
     .no_rope_interval = 4,
     .tied = true,
     .rope_theta = 2e6},
    {.model_type = "olmo2",
     .architecture = "Olmo2ForCausalLM",
     .qk_norm = true,
     .qk_norm_across_heads = true,
     .post_norm = true,
     .norm_epsilon = 1e-5},
};

absl::StatusOr<Json> ParseObject(absl::string_view text) {
  absl::StatusOr<Json> json = ParseForeignJson(text);
  if (json.ok()) return json;
  return absl::InvalidArgumentError(
      absl::StrCat("config.json cannot be read: ", json.status().message()));
}

absl::Status Refuse(absl::string_view key, const Json& value,
                    absl::string_view why) {
  return absl::InvalidArgumentError(absl::Substitute(
      "config.json: \"$0\" is $1; $2", Excerpt(key),
      Excerpt(value.dump(-1, ' ', false, Json::error_handler_t::replace)),
      why));
}

// Returns the value at `key`; null if there is none.
const Json& At(const Json& json, const char* key) {
  static const Json* const kNull = new Json();
  const auto found = json.find(key);
  return found == json.end() ? *kNull : *found;
}

// Reads a number at `key`, if there is one.
absl::Status ReadNumber(const Json& json, const char* key, double& number) {
  const Json& value = At(json, key);
  if (value.is_null()) return absl::OkStatus();
  if (!value.is_number()) return Refuse(key, value, "want a number");
  number = value.get<double>();
  return absl::OkStatus();
}

// Reads a positive integer at `key`. If there is none, keeps `number`, which
// must then not be 0.
absl::Status ReadCount(const Json& json, const char* key, uint32_t& number) {
  const Json& value = At(json, key);
  if (value.is_null() && number != 0) return absl::OkStatus();
  if (!value.is_number_unsigned() || value.get<uint64_t>() < 1 ||
      value.get<uint64_t>() > std::numeric_limits<uint32_t>::max()) {
    return Refuse(key, value, "want a whole number from 1 on");
  }
  number = value.get<uint32_t>();
  return absl::OkStatus();
}

// Refuses a value at `key` that is neither null nor `allowed`.
absl::Status RequireOrAbsent(const Json& json, const char* key,
                             const Json& allowed, absl::string_view why) {
  const Json& value = At(json, key);
  if (value.is_null() || value == allowed) return absl::OkStatus();
  return Refuse(key, value, why);
}

absl::StatusOr<Family> FindFamily(const Json& json) {
  const Json& type = At(json, "model_type");
  for (const Family& family : kFamilies) {
    if (type == family.model_type) return family;
  }
  return Refuse("model_type", type,
                "Causeway's islands train \"llama\", \"mistral\", \"qwen2\", "
                "\"qwen3\", \"smollm3\" and \"olmo2\"");
}

// Parts of keys that configure layers which islands cannot train: mixtures of
// experts, biases, norms, caps and other attention. The libraries' classes of
// our families ignore most of these keys, but a checkpoint has them because its
// model does not.
constexpr absl::string_view kForeignParts[] = {
    "alibi",
    "attention_chunk",
    "attention_multiplier",
    "attention_sink",
    "attn_scale",
    "attn_temperature",
    "bias",
    "bidirectional",
    "clip_qkv",
    "cross_att",
    "encoder_decoder",
    "expert",
    "kv_shared",
    "moe_",
    "mrope",
    "no_rope",
    "parallel_attn",
    "parallel_residual",
    "qk_layernorm",
    "qk_norm",
    "query_pre_attn",
    "rope_interleave",
    "rope_local",
    "softcap",
};
// Keys with these parts scale values, so a value of 1 changes nothing.
constexpr absl::string_view kForeignScales[] = {
    "multiplier", "logit_scale", "logits_scaling", "partial_rotary",
    "rotary_pct", "scale_depth", "scale_emb",
};

template <typename Parts>
bool HasPart(absl::string_view key, const Parts& parts) {
  return std::any_of(
      std::begin(parts), std::end(parts),
      [&](absl::string_view part) { return absl::StrContains(key, part); });
}

// Returns whether a value turns a feature off.
bool IsOff(const Json& value) {
  return value.is_null() || value == false || value == 0 || value == "" ||
         ((value.is_array() || value.is_object()) && value.empty());
}

// Refuses a key that makes the model differ from its family.
absl::Status CheckKey(const std::string& key, const Json& value,
                      const Family& family) {
  if ((key == "qkv_bias" && family.qkv_bias) ||
      (absl::EndsWith(key, "qk_norm") && family.qk_norm) ||
      (absl::StartsWith(key, "no_rope_layer") && family.no_rope_interval > 0)) {
    return absl::OkStatus();
  }
  if (HasPart(key, kForeignParts) && !IsOff(value)) {
    return Refuse(key, value,
                  absl::StrCat("islands compute \"", family.model_type,
                               "\" without that"));
  }
  if (HasPart(key, kForeignScales) && !value.is_null() && value != 1) {
    return Refuse(key, value, "islands do not scale by that");
  }
  return absl::OkStatus();
}

// Refuses what islands do not compute.
absl::Status CheckOperations(const Json& json, const Family& family) {
  for (const auto& [key, value] : json.items()) {
    RETURN_IF_ERROR(CheckKey(key, value, family));
  }
  const Json& architectures = At(json, "architectures");
  if (!IsOff(architectures) &&
      architectures != Json::array({family.architecture})) {
    return Refuse("architectures", architectures,
                  absl::StrCat("want [\"", family.architecture, "\"]"));
  }
  RETURN_IF_ERROR(RequireOrAbsent(json, "is_causal", true,
                                  "islands attend to earlier tokens only"));
  for (const char* key : {"hidden_act", "hidden_activation"}) {
    RETURN_IF_ERROR(
        RequireOrAbsent(json, key, "silu", "islands compute \"silu\" only"));
  }
  for (const char* key : {"quantization_config", "compression_config"}) {
    RETURN_IF_ERROR(RequireOrAbsent(
        json, key, Json(), "training needs weights that are not quantized"));
  }
  return absl::OkStatus();
}

absl::Status ReadLlama3Scaling(const Json& rope, v1::RopeScaling& scaling) {
  double factor = 0;
  double low = scaling.low_frequency_factor();
  double high = scaling.high_frequency_factor();
  uint32_t length = 0;
  RETURN_IF_ERROR(ReadNumber(rope, "factor", factor));
  RETURN_IF_ERROR(ReadNumber(rope, "low_freq_factor", low));
  RETURN_IF_ERROR(ReadNumber(rope, "high_freq_factor", high));
  RETURN_IF_ERROR(ReadCount(rope, "original_max_position_embeddings", length));
  scaling.set_factor(factor);
  scaling.set_low_frequency_factor(low);
  scaling.set_high_frequency_factor(high);
  scaling.set_original_length(length);
  return absl::OkStatus();
}

// Refuses an embedding that differs from layer to layer, and a `rope_scaling`
// that contradicts the embedding `rope` of `key`.
absl::Status CheckOneRope(const Json& json, const char* key, const Json& rope) {
  for (const Json& value : rope) {
    if (value.is_object()) {
      return Refuse(key, rope, "islands compute one embedding for all layers");
    }
  }
  const Json& scaling = At(json, "rope_scaling");
  if (!scaling.is_object()) return absl::OkStatus();
  for (const auto& [name, value] : scaling.items()) {
    if (At(rope, name.c_str()) != value) {
      return Refuse("rope_scaling", scaling,
                    absl::StrCat("it contradicts \"", key, "\""));
    }
  }
  return absl::OkStatus();
}

// Reads the rotary embedding: `rope_parameters`, as new libraries write it, or
// `rope_theta` and `rope_scaling`.
absl::Status ReadRope(const Json& json, const Family& family,
                      v1::ModelConfig& model) {
  double theta = family.rope_theta;
  RETURN_IF_ERROR(ReadNumber(json, "rope_theta", theta));
  const char* const key = At(json, "rope_parameters").is_object()
                              ? "rope_parameters"
                              : "rope_scaling";
  const Json& rope = At(json, key);
  if (!rope.is_null() && !rope.is_object()) {
    return Refuse(key, rope, "want an object or null");
  }
  if (rope.is_object()) {
    RETURN_IF_ERROR(CheckOneRope(json, key, rope));
    RETURN_IF_ERROR(RequireOrAbsent(rope, "partial_rotary_factor", 1,
                                    "islands rotate all of a head"));
    RETURN_IF_ERROR(ReadNumber(rope, "rope_theta", theta));
    const Json& type =
        At(rope, rope.contains("rope_type") ? "rope_type" : "type");
    if (type == "llama3") {
      RETURN_IF_ERROR(ReadLlama3Scaling(rope, *model.mutable_rope_scaling()));
    } else if (!type.is_null() && type != "default") {
      return Refuse(key, rope, "islands compute \"default\" and \"llama3\"");
    }
  }
  model.set_rope_theta(theta);
  return absl::OkStatus();
}

// Reads which layers have no rotary embedding.
absl::Status ReadRopeLayers(const Json& json, const Family& family,
                            v1::ModelConfig& model) {
  uint32_t interval = family.no_rope_interval;
  if (interval == 0) return absl::OkStatus();
  RETURN_IF_ERROR(ReadCount(json, "no_rope_layer_interval", interval));
  model.set_no_rope_interval(interval);
  const Json& layers = At(json, "no_rope_layers");
  for (uint32_t i = 0; i < model.layers() && !layers.is_null(); ++i) {
    // In the libraries, 1 marks a layer with the embedding.
    if (!layers.is_array() || i >= layers.size() ||
        layers[i] != static_cast<int>(HasRope(model, i))) {
      return Refuse("no_rope_layers", layers,
                    absl::StrCat("islands leave the rotary embedding out of "
                                 "every layer whose number is a multiple of "
                                 "\"no_rope_layer_interval\", ",
                                 interval));
    }
  }
  return absl::OkStatus();
}

absl::Status ReadLengths(const Json& json, const Family& family,
                         uint32_t sequence_length, v1::ModelConfig& model) {
  uint32_t longest = 0;
  RETURN_IF_ERROR(ReadCount(json, "max_position_embeddings", longest));
  if (sequence_length > longest) {
    return Refuse(
        "max_position_embeddings", longest,
        absl::StrCat("sequences of ", sequence_length, " tokens are longer"));
  }
  model.set_sequence_length(sequence_length == 0 ? longest : sequence_length);
  bool has_window =
      !family.asks_for_window || At(json, "use_sliding_window") == true;
  for (const Json& type : At(json, "layer_types")) {
    if (type == "sliding_attention") {
      has_window = true;
    } else if (type != "full_attention") {
      return Refuse("layer_types", type,
                    "islands compute \"full_attention\" only");
    }
  }
  uint32_t window = kNoWindow;
  if (has_window) {
    // The default does not replace null.
    if (!json.contains("sliding_window")) window = family.window;
    RETURN_IF_ERROR(ReadCount(json, "sliding_window", window));
  }
  if (window < model.sequence_length()) {
    return Refuse("sliding_window", window,
                  absl::StrCat("islands attend to all of a sequence, and "
                               "sequences have ",
                               model.sequence_length(), " tokens"));
  }
  return absl::OkStatus();
}

absl::Status ReadHeads(const Json& json, const Family& family,
                       v1::ModelConfig& model) {
  uint32_t kv_heads = model.heads();
  RETURN_IF_ERROR(ReadCount(json, "num_key_value_heads", kv_heads));
  model.set_kv_heads(kv_heads);
  uint32_t head_dim = family.head_dim == 0 ? model.hidden_size() / model.heads()
                                           : family.head_dim;
  RETURN_IF_ERROR(ReadCount(json, "head_dim", head_dim));
  if (uint64_t{head_dim} * model.heads() != model.hidden_size()) {
    model.set_head_dim(head_dim);
  }
  if (family.qkv_bias) model.set_qkv_bias(true);
  if (family.qk_norm) model.set_qk_norm(true);
  if (family.qk_norm_across_heads) model.set_qk_norm_across_heads(true);
  if (family.post_norm) model.set_post_norm(true);
  return absl::OkStatus();
}

absl::StatusOr<Family> FamilyOf(const v1::ModelConfig& model) {
  for (const Family& family : kFamilies) {
    if (family.qkv_bias == model.qkv_bias() &&
        family.qk_norm == model.qk_norm() &&
        family.qk_norm_across_heads == model.qk_norm_across_heads() &&
        family.post_norm == model.post_norm() &&
        (family.no_rope_interval > 0) == (model.no_rope_interval() > 0)) {
      return family;
    }
  }
  return absl::FailedPreconditionError(
      "no model of the Hugging Face libraries has this combination of "
      "model.qkv_bias, model.qk_norm, model.qk_norm_across_heads, "
      "model.post_norm and model.no_rope_interval");
}

}  // namespace

absl::StatusOr<v1::ModelConfig> ReadHuggingFaceConfig(
    absl::string_view json_text, uint32_t sequence_length) {
  ASSIGN_OR_RETURN(const Json json, ParseObject(json_text));
  ASSIGN_OR_RETURN(const Family family, FindFamily(json));
  RETURN_IF_ERROR(CheckOperations(json, family));
  const struct {
    const char* key;
    void (v1::ModelConfig::*set)(uint32_t);
  } counts[] = {
      {"vocab_size", &v1::ModelConfig::set_vocab_size},
      {"hidden_size", &v1::ModelConfig::set_hidden_size},
      {"intermediate_size", &v1::ModelConfig::set_intermediate_size},
      {"num_hidden_layers", &v1::ModelConfig::set_layers},
      {"num_attention_heads", &v1::ModelConfig::set_heads},
  };
  v1::ModelConfig model;
  for (const auto& [key, set] : counts) {
    uint32_t number = 0;
    RETURN_IF_ERROR(ReadCount(json, key, number));
    (model.*set)(number);
  }
  RETURN_IF_ERROR(ReadHeads(json, family, model));
  RETURN_IF_ERROR(ReadRope(json, family, model));
  RETURN_IF_ERROR(ReadRopeLayers(json, family, model));
  RETURN_IF_ERROR(ReadLengths(json, family, sequence_length, model));
  double epsilon = family.norm_epsilon;
  RETURN_IF_ERROR(ReadNumber(json, "rms_norm_eps", epsilon));
  model.set_norm_epsilon(epsilon);
  const Json& tied = At(json, "tie_word_embeddings");
  if (!tied.is_null() && !tied.is_boolean()) {
    return Refuse("tie_word_embeddings", tied, "want true or false");
  }
  model.set_tie_embeddings(tied.is_null() ? family.tied : tied == true);
  return model;
}

absl::StatusOr<std::string> WriteHuggingFaceConfig(
    const v1::RunConfig& config, absl::string_view torch_dtype,
    absl::string_view original) {
  const v1::ModelConfig& model = config.model();
  ASSIGN_OR_RETURN(const Family family, FamilyOf(model));
  nlohmann::ordered_json json = {
      {"architectures", {family.architecture}},
      {"model_type", family.model_type},
      {"vocab_size", model.vocab_size()},
      {"hidden_size", model.hidden_size()},
      {"intermediate_size", model.intermediate_size()},
      {"num_hidden_layers", model.layers()},
      {"num_attention_heads", model.heads()},
      {"num_key_value_heads", model.kv_heads()},
      {"head_dim", HeadDim(model)},
      {"hidden_act", "silu"},
      {"attention_bias", false},
      {"mlp_bias", false},
      {"max_position_embeddings", model.sequence_length()},
      {"rope_theta", model.rope_theta()},
      {"rope_scaling", nullptr},
      {"rms_norm_eps", model.norm_epsilon()},
      {"initializer_range", model.init_stddev()},
      {"tie_word_embeddings", model.tie_embeddings()},
      {"torch_dtype", std::string(torch_dtype)},
      // The library's defaults belong to another vocabulary.
      {"bos_token_id", nullptr},
      {"eos_token_id", nullptr},
      {"pad_token_id", nullptr},
  };
  if (family.asks_for_window) {
    json["use_sliding_window"] = false;
    json["sliding_window"] = nullptr;
  }
  if (family.no_rope_interval > 0) {
    json["no_rope_layer_interval"] = model.no_rope_interval();
    for (uint32_t i = 0; i < model.layers(); ++i) {
      json["no_rope_layers"].push_back(static_cast<int>(HasRope(model, i)));
    }
  }
  if (model.has_rope_scaling()) {
    const v1::RopeScaling& scaling = model.rope_scaling();
    json["rope_scaling"] = {
        {"rope_type", "llama3"},
        {"factor", scaling.factor()},
        {"low_freq_factor", scaling.low_frequency_factor()},
        {"high_freq_factor", scaling.high_frequency_factor()},
        {"original_max_position_embeddings", scaling.original_length()}};
  }
  if (config.data().tokenizer() == v1::DataConfig::BYTES) {
    json["bos_token_id"] = kBeginOfText;
    json["eos_token_id"] = kEndOfText;
  }
  if (!original.empty()) {
    ASSIGN_OR_RETURN(const Json before, ParseObject(original));
    for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id",
                            "max_position_embeddings"}) {
      const Json& value = At(before, key);
      if (value.is_structured() && value.size() > kMostTokenIds) {
        return Refuse(key, value, "want a number, or some");
      }
      if (before.contains(key)) json[key] = value;
    }
  }
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace causeway
