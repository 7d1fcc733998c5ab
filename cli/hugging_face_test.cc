// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "cli/hugging_face.h"

#include <string>
#include <vector>

#include "common/printable.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace causeway {
namespace {

using nlohmann::json;

// The values of TinyLlama-1.1B and Llama-3.2-1B as their makers publish them.
constexpr char kTinyLlama[] = R"({
  "architectures": ["LlamaForCausalLM"], "attention_bias": false,
  "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu",
  "hidden_size": 2048, "initializer_range": 0.02, "intermediate_size": 5632,
  "max_position_embeddings": 2048, "model_type": "llama",
  "num_attention_heads": 32, "num_hidden_layers": 22,
  "num_key_value_heads": 4, "pretraining_tp": 1, "rms_norm_eps": 1e-05,
  "rope_scaling": null, "rope_theta": 10000.0, "tie_word_embeddings": false,
  "torch_dtype": "bfloat16", "use_cache": true, "vocab_size": 32000})";
constexpr char kLlama32[] = R"({
  "architectures": ["LlamaForCausalLM"], "attention_bias": false,
  "bos_token_id": 128000, "eos_token_id": 128001, "head_dim": 64,
  "hidden_act": "silu", "hidden_size": 2048, "intermediate_size": 8192,
  "max_position_embeddings": 131072, "mlp_bias": false, "model_type": "llama",
  "num_attention_heads": 32, "num_hidden_layers": 16, "num_key_value_heads": 8,
  "rms_norm_eps": 1e-05, "rope_scaling": {"factor": 32.0,
  "high_freq_factor": 4.0, "low_freq_factor": 1.0,
  "original_max_position_embeddings": 8192, "rope_type": "llama3"},
  "rope_theta": 500000.0, "tie_word_embeddings": true, "vocab_size": 128256})";

// The values of Qwen2.5-0.5B and Qwen3-0.6B.
constexpr char kQwen25[] = R"({
  "architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0,
  "bos_token_id": 151643, "eos_token_id": 151643, "hidden_act": "silu",
  "hidden_size": 896, "initializer_range": 0.02, "intermediate_size": 4864,
  "max_position_embeddings": 32768, "max_window_layers": 24,
  "model_type": "qwen2", "num_attention_heads": 14, "num_hidden_layers": 24,
  "num_key_value_heads": 2, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0,
  "sliding_window": 32768, "tie_word_embeddings": true,
  "torch_dtype": "bfloat16", "use_cache": true, "use_mrope": false,
  "use_sliding_window": false, "vocab_size": 151936})";
constexpr char kQwen3[] = R"({
  "architectures": ["Qwen3ForCausalLM"], "attention_bias": false,
  "attention_dropout": 0.0, "bos_token_id": 151643, "eos_token_id": 151645,
  "head_dim": 128, "hidden_act": "silu", "hidden_size": 1024,
  "initializer_range": 0.02, "intermediate_size": 3072,
  "max_position_embeddings": 40960, "max_window_layers": 28,
  "model_type": "qwen3", "num_attention_heads": 16, "num_hidden_layers": 28,
  "num_key_value_heads": 8, "rms_norm_eps": 1e-06, "rope_scaling": null,
  "rope_theta": 1000000, "sliding_window": null, "tie_word_embeddings": true,
  "torch_dtype": "bfloat16", "use_cache": true, "use_sliding_window": false,
  "vocab_size": 151936})";

// The values of SmolLM3-3B, without some that are its library's defaults.
constexpr char kSmolLm3[] = R"({
  "architectures": ["SmolLM3ForCausalLM"], "attention_bias": false,
  "eos_token_id": 128012, "hidden_act": "silu", "hidden_size": 2048,
  "initializer_range": 0.02, "intermediate_size": 11008,
  "max_position_embeddings": 65536, "max_window_layers": 28, "mlp_bias": false,
  "model_type": "smollm3", "no_rope_layer_interval": 4, "no_rope_layers": [
  1, 1, 1, 0, 1, 1, 1, 0, 1, 1, 1, 0, 1, 1, 1, 0, 1, 1, 1, 0, 1, 1, 1, 0,
  1, 1, 1, 0, 1, 1, 1, 0, 1, 1, 1, 0], "num_attention_heads": 16,
  "num_hidden_layers": 36, "num_key_value_heads": 4, "pad_token_id": 128004,
  "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 5000000.0,
  "sliding_window": null, "torch_dtype": "bfloat16",
  "use_sliding_window": false, "vocab_size": 128256})";

// The values of OLMo-2-0425-1B.
constexpr char kOlmo2[] = R"({
  "architectures": ["Olmo2ForCausalLM"], "attention_bias": false,
  "attention_dropout": 0.0, "eos_token_id": 100257, "hidden_act": "silu",
  "hidden_size": 2048, "initializer_range": 0.02, "intermediate_size": 8192,
  "max_position_embeddings": 4096, "model_type": "olmo2",
  "num_attention_heads": 16, "num_hidden_layers": 16,
  "num_key_value_heads": 16, "pad_token_id": 100277, "rms_norm_eps": 1e-06,
  "rope_scaling": null, "rope_theta": 500000, "tie_word_embeddings": false,
  "torch_dtype": "float32", "use_cache": false, "vocab_size": 100352})";

MATCHER_P(IsModel, text, "") {
  v1::ModelConfig model;
  *result_listener << arg.ShortDebugString();
  return google::protobuf::TextFormat::ParseFromString(text, &model) &&
         google::protobuf::util::MessageDifferencer::Equals(arg, model);
}

std::string With(const char* base, const char* key, const json& value) {
  json config = json::parse(base);
  config[key] = value;
  return config.dump();
}
std::string Without(const char* base, const char* key) {
  json config = json::parse(base);
  config.erase(key);
  return config.dump();
}

// Reads a configuration that the transformer can compute.
v1::ModelConfig Read(const std::string& config, int length = 0) {
  const absl::StatusOr<v1::ModelConfig> model =
      ReadHuggingFaceConfig(config, length);
  EXPECT_OK(model);
  return *model;
}

TEST(HuggingFaceTest, ReadsPublishedConfigurations) {
  EXPECT_THAT(Read(kTinyLlama, 0), IsModel(R"pb(
                layers: 22
                hidden_size: 2048
                intermediate_size: 5632
                heads: 32
                kv_heads: 4
                vocab_size: 32000
                sequence_length: 2048
                rope_theta: 10000
                norm_epsilon: 1e-5
                tie_embeddings: false
              )pb"));
  EXPECT_THAT(Read(kLlama32, 4096), IsModel(R"pb(
                layers: 16
                hidden_size: 2048
                intermediate_size: 8192
                heads: 32
                kv_heads: 8
                vocab_size: 128256
                sequence_length: 4096
                rope_theta: 500000
                norm_epsilon: 1e-5
                tie_embeddings: true
                rope_scaling {
                  factor: 32
                  low_frequency_factor: 1
                  high_frequency_factor: 4
                  original_length: 8192
                }
              )pb"));
  EXPECT_THAT(Read(kQwen25, 1024), IsModel(R"pb(
                layers: 24
                hidden_size: 896
                intermediate_size: 4864
                heads: 14
                kv_heads: 2
                vocab_size: 151936
                sequence_length: 1024
                rope_theta: 1000000
                norm_epsilon: 1e-6
                tie_embeddings: true
                qkv_bias: true
              )pb"));
  EXPECT_THAT(Read(kQwen3, 1024), IsModel(R"pb(
                layers: 28
                hidden_size: 1024
                intermediate_size: 3072
                heads: 16
                kv_heads: 8
                vocab_size: 151936
                sequence_length: 1024
                rope_theta: 1000000
                norm_epsilon: 1e-6
                tie_embeddings: true
                head_dim: 128
                qk_norm: true
              )pb"));
  EXPECT_THAT(Read(kSmolLm3, 1024), IsModel(R"pb(
                layers: 36
                hidden_size: 2048
                intermediate_size: 11008
                heads: 16
                kv_heads: 4
                vocab_size: 128256
                sequence_length: 1024
                rope_theta: 5000000
                norm_epsilon: 1e-6
                tie_embeddings: true
                no_rope_interval: 4
              )pb"));
  EXPECT_THAT(Read(kOlmo2, 1024), IsModel(R"pb(
                layers: 16
                hidden_size: 2048
                intermediate_size: 8192
                heads: 16
                kv_heads: 16
                vocab_size: 100352
                sequence_length: 1024
                rope_theta: 500000
                norm_epsilon: 1e-6
                tie_embeddings: false
                qk_norm: true
                qk_norm_across_heads: true
                post_norm: true
              )pb"));
}

TEST(HuggingFaceTest, ReadsBothSpellingsOfTheRotaryEmbedding) {
  json config = json::parse(kLlama32);
  const v1::ModelConfig model = Read(config.dump(), 64);
  json parameters = config["rope_scaling"];
  parameters["rope_theta"] = config["rope_theta"];
  config.erase("rope_theta");
  config.erase("rope_scaling");
  config["rope_parameters"] = parameters;
  EXPECT_THAT(Read(config.dump(), 64), IsModel(model.DebugString()));
  config["rope_parameters"].erase("rope_type");
  config["rope_parameters"]["type"] = "llama3";
  EXPECT_THAT(Read(config.dump(), 64), IsModel(model.DebugString()));
  // A "default" type stretches nothing.
  EXPECT_FALSE(Read(With(kTinyLlama, "rope_scaling", {{"type", "default"}}))
                   .has_rope_scaling());
}

TEST(HuggingFaceTest, UsesTheLibrariesDefaults) {
  EXPECT_EQ(Read(Without(kTinyLlama, "num_key_value_heads")).kv_heads(), 32);
  EXPECT_EQ(Read(Without(kTinyLlama, "rms_norm_eps")).norm_epsilon(), 1e-6);
  EXPECT_EQ(Read(Without(kOlmo2, "rms_norm_eps")).norm_epsilon(), 1e-5);
  EXPECT_EQ(Read(Without(kTinyLlama, "rope_theta")).rope_theta(), 10000);
  EXPECT_EQ(Read(Without(kSmolLm3, "rope_theta")).rope_theta(), 2e6);
  EXPECT_EQ(Read(Without(kQwen3, "head_dim")).head_dim(), 128);
  EXPECT_FALSE(
      Read(Without(kTinyLlama, "tie_word_embeddings")).tie_embeddings());
  EXPECT_THAT(Read(Without(kSmolLm3, "no_rope_layers")),
              IsModel(Read(kSmolLm3).DebugString()));
  EXPECT_EQ(
      Read(Without(kSmolLm3, "no_rope_layer_interval")).no_rope_interval(), 4);
}

// Mistral Nemo's heads together are narrower than the model.
TEST(HuggingFaceTest, HeadsMayHaveTheirOwnWidth) {
  EXPECT_EQ(Read(With(kTinyLlama, "head_dim", 128)).head_dim(), 128);
}

TEST(HuggingFaceTest, RefusesByNameWhatIslandsCannotCompute) {
  const struct {
    std::string config;
    const char* problem;
  } cases[] = {
      {With(kQwen3, "model_type", "qwen3_moe"),
       "\"model_type\" is \"qwen3_moe\""},
      {Without(kTinyLlama, "model_type"), "\"model_type\" is null"},
      {With(kTinyLlama, "hidden_act", "gelu"), "\"hidden_act\" is \"gelu\""},
      {With(kTinyLlama, "attention_bias", true), "\"attention_bias\" is true"},
      {With(kTinyLlama, "mlp_bias", true), "\"mlp_bias\" is true"},
      {With(kQwen3, "attention_bias", true), "\"attention_bias\" is true"},
      {With(kTinyLlama, "quantization_config", {{"bits", 4}}),
       "\"quantization_config\" is {\"bits\":4}"},
      {With(kTinyLlama, "rope_scaling", {{"type", "yarn"}}), "yarn"},
      {With(kTinyLlama, "rope_scaling", "yarn"), "want an object or null"},
      {With(kTinyLlama, "rope_parameters",
            {{"full_attention", {{"rope_type", "yarn"}}}}),
       "islands compute one embedding for all layers"},
      {With(With(kTinyLlama, "rope_parameters", json::object()).c_str(),
            "rope_scaling", {{"type", "yarn"}}),
       "it contradicts \"rope_parameters\""},
      {With(kTinyLlama, "rope_scaling", {{"rope_type", "llama3"}}),
       "\"original_max_position_embeddings\" is null"},
      {With(kTinyLlama, "sliding_window", 1024), "\"sliding_window\" is 1024"},
      {With(kTinyLlama, "hidden_size", -1), "\"hidden_size\" is -1"},
      {With(kTinyLlama, "num_attention_heads", 0),
       "\"num_attention_heads\" is 0"},
      {With(kTinyLlama, "vocab_size", 4294967296),
       "\"vocab_size\" is 4294967296"},
      {With(kTinyLlama, "rope_theta", "big"), "\"rope_theta\" is \"big\""},
      {With(kTinyLlama, "tie_word_embeddings", 1),
       "\"tie_word_embeddings\" is 1"},
      {Without(kTinyLlama, "intermediate_size"),
       "\"intermediate_size\" is null"},
      {With(kTinyLlama, "embedding_multiplier", 12),
       "\"embedding_multiplier\" is 12"},
      {With(kTinyLlama, "attention_multiplier", 1),
       "\"attention_multiplier\" is 1"},
      {With(kTinyLlama, "logits_scaling", 8), "\"logits_scaling\" is 8"},
      {With(kTinyLlama, "num_local_experts", 8), "\"num_local_experts\" is 8"},
      {With(kQwen3, "num_experts_per_tok", 1), "\"num_experts_per_tok\" is 1"},
      {With(kTinyLlama, "attention_out_bias", true),
       "\"attention_out_bias\" is true"},
      {With(kTinyLlama, "qkv_bias", true), "\"qkv_bias\" is true"},
      {With(kTinyLlama, "use_qk_norm", true), "\"use_qk_norm\" is true"},
      {With(kTinyLlama, "final_logit_softcapping", 30.0),
       "\"final_logit_softcapping\" is 30"},
      {With(kTinyLlama, "partial_rotary_factor", 0.5),
       "\"partial_rotary_factor\" is 0.5"},
      {With(kTinyLlama, "rope_scaling",
            {{"type", "default"}, {"partial_rotary_factor", 0.5}}),
       "\"partial_rotary_factor\" is 0.5"},
      {With(kTinyLlama, "no_rope_layers", {1, 1, 0}),
       "\"no_rope_layers\" is [1,1,0]"},
      {With(kSmolLm3, "no_rope_layer_interval", 3), "\"no_rope_layers\" is ["},
      {With(kSmolLm3, "no_rope_layers", {1, 1, 1, 0}),
       "\"no_rope_layers\" is [1,1,1,0]"},
      {With(kSmolLm3, "no_rope_layers", 4), "\"no_rope_layers\" is 4"},
      {With(kTinyLlama, "layer_types", {"full_attention", "mamba"}),
       "\"layer_types\" is \"mamba\""},
      {With(kTinyLlama, "is_causal", false), "\"is_causal\" is false"},
      {With(kTinyLlama, "architectures", {"GraniteForCausalLM"}),
       "\"architectures\" is [\"GraniteForCausalLM\"]; want "
       "[\"LlamaForCausalLM\"]"},
      {"{", "it is not JSON"},
      {"[]", "it is not a JSON object"},
  };
  for (const auto& [config, problem] : cases) {
    EXPECT_THAT(ReadHuggingFaceConfig(config, 0).status(),
                IsInvalidArgument(problem));
  }
  EXPECT_THAT(ReadHuggingFaceConfig(kTinyLlama, 2049).status(),
              IsInvalidArgument("\"max_position_embeddings\" is 2048"));
  EXPECT_OK(
      ReadHuggingFaceConfig(With(kTinyLlama, "sliding_window", 1024), 1024));
  // Features that are off, or that our families have, change nothing.
  Read(With(kTinyLlama, "residual_multiplier", 1.0));
  Read(With(kTinyLlama, "num_experts", 0));
  Read(With(kTinyLlama, "final_logit_softcapping", nullptr));
  Read(With(kQwen25, "qkv_bias", true));
  Read(With(kQwen3, "use_qk_norm", true));
  Read(With(kTinyLlama, "layer_types", {"full_attention"}));
  // Qwen's window counts only with "use_sliding_window".
  json qwen = json::parse(kQwen25);
  qwen["sliding_window"] = 1000;
  EXPECT_OK(ReadHuggingFaceConfig(qwen.dump(), 1024));
  qwen["use_sliding_window"] = true;
  EXPECT_THAT(ReadHuggingFaceConfig(qwen.dump(), 1024).status(),
              IsInvalidArgument("\"sliding_window\" is 1000"));
}

TEST(HuggingFaceTest, AWindowOfSomeLayersCounts) {
  json qwen = json::parse(kQwen25);
  qwen["sliding_window"] = 1000;
  qwen["layer_types"] = {"full_attention", "sliding_attention"};
  EXPECT_OK(ReadHuggingFaceConfig(qwen.dump(), 1000));
  EXPECT_THAT(ReadHuggingFaceConfig(qwen.dump(), 1024).status(),
              IsInvalidArgument("\"sliding_window\" is 1000"));
}

TEST(HuggingFaceTest, MistralHasAWindowUnlessItIsNull) {
  json mistral = json::parse(kTinyLlama);
  mistral["model_type"] = "mistral";
  mistral["architectures"] = json::array({"MistralForCausalLM"});
  mistral["max_position_embeddings"] = 8192;
  EXPECT_OK(ReadHuggingFaceConfig(mistral.dump(), 4096));
  EXPECT_THAT(ReadHuggingFaceConfig(mistral.dump(), 8192).status(),
              IsInvalidArgument("\"sliding_window\" is 4096"));
  mistral["sliding_window"] = nullptr;
  EXPECT_OK(ReadHuggingFaceConfig(mistral.dump(), 8192));
}

// The message shows the value, so it must be bounded and printable.
TEST(HuggingFaceTest, MessagesBoundWhatTheyQuote) {
  std::string deep = kTinyLlama;
  deep.replace(deep.find("\"llama\""), 7,
               std::string(40000, '[') + std::string(40000, ']'));
  for (const std::string& config :
       {deep, With(kTinyLlama, "model_type", std::string(1'000'000, 'x')),
        With(kTinyLlama, "\x1b]0;title\x07_bias", "\x1b[2J")}) {
    const absl::Status status = ReadHuggingFaceConfig(config, 0).status();
    EXPECT_THAT(status, IsInvalidArgument());
    EXPECT_LT(status.message().size(), 1000);
    EXPECT_EQ(Printable(status.message()), status.message());
  }
}

TEST(HuggingFaceTest, WritesWhatItReads) {
  for (const char* original :
       {kTinyLlama, kLlama32, kQwen25, kQwen3, kSmolLm3, kOlmo2}) {
    v1::RunConfig config;
    config.mutable_data()->set_tokenizer(v1::DataConfig::PRETOKENIZED);
    *config.mutable_model() = Read(original, 512);
    ASSERT_OK_AND_ASSIGN(const std::string text,
                         WriteHuggingFaceConfig(config, "bfloat16", original));
    EXPECT_THAT(Read(text, 512), IsModel(config.model().DebugString()));
    const json written = json::parse(text);
    const json before = json::parse(original);
    EXPECT_EQ(written["torch_dtype"], "bfloat16");
    for (const char* key :
         {"bos_token_id", "eos_token_id", "max_position_embeddings",
          "rope_scaling", "rope_theta", "head_dim", "architectures",
          "model_type", "use_sliding_window", "no_rope_layer_interval",
          "no_rope_layers"}) {
      if (!before.contains(key)) continue;
      EXPECT_EQ(written[key], before[key]) << key;
    }
  }
}

TEST(HuggingFaceTest, RefusesCombinationsThatNoLibraryHas) {
  v1::RunConfig config;
  *config.mutable_model() = Read(kQwen3, 512);
  v1::RunConfig with_bias = config;
  with_bias.mutable_model()->set_qkv_bias(true);
  v1::RunConfig across_heads = config;
  across_heads.mutable_model()->set_qk_norm_across_heads(true);
  v1::RunConfig post_norm = config;
  post_norm.mutable_model()->set_post_norm(true);
  config.mutable_model()->set_no_rope_interval(4);
  for (const v1::RunConfig& both :
       {with_bias, across_heads, post_norm, config}) {
    EXPECT_THAT(WriteHuggingFaceConfig(both, "float32", "").status(),
                IsFailedPrecondition("model.post_norm and"));
  }
}

TEST(HuggingFaceTest, SpecialTokensAreThoseOfTheTokenizer) {
  v1::RunConfig config;
  *config.mutable_model() = Read(kTinyLlama, 512);
  ASSERT_OK_AND_ASSIGN(std::string text,
                       WriteHuggingFaceConfig(config, "float32", ""));
  EXPECT_EQ(json::parse(text)["bos_token_id"], 256);
  EXPECT_EQ(json::parse(text)["eos_token_id"], 257);
  EXPECT_EQ(json::parse(text)["max_position_embeddings"], 512);
  config.mutable_data()->set_tokenizer(v1::DataConfig::SENTENCEPIECE);
  ASSERT_OK_AND_ASSIGN(text, WriteHuggingFaceConfig(config, "float32", ""));
  EXPECT_EQ(json::parse(text)["eos_token_id"], nullptr);
  EXPECT_THAT(WriteHuggingFaceConfig(config, "float32", "{").status(),
              IsInvalidArgument());
  // Several tokens may end a text, but not hundreds.
  EXPECT_OK(WriteHuggingFaceConfig(config, "float32",
                                   R"({"eos_token_id": [1, 2, 3]})"));
  EXPECT_THAT(WriteHuggingFaceConfig(
                  config, "float32",
                  json({{"eos_token_id", std::vector<int>(1000)}}).dump())
                  .status(),
              IsInvalidArgument("eos_token_id"));
}

}  // namespace
}  // namespace causeway
