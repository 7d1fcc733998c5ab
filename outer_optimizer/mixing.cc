// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "outer_optimizer/mixing.h"

#include <cstddef>

#include "glog/logging.h"
#include "outer_optimizer/outer_kernels.h"

namespace causeway {

// The loops run over pointers: a span's bounds checks keep the compiler from
// using vectors.

void PseudoGradient(absl::Span<const float> anchor,
                    absl::Span<const float> parameters,
                    absl::Span<float> pseudo_gradient) {
  CHECK_EQ(anchor.size(), parameters.size());
  CHECK_EQ(anchor.size(), pseudo_gradient.size());
  const float* const old = anchor.data();
  const float* const trained = parameters.data();
  float* const out = pseudo_gradient.data();
  for (size_t i = 0; i < anchor.size(); ++i) out[i] = old[i] - trained[i];
}

void NextAnchor(absl::Span<const float> anchor, absl::Span<float> update,
                absl::Span<float> new_anchor) {
  CHECK_EQ(update.size(), anchor.size());
  CHECK_EQ(new_anchor.size(), anchor.size());
  AdvanceAnchor(anchor.data(), update.data(), new_anchor.data(), anchor.size());
  FlushStreams();
}

void Assign(absl::Span<const float> anchor, absl::Span<float> parameters) {
  CHECK_EQ(parameters.size(), anchor.size());
  CopyState(anchor.data(), parameters.data(), anchor.size());
  FlushStreams();
}

void Mix(absl::Span<const float> anchor, absl::Span<const float> trained_from,
         absl::Span<float> parameters) {
  CHECK_EQ(anchor.size(), parameters.size());
  CHECK_EQ(trained_from.size(), parameters.size());
  const float* const merged = anchor.data();
  const float* const base = trained_from.data();
  float* const out = parameters.data();
  for (size_t i = 0; i < parameters.size(); ++i) {
    out[i] = merged[i] + (out[i] - base[i]);
  }
}

}  // namespace causeway
