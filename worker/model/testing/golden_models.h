// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The small models of tests/reference/make_llama_golden.py, with the losses,
// logits and gradients that PyTorch computes in double precision.
#ifndef WORKER_MODEL_TESTING_GOLDEN_MODELS_H_
#define WORKER_MODEL_TESTING_GOLDEN_MODELS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/tensors/model_layout.h"
#include "proto/run_config.pb.h"

namespace causeway {

// The stream of tokens that make_llama_golden.py uses.
std::vector<int32_t> TokenStream(int64_t size, int64_t vocab_size);

// `sequences` sequences of that stream.
struct Batch {
  Batch(const v1::ModelConfig& config, int64_t sequences);
  std::vector<int32_t> tokens;
  std::vector<int32_t> targets;
};

struct GoldenCase {
  struct Gradient {
    std::string tensor;
    double norm = 0;
    std::map<int64_t, double> values;
  };
  std::string name;
  v1::ModelConfig config;
  int64_t batch = 0;
  double loss = 0;
  // The logits of the first sequence's last position.
  std::vector<double> logits;
  std::vector<Gradient> gradients;
};

// Returns the models, in the order of their names. Errors of
// SafetensorsFile::Open and GoldenValues.
absl::StatusOr<std::vector<GoldenCase>> ReadGolden();

// Returns the script's parameters: initial values, with gains that differ from
// one and biases that differ from zero.
std::vector<float> GoldenParameters(const ModelLayout& layout);

}  // namespace causeway

#endif  // WORKER_MODEL_TESTING_GOLDEN_MODELS_H_
