// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// outer_optimizer/mixing.h as kernels, bit for bit. Every thread goes on at a
// grid's stride, so any number of blocks will do.
#ifndef WORKER_REPLICA_DEVICE_MIXING_KERNELS_H_
#define WORKER_REPLICA_DEVICE_MIXING_KERNELS_H_

#include <cstdint>

#include "worker/model/cuda/device_code.h"

namespace causeway {

// Four values, which a thread reads and writes at once.
struct alignas(16) MixedQuad {
  float value[4];
};

CAUSEWAY_DEVICE float Mixed(float anchor, float mixing, float value) {
  // Not by the formula: 0 * x would turn -0 into 0 and infinity into NaN.
  if (mixing == 0) return anchor;
  if (mixing == 1) return value;
  return mixing * value + (1 - mixing) * anchor;
}

// values <- combine(other, values), for arrays aligned to 16 bytes.
template <typename Combine>
CAUSEWAY_DEVICE void CombineAll(const float* other, int64_t size, float* values,
                                const Combine& combine) {
  for (int64_t i = GlobalThread(); i < size / 4; i += GlobalThreads()) {
    const MixedQuad from = reinterpret_cast<const MixedQuad*>(other)[i];
    MixedQuad to = reinterpret_cast<const MixedQuad*>(values)[i];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      to.value[j] = combine(from.value[j], to.value[j]);
    }
    reinterpret_cast<MixedQuad*>(values)[i] = to;
  }
  const int64_t rest = size / 4 * 4 + GlobalThread();
  if (rest < size) values[rest] = combine(other[rest], values[rest]);
}

struct MixCombine {
  float mixing;
  CAUSEWAY_DEVICE float operator()(float anchor, float value) const {
    return Mixed(anchor, mixing, value);
  }
};

struct RebaseCombine {
  CAUSEWAY_DEVICE float operator()(float change, float value) const {
    return value + change;
  }
};

CAUSEWAY_KERNEL void MixKernel(const float* anchor, float mixing, int64_t size,
                               float* values) {
  CombineAll(anchor, size, values, MixCombine{mixing});
}

CAUSEWAY_KERNEL void RebaseKernel(const float* change, int64_t size,
                                  float* values) {
  CombineAll(change, size, values, RebaseCombine{});
}

}  // namespace causeway

#endif  // WORKER_REPLICA_DEVICE_MIXING_KERNELS_H_
