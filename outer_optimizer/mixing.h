// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// What an island does with one fragment: takes its pseudo-gradient, and applies
// the update that comes back. All spans of a call have the same size. Pure
// functions; element i of the result depends on element i of the inputs only.
//
// The anchor follows the coordinator's parameters bit for bit, because both
// make the same fp32 additions of the same decoded updates.
//
// Sources: DiLoCo (Douillard et al., arXiv 2311.08105), algorithm 1; mixing as
// in Streaming DiLoCo (arXiv 2501.18512), equation 3.
#ifndef OUTER_OPTIMIZER_MIXING_H_
#define OUTER_OPTIMIZER_MIXING_H_

#include "absl/types/span.h"

namespace causeway {

// pseudo_gradient = anchor - parameters: OLD minus NEW, so that it points the
// way a gradient does. May be the memory of either input.
void PseudoGradient(absl::Span<const float> anchor,
                    absl::Span<const float> parameters,
                    absl::Span<float> pseudo_gradient);

// For an island whose contribution is part of the update:
//   anchor += update; parameters = mixing * parameters + (1 - mixing) * anchor.
// `mixing` (alpha) is in [0, 1]. 0 gives exactly the bits of the anchor; 1
// leaves the parameters exactly as they are.
void ApplyUpdateMixed(absl::Span<const float> update, float mixing,
                      absl::Span<float> anchor, absl::Span<float> parameters);

// For an island whose contribution is not part of it (it came late, or joined
// later): anchor += update; parameters += update. What the island has learnt
// since its old anchor stays, and is part of its next contribution.
void ApplyUpdateRebased(absl::Span<const float> update,
                        absl::Span<float> anchor, absl::Span<float> parameters);

}  // namespace causeway

#endif  // OUTER_OPTIMIZER_MIXING_H_
