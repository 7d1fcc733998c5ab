// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "outer_optimizer/mixing.h"

#include <cstddef>

#include "glog/logging.h"

namespace causeway {

void PseudoGradient(absl::Span<const float> anchor,
                    absl::Span<const float> parameters,
                    absl::Span<float> pseudo_gradient) {
  CHECK_EQ(anchor.size(), parameters.size());
  CHECK_EQ(anchor.size(), pseudo_gradient.size());
  for (size_t i = 0; i < anchor.size(); ++i) {
    pseudo_gradient[i] = anchor[i] - parameters[i];
  }
}

void Rebase(absl::Span<const float> update, absl::Span<float> values) {
  CHECK_EQ(update.size(), values.size());
  for (size_t i = 0; i < values.size(); ++i) values[i] += update[i];
}

void Mix(absl::Span<const float> anchor, absl::Span<const float> snapshot,
         absl::Span<float> parameters) {
  CHECK_EQ(anchor.size(), parameters.size());
  CHECK_EQ(snapshot.size(), parameters.size());
  for (size_t i = 0; i < parameters.size(); ++i) {
    parameters[i] = anchor[i] + (parameters[i] - snapshot[i]);
  }
}

}  // namespace causeway
