// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Translates between a run's model and config.json, the Hugging Face libraries'
// description of a model.
#ifndef CLI_HUGGING_FACE_H_
#define CLI_HUGGING_FACE_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/run_config.pb.h"

namespace causeway {

// Returns the model that a config.json describes, for training on sequences of
// `sequence_length` tokens; 0 takes the longest that the model was made for.
// Reads Llama (2 to 3.3, SmolLM2, TinyLlama), Mistral, Qwen2 and 2.5, Qwen3,
// SmolLM3, and OLMo 2.
//   INVALID_ARGUMENT  `json` is not JSON, lacks a number, or describes a model
//                     that Causeway cannot compute: another architecture (such
//                     as a mixture of experts), biases other than Qwen2's,
//                     another activation or rotary embedding, a sliding window
//                     shorter than the sequence, or quantized weights. The
//                     message names the key and its value.
absl::StatusOr<v1::ModelConfig> ReadHuggingFaceConfig(absl::string_view json,
                                                      uint32_t sequence_length);

// Returns the config.json of a run's model for LlamaForCausalLM or, if the
// model has biases, QK-norm, blocks without rotary embedding, or norms after
// attention and MLP, Qwen2ForCausalLM, Qwen3ForCausalLM, SmolLM3ForCausalLM or
// Olmo2ForCausalLM. Tensors have the type `torch_dtype` ("float32").
// `original`, if it is not empty, is the config.json of the model that the run
// began with; special tokens and the longest sequence are taken from it. Ends
// with a newline.
//   INVALID_ARGUMENT     `original` is not JSON.
//   FAILED_PRECONDITION  no class of the libraries has all that the model has.
absl::StatusOr<std::string> WriteHuggingFaceConfig(
    const v1::RunConfig& config, absl::string_view torch_dtype,
    absl::string_view original);

}  // namespace causeway

#endif  // CLI_HUGGING_FACE_H_
