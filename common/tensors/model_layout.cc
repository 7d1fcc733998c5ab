// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/tensors/model_layout.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "glog/logging.h"

namespace causeway {
namespace {

// The finalizer of SplitMix64 (Steele et al., "Fast splittable pseudorandom
// number generators"): a bijection of 64-bit words that passes for random.
uint64_t Mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// FNV-1a; it only has to distinguish the tensors of one model.
uint64_t HashName(absl::string_view name) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : name) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  }
  return hash;
}

// Nearly Gaussian with mean 0 and variance 1: the sum of twelve 16-bit uniforms
// (Irwin-Hall), exact in integers and rounded once.
float StandardNormal(uint64_t key, uint64_t index) {
  int64_t sum = 0;
  for (uint64_t word = 0; word < 3; ++word) {
    uint64_t bits = Mix(key ^ Mix(3 * index + word));
    for (int i = 0; i < 4; ++i, bits >>= 16) sum += bits & 0xffff;
  }
  // Each uniform is (u + 1/2) / 2^16, so the mean of the sum is 6.
  const int64_t centred = 2 * sum + 12 - 12 * 65536;
  return static_cast<float>(centred) * 0x1p-17f;
}

void Append(std::string name, std::vector<int64_t> shape, int block,
            double init_stddev, ModelLayout& layout, float init_value = 1) {
  TensorSpec tensor{.name = std::move(name),
                    .shape = std::move(shape),
                    .block = block,
                    .size = 1,
                    .offset = layout.size,
                    .init_stddev = init_stddev,
                    .init_value = init_value};
  for (const int64_t extent : tensor.shape) tensor.size *= extent;
  layout.size += tensor.size;
  layout.tensors.push_back(std::move(tensor));
}

}  // namespace

int64_t HeadDim(const v1::ModelConfig& config) {
  if (config.head_dim() != 0) return config.head_dim();
  return int64_t{config.hidden_size()} / config.heads();
}

bool HasRope(const v1::ModelConfig& config, uint32_t block) {
  const uint32_t interval = config.no_rope_interval();
  return interval == 0 || (block + 1) % interval != 0;
}

ModelLayout MakeModelLayout(const v1::ModelConfig& config) {
  const int64_t hidden = config.hidden_size();
  const int64_t intermediate = config.intermediate_size();
  const int64_t vocab = config.vocab_size();
  const int64_t head_dim = HeadDim(config);
  const int64_t query_width = head_dim * config.heads();
  const int64_t kv_width = head_dim * config.kv_heads();
  CHECK_GT(vocab, 0) << "vocab_size must be resolved before the layout";
  CHECK_GT(kv_width, 0) << "kv_heads must be resolved before the layout";

  const double stddev = config.init_stddev();
  const double residual_stddev = stddev / std::sqrt(2.0 * config.layers());
  // Some old checkpoints hold the rotary frequencies, which follow from the
  // configuration.
  ModelLayout layout{.ignored = {"*.rotary_emb.inv_freq"}};
  Append("model.embed_tokens.weight", {vocab, hidden}, -1, stddev, layout);
  for (int block = 0; block < static_cast<int>(config.layers()); ++block) {
    const std::string prefix = absl::StrCat("model.layers.", block, ".");
    const auto add = [&](absl::string_view name, std::vector<int64_t> shape,
                         double init_stddev) {
      Append(absl::StrCat(prefix, name, ".weight"), std::move(shape), block,
             init_stddev, layout);
    };
    const auto add_bias = [&](absl::string_view name, int64_t width) {
      Append(absl::StrCat(prefix, name, ".bias"), {width}, block,
             /*init_stddev=*/0, layout, /*init_value=*/0);
    };
    if (!config.post_norm()) add("input_layernorm", {hidden}, 0);
    add("self_attn.q_proj", {query_width, hidden}, stddev);
    add("self_attn.k_proj", {kv_width, hidden}, stddev);
    add("self_attn.v_proj", {kv_width, hidden}, stddev);
    if (config.qkv_bias()) {
      add_bias("self_attn.q_proj", query_width);
      add_bias("self_attn.k_proj", kv_width);
      add_bias("self_attn.v_proj", kv_width);
    }
    if (config.qk_norm()) {
      const bool across = config.qk_norm_across_heads();
      add("self_attn.q_norm", {across ? query_width : head_dim}, 0);
      add("self_attn.k_norm", {across ? kv_width : head_dim}, 0);
    }
    add("self_attn.o_proj", {hidden, query_width}, residual_stddev);
    add("post_attention_layernorm", {hidden}, 0);
    add("mlp.gate_proj", {intermediate, hidden}, stddev);
    add("mlp.up_proj", {intermediate, hidden}, stddev);
    add("mlp.down_proj", {hidden, intermediate}, residual_stddev);
    if (config.post_norm()) add("post_feedforward_layernorm", {hidden}, 0);
  }
  Append("model.norm.weight", {hidden}, -1, 0, layout);
  if (!config.tie_embeddings()) {
    Append("lm_head.weight", {vocab, hidden}, -1, stddev, layout);
  }
  return layout;
}

uint32_t CountBlocks(const ModelLayout& layout) {
  int blocks = 0;
  for (const TensorSpec& tensor : layout.tensors) {
    blocks = std::max(blocks, tensor.block + 1);
  }
  return static_cast<uint32_t>(blocks);
}

void InitializeTensor(const TensorSpec& tensor, uint64_t seed, uint64_t begin,
                      absl::Span<float> values) {
  CHECK_LE(begin + values.size(), static_cast<uint64_t>(tensor.size))
      << tensor.name;
  if (tensor.init_stddev == 0) {
    for (float& value : values) value = tensor.init_value;
    return;
  }
  const uint64_t key = Mix(Mix(seed) ^ HashName(tensor.name));
  const float stddev = static_cast<float>(tensor.init_stddev);
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = stddev * StandardNormal(key, begin + i);
  }
}

std::vector<float> InitialParameters(const ModelLayout& layout, uint64_t seed) {
  std::vector<float> parameters(static_cast<size_t>(layout.size));
  for (const TensorSpec& tensor : layout.tensors) {
    InitializeTensor(tensor, seed, /*begin=*/0,
                     absl::MakeSpan(parameters)
                         .subspan(static_cast<size_t>(tensor.offset),
                                  static_cast<size_t>(tensor.size)));
  }
  return parameters;
}

}  // namespace causeway
