// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Error feedback on the sender: the encoding error of one contribution is added
// to the next one.
//
//   x_t = values_t + e_t      sent: encode(x_t)
//   e_{t+1} = decay * (x_t - decode(encode(x_t)))     if x_t was merged
//   e_{t+1} = e_t                                     if it was not
//
// With decay 1, the decoded values and the error add up to the sum of all
// values, so that even formats too coarse for single contributions follow them
// over time. A decay below 1 forgets old errors.
//
// Sources: Seide et al., "1-Bit Stochastic Gradient Descent" (Interspeech
// 2014); Karimireddy et al., arXiv 1901.09847. SparseLoCo uses decay 0.95
// (arXiv 2508.15706).
#ifndef QUANTIZATION_ERROR_FEEDBACK_H_
#define QUANTIZATION_ERROR_FEEDBACK_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/os/huge_pages.h"
#include "quantization/codec.h"

namespace causeway {

// The error of the contributions to one fragment. One thread at a time may use
// it.
class ErrorFeedback {
 public:
  // `decay` is in [0, 1]; 0 turns error feedback off.
  explicit ErrorFeedback(float decay) : decay_(decay) {}

  bool is_on() const { return decay_ > 0; }

  // Encodes values [begin, begin + values.size()) plus their error, as
  // Encoder::Encode(). Replaces `values` by the new error, if error feedback is
  // on; keep it until it is known whether the contribution was merged.
  void Encode(uint64_t begin, absl::Span<float> values, Encoder& encoder);

  // Records that the contribution with the new error `error`, for the whole
  // fragment, was merged.
  void SetError(LargeVector<float> error) { error_ = std::move(error); }

 private:
  const float decay_;
  // Empty until the first contribution is merged.
  LargeVector<float> error_;
  std::vector<float> decoded_;
};

}  // namespace causeway

#endif  // QUANTIZATION_ERROR_FEEDBACK_H_
