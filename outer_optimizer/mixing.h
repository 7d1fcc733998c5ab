// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The island's operations on one fragment: computing its pseudo-gradient, and
// applying updates. All spans of a call have the same size. Pure functions;
// element i of the result depends only on element i of the inputs.
//
// The anchor follows the coordinator's parameters bit for bit, because both
// make the same fp32 additions of the same decoded updates.
//
// Source: DiLoCo (Douillard et al., arXiv 2311.08105), algorithm 1. Streaming
// DiLoCo (arXiv 2501.18512, section 2.3) instead mixes the merged parameters
// with local ones by a factor, and so loses training that was never sent.
#ifndef OUTER_OPTIMIZER_MIXING_H_
#define OUTER_OPTIMIZER_MIXING_H_

#include "absl/types/span.h"

namespace causeway {

// pseudo_gradient = anchor - parameters: OLD minus NEW, so that it has a
// gradient's direction. The result may overwrite either input.
void PseudoGradient(absl::Span<const float> anchor,
                    absl::Span<const float> parameters,
                    absl::Span<float> pseudo_gradient);

// Makes the next anchor, new_anchor = anchor + update, and leaves it in
// `update`, too, so that it can be hashed in the cache.
void NextAnchor(absl::Span<const float> anchor, absl::Span<float> update,
                absl::Span<float> new_anchor);

// Copies a new anchor to parameters that have not changed since they were sent.
void Assign(absl::Span<const float> anchor, absl::Span<float> parameters);

// Applies an update: parameters = anchor + (parameters - trained_from), with
// the new anchor. The training since `trained_from` stays, and is part of the
// next contribution. If the update contains the island's contribution,
// `trained_from` is the parameters as sent. Otherwise (the contribution came
// late, or the island joined later) it is the old anchor, since none of the
// training is merged yet: the island rebases.
//
// Parameters that equal `trained_from` become the anchor, bit for bit except
// for signs of zeros.
void Mix(absl::Span<const float> anchor, absl::Span<const float> trained_from,
         absl::Span<float> parameters);

}  // namespace causeway

#endif  // OUTER_OPTIMIZER_MIXING_H_
