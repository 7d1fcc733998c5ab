// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// A rank's sum of the gradients of its micro-batches: in fp32 or, if
// activations are bf16, in bf16 (GradientSum). Communication is in fp32 in
// either case.
#ifndef WORKER_TRAINING_ACCUMULATED_GRADIENTS_H_
#define WORKER_TRAINING_ACCUMULATED_GRADIENTS_H_

#include <cstdint>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/status_macros.h"
#include "worker/model/device_array.h"
#include "worker/model/ops.h"

namespace causeway {

// Returns whether gradients are summed in bf16: if `wanted`, and if activations
// are bf16.
inline bool AccumulatesInBf16(bool wanted, const Ops& ops) {
  return wanted && ops.activation_bytes() == 2;
}

// Belongs to the thread that uses its Ops.
class AccumulatedGradients {
 public:
  AccumulatedGradients() = default;

  // Creates the gradients of a model of `size` values, which are zero. They
  // take 4 bytes per value, or 2 in bf16. `ops` outlives the object.
  // RESOURCE_EXHAUSTED: out of memory.
  static absl::StatusOr<AccumulatedGradients> Create(bool bf16, int64_t size,
                                                     Ops* ops) {
    AccumulatedGradients gradients;
    gradients.ops_ = ops;
    gradients.size_ = size;
    gradients.bf16_ = AccumulatesInBf16(bf16, *ops);
    ASSIGN_OR_RETURN(gradients.memory_,
                     DeviceArray<float>::Create(
                         ops, gradients.bf16_ ? (size + 1) / 2 : size));
    return gradients;
  }

  bool is_bf16() const { return bf16_; }

  // Returns the sum, to which gradients can be added.
  GradientSum sum() {
    return bf16_ ? GradientSum::Bf16(memory_.data())
                 : GradientSum(memory_.data());
  }
  void Clear() { ops_->Zero(memory_.size(), memory_.data()); }

  // to[0, size) <- the sum.
  void CopyTo(float* to) const {
    if (bf16_) {
      ops_->WidenActivations(memory_.data(), size_, to);
    } else {
      ops_->Copy(memory_.data(), size_, to);
    }
  }
  // Like CopyTo, but leaves the sum unspecified.
  void MoveTo(DeviceArray<float>& to) {
    if (bf16_) {
      CopyTo(to.data());
    } else {
      std::swap(memory_, to);
    }
  }
  // Returns the sum in fp32: its own memory if that is fp32, or else a copy in
  // `room`, which must have `size` values.
  absl::Span<float> InFp32(DeviceArray<float>& room) {
    if (bf16_) CopyTo(room.data());
    DeviceArray<float>& values = bf16_ ? room : memory_;
    return absl::MakeSpan(values.data(), values.size());
  }

 private:
  Ops* ops_ = nullptr;
  int64_t size_ = 0;
  bool bf16_ = false;
  DeviceArray<float> memory_;
};

}  // namespace causeway

#endif  // WORKER_TRAINING_ACCUMULATED_GRADIENTS_H_
