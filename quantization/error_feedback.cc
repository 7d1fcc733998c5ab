// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "quantization/error_feedback.h"

#include "glog/logging.h"

namespace causeway {

void ErrorFeedback::Encode(uint64_t begin, absl::Span<float> values,
                           Encoder& encoder) {
  if (!is_on()) return encoder.Encode(begin, values, {});
  const size_t count = values.size();
  // A span's bounds checks would keep the compiler from using vectors.
  float* const own = values.data();
  if (!error_.empty()) {
    CHECK_LE(begin + count, error_.size());
    const float* const error = error_.data() + begin;
    for (size_t i = 0; i < count; ++i) own[i] += error[i];
  }
  if (decoded_.size() < count) decoded_.resize(count);
  encoder.Encode(begin, values, absl::MakeSpan(decoded_).subspan(0, count));
  const float* const decoded = decoded_.data();
  for (size_t i = 0; i < count; ++i) {
    own[i] = decay_ * (own[i] - decoded[i]);
  }
}

}  // namespace causeway
