// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The tensors of a Llama-layout model: names, shapes, order and initial values,
// for everything that must agree on them (trainer, fragment plan, export).
//
// Initial values come from a counter-based generator in integer arithmetic, so
// that every machine makes the same bits and version 0 of a run never travels.
#ifndef COMMON_TENSORS_MODEL_LAYOUT_H_
#define COMMON_TENSORS_MODEL_LAYOUT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "proto/run_config.pb.h"

namespace causeway {

struct TensorSpec {
  // The tensor's Hugging Face Llama name, for instance
  // "model.layers.3.self_attn.q_proj.weight".
  std::string name;
  // The extents, row-major; projections are [out_features, in_features].
  std::vector<int64_t> shape;
  // The index of the transformer block, or -1 for embedding, final norm and
  // head.
  int block = -1;
  // The number of values in the tensor.
  int64_t size = 0;
  // The index of the first value in a flat vector of the whole model, in the
  // order of ModelLayout::tensors.
  int64_t offset = 0;
  // The standard deviation of the initial values. If it is 0, all of them are
  // `init_value`: 1 for gains of norms, 0 for biases.
  double init_stddev = 0;
  float init_value = 1;
};

struct ModelLayout {
  // The tensors in order: embedding; per block: input norm (without post_norm),
  // q, k, v, their biases (with qkv_bias), query and key norm (with qk_norm),
  // o, post-attention norm, gate, up, down, post-feedforward norm (with
  // post_norm); final norm; head (absent with tied embeddings).
  std::vector<TensorSpec> tensors;
  // The number of values in all tensors.
  int64_t size = 0;
  // Patterns (MatchesAny) of tensors that a checkpoint may have beside these.
  std::vector<std::string> ignored;
};

// Returns the number of values in a query, key or value head.
int64_t HeadDim(const v1::ModelConfig& config);

// Returns whether a block has the rotary embedding.
bool HasRope(const v1::ModelConfig& config, uint32_t block);

// Returns the layout of a model. `config` must have been validated
// (common/config/run_config.h), with vocab_size and kv_heads resolved.
ModelLayout MakeModelLayout(const v1::ModelConfig& config);

// Returns the number of transformer blocks.
uint32_t CountBlocks(const ModelLayout& layout);

// Writes the initial values of `tensor` from index `begin` on to `values`:
// tensor.init_value, or Gaussian with tensor.init_stddev. They depend on seed,
// tensor name and index only.
void InitializeTensor(const TensorSpec& tensor, uint64_t seed, uint64_t begin,
                      absl::Span<float> values);

// Returns the initial values of the whole model, flat in layout order.
std::vector<float> InitialParameters(const ModelLayout& layout, uint64_t seed);

}  // namespace causeway

#endif  // COMMON_TENSORS_MODEL_LAYOUT_H_
