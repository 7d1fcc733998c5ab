// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Error feedback on the sender: what the encoding of one contribution loses is
// added to the next.
//
//   x_t = values_t + e_t      sent: encode(x_t)
//   e_{t+1} = decay * (x_t - decode(encode(x_t)))     if x_t was merged
//   e_{t+1} = e_t                                     if it was not
//
// With decay 1 the sum of what was decoded and the error add up to the sum of
// the values, so that formats too coarse for single contributions still follow
// them over time. A decay below 1 forgets old errors.
//
// Sources: Seide et al., "1-Bit Stochastic Gradient Descent" (Interspeech
// 2014); Karimireddy et al., arXiv 1901.09847. decay 0.95 in SparseLoCo (arXiv
// 2508.15706).
#ifndef QUANTIZATION_ERROR_FEEDBACK_H_
#define QUANTIZATION_ERROR_FEEDBACK_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "quantization/codec.h"

namespace causeway {

// The error of the contributions to one fragment. For one thread at a time.
class ErrorFeedback {
 public:
  // `decay` is in (0, 1].
  explicit ErrorFeedback(float decay) : decay_(decay) {}

  // Encodes values [begin, begin + values.size()) and the error that belongs to
  // them, as Encoder::Encode(). Leaves in `values` the error that they would
  // leave in turn: keep it until it is known whether they were merged.
  void Encode(uint64_t begin, absl::Span<float> values, Encoder& encoder);

  // The contribution was merged that left `error`, whole.
  void SetError(std::vector<float> error) { error_ = std::move(error); }

 private:
  const float decay_;
  // Empty until the first contribution was merged.
  std::vector<float> error_;
  std::vector<float> decoded_;
};

}  // namespace causeway

#endif  // QUANTIZATION_ERROR_FEEDBACK_H_
