// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#ifndef WORKER_MODEL_TESTING_SMALL_MODEL_H_
#define WORKER_MODEL_TESTING_SMALL_MODEL_H_

#include "proto/run_config.pb.h"

namespace causeway {

// Returns the model of tests/reference/make_adamw_golden.py.
inline v1::ModelConfig SmallModel() {
  v1::ModelConfig config;
  config.set_layers(1);
  config.set_hidden_size(6);
  config.set_intermediate_size(5);
  config.set_heads(3);
  config.set_kv_heads(3);
  config.set_vocab_size(7);
  config.set_sequence_length(4);
  config.set_init_stddev(0.5);
  return config;
}

}  // namespace causeway

#endif  // WORKER_MODEL_TESTING_SMALL_MODEL_H_
