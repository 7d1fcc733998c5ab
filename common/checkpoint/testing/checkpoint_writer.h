// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Makes checkpoints for tests.
#ifndef COMMON_CHECKPOINT_TESTING_CHECKPOINT_WRITER_H_
#define COMMON_CHECKPOINT_TESTING_CHECKPOINT_WRITER_H_

#include <cstddef>

#include "absl/types/span.h"
#include "common/tensors/model_layout.h"
#include "common/tensors/safetensors.h"

namespace causeway {

// Returns a model's tensors as views of `parameters`, which are flat in layout
// order.
inline Safetensors ModelTensors(const ModelLayout& layout,
                                absl::Span<const float> parameters) {
  Safetensors contents;
  for (const TensorSpec& tensor : layout.tensors) {
    contents.tensors.push_back(
        FloatTensor(tensor.name, tensor.shape,
                    parameters.subspan(static_cast<size_t>(tensor.offset),
                                       static_cast<size_t>(tensor.size))));
  }
  return contents;
}

}  // namespace causeway

#endif  // COMMON_CHECKPOINT_TESTING_CHECKPOINT_WRITER_H_
