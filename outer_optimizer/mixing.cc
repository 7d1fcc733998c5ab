// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "outer_optimizer/mixing.h"

#include <algorithm>
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

void Mix(absl::Span<const float> anchor, float mixing,
         absl::Span<float> parameters) {
  CHECK_GE(mixing, 0.0f);
  CHECK_LE(mixing, 1.0f);
  CHECK_EQ(anchor.size(), parameters.size());
  if (mixing == 1) return;
  if (mixing == 0) {
    // Copy, because in the formula 0 * x would turn -0 into 0 and infinity into
    // NaN.
    std::copy(anchor.begin(), anchor.end(), parameters.begin());
    return;
  }
  const float rest = 1 - mixing;
  for (size_t i = 0; i < parameters.size(); ++i) {
    parameters[i] = mixing * parameters[i] + rest * anchor[i];
  }
}

}  // namespace causeway
