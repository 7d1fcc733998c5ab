// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The angles of the rotary embedding (Su et al. 2021), stretched as Llama 3.1
// does if the configuration says so.
#ifndef WORKER_MODEL_ROPE_ANGLES_H_
#define WORKER_MODEL_ROPE_ANGLES_H_

#include <vector>

#include "proto/run_config.pb.h"

namespace causeway {

// The arrays of a RopeTable (ops.h): [sequence_length][head_dim / 2] each.
struct RopeAngles {
  std::vector<float> cosine;
  std::vector<float> sine;
};

// Returns the angles of a model whose configuration is valid.
RopeAngles MakeRopeAngles(const v1::ModelConfig& config);

}  // namespace causeway

#endif  // WORKER_MODEL_ROPE_ANGLES_H_
