// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/collective/rounded_values.h"

#include "glog/logging.h"
#include "quantization/formats/dense_kernels_cpu.h"

namespace causeway {

void RoundedValues::Begin(absl::Span<const float> values) {
  values_ = values.data();
  if (rounded_.size() < values.size() * kRoundedBytes) {
    rounded_.resize(values.size() * kRoundedBytes);
  }
}

absl::Span<char> RoundedValues::RoomOf(absl::Span<const float> part) {
  if (part.empty()) return {};
  return absl::MakeSpan(rounded_).subspan(
      static_cast<size_t>(part.data() - values_) * kRoundedBytes,
      part.size() * kRoundedBytes);
}

absl::Span<const char> RoundedValues::Round(absl::Span<const float> part) {
  const absl::Span<char> room = RoomOf(part);
  EncodeBf16(part.data(), part.size(), room.data());
  return room;
}

void RoundedValues::Restore(absl::Span<float> part) {
  DecodeBf16(RoomOf(part).data(), part.size(), part.data());
}

void AddRounded(absl::Span<const char> rounded, absl::Span<float> sum) {
  CHECK_EQ(rounded.size(), sum.size() * kRoundedBytes);
  DecodeAccumulateBf16(rounded.data(), sum.size(), 1, sum.data());
}

}  // namespace causeway
