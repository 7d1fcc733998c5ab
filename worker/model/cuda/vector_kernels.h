// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Elementwise kernels over vectors: rounding, sums, SwiGLU, rotary embedding,
// AdamW, and the steps of Newton-Schulz between matrix products.
// worker/model/ops.h defines what they compute. Every thread advances by the
// grid's stride, so any number of blocks works.
#ifndef WORKER_MODEL_CUDA_VECTOR_KERNELS_H_
#define WORKER_MODEL_CUDA_VECTOR_KERNELS_H_

#include <cmath>
#include <cstdint>

#include "worker/model/cuda/device_code.h"
#include "worker/model/ops.h"

namespace causeway {

// Rounds any number of values to bf16.
static __global__ void RoundKernel(const float* from, int64_t size, Bf16* to) {
  const int64_t vectors = size / kVector;
  for (int64_t i = GlobalThread(); i < vectors; i += GlobalThreads()) {
    float values[kVector];
    LoadVector(from + i * kVector, values);
    StoreVector(values, to + i * kVector);
  }
  const int64_t rest = vectors * kVector + GlobalThread();
  if (rest < size) to[rest] = ToBf16(from[rest]);
}

static __global__ void WidenKernel(const Bf16* from, int64_t size, float* to) {
  const int64_t vectors = size / kVector;
  for (int64_t i = GlobalThread(); i < vectors; i += GlobalThreads()) {
    float values[kVector];
    LoadVector(from + i * kVector, values);
    StoreVector(values, to + i * kVector);
  }
  const int64_t rest = vectors * kVector + GlobalThread();
  if (rest < size) to[rest] = FromBf16(from[rest]);
}

// partial_sums[block] <- the block's part of the sum of the values, or of their
// squares.
template <bool kSquares>
__global__ void SumKernel(const float* values, int64_t size,
                          double* partial_sums) {
  double sum = 0;
  for (int64_t i = GlobalThread(); i < size; i += GlobalThreads()) {
    const double value = values[i];
    sum += kSquares ? value * value : value;
  }
  sum = BlockSum(sum);
  if (threadIdx.x == 0) partial_sums[blockIdx.x] = sum;
}

// total += scale * the sum of SumKernel's partial sums. One thread adds these
// few, always in the same order.
static __global__ void AddPartialSumsKernel(const double* partial_sums,
                                            int64_t size, double scale,
                                            double* total) {
  if (GlobalThread() != 0) return;
  double sum = 0;
  for (int64_t i = 0; i < size; ++i) sum += partial_sums[i];
  *total += scale * sum;
}

CAUSEWAY_DEVICE float Sigmoid(float x) { return 1 / (1 + expf(-x)); }

// Computes SwiGLU; `width` is a multiple of kVector.
static __global__ void SwiGluKernel(const Bf16* gate_up, int64_t rows,
                                    int64_t width, Bf16* output) {
  const int64_t row_vectors = width / kVector;
  for (int64_t i = GlobalThread(); i < rows * row_vectors;
       i += GlobalThreads()) {
    const int64_t row = i / row_vectors;
    const Bf16* const from =
        gate_up + 2 * row * width + (i - row * row_vectors) * kVector;
    float gate[kVector];
    float up[kVector];
    LoadVector(from, gate);
    LoadVector(from + width, up);
#pragma unroll
    for (int j = 0; j < kVector; ++j) {
      up[j] = gate[j] * Sigmoid(gate[j]) * up[j];
    }
    StoreVector(up, output + i * kVector);
  }
}

// Computes the gradient of SwiGLU. d_gate_up may be gate_up, and output may be
// d_output.
static __global__ void SwiGluBackwardKernel(const Bf16* gate_up,
                                            const Bf16* d_output, int64_t rows,
                                            int64_t width, Bf16* d_gate_up,
                                            Bf16* output) {
  const int64_t row_vectors = width / kVector;
  for (int64_t i = GlobalThread(); i < rows * row_vectors;
       i += GlobalThreads()) {
    const int64_t row = i / row_vectors;
    const int64_t at = 2 * row * width + (i - row * row_vectors) * kVector;
    float gate[kVector];
    float up[kVector];
    float d[kVector];
    LoadVector(gate_up + at, gate);
    LoadVector(gate_up + at + width, up);
    LoadVector(d_output + i * kVector, d);
#pragma unroll
    for (int j = 0; j < kVector; ++j) {
      const float sigmoid = Sigmoid(gate[j]);
      const float silu = gate[j] * sigmoid;
      const float d_gate = d[j] * up[j] * sigmoid * (1 + gate[j] - silu);
      const float d_up = d[j] * silu;
      d[j] = silu * up[j];
      gate[j] = d_gate;
      up[j] = d_up;
    }
    StoreVector(gate, d_gate_up + at);
    StoreVector(up, d_gate_up + at + width);
    StoreVector(d, output + i * kVector);
  }
}

// Rotates queries and keys. `sign` is 1, or -1 for the gradient. Half of a head
// is a multiple of kVector.
static __global__ void RopeKernel(AttentionShape shape, RopeTable table,
                                  float sign, Bf16* qkv) {
  const int64_t half = shape.head_dim / 2;
  const int64_t head_vectors = half / kVector;
  const int64_t row_vectors = shape.qk_heads() * head_vectors;
  for (int64_t i = GlobalThread(); i < shape.rows() * row_vectors;
       i += GlobalThreads()) {
    const int64_t row = i / row_vectors;
    const int64_t vector = i - row * row_vectors;
    const int64_t first = vector % head_vectors * kVector;
    Bf16* const head = qkv + row * shape.qkv_width() +
                       vector / head_vectors * shape.head_dim + first;
    const int64_t angles = row % shape.length * half + first;
    float a[kVector];
    float b[kVector];
    float cosine[kVector];
    float sine[kVector];
    LoadVector(head, a);
    LoadVector(head + half, b);
    LoadVector(table.cosine + angles, cosine);
    LoadVector(table.sine + angles, sine);
#pragma unroll
    for (int j = 0; j < kVector; ++j) {
      const float c = cosine[j];
      const float s = sign * sine[j];
      const float rotated = a[j] * c - b[j] * s;
      b[j] = b[j] * c + a[j] * s;
      a[j] = rotated;
    }
    StoreVector(a, head);
    StoreVector(b, head + half);
  }
}

struct AdamWValues {
  float parameter;
  float first_moment;
  float second_moment;
};

CAUSEWAY_DEVICE AdamWValues AdamWUpdate(const AdamWCoefficients& c,
                                        float gradient, AdamWValues old) {
  const float g = c.gradient_scale * gradient;
  const float m = c.beta1 * old.first_moment + (1 - c.beta1) * g;
  const float v = c.beta2 * old.second_moment + (1 - c.beta2) * g * g;
  const float root = std::sqrt(v) * c.inverse_sqrt_correction2;
  return {c.decay * old.parameter - c.step_size * m / (root + c.epsilon), m, v};
}

// Updates kWidth values at a time: 1, or 4 in arrays that are aligned to 16
// bytes. Without kEstimate, `to` is `parameters` and the moments are updated,
// too. With kEstimate only `to` is written, which may be `gradients`.
template <bool kEstimate, int kWidth>
__global__ void AdamWKernel(AdamWCoefficients coefficients,
                            const float* gradients, int64_t size,
                            const float* parameters, float* first_moment,
                            float* second_moment, float* to) {
  using Vector = Floats<kWidth>;
  for (int64_t i = GlobalThread(); i < size / kWidth; i += GlobalThreads()) {
    const auto g = reinterpret_cast<const Vector*>(gradients)[i];
    auto p = reinterpret_cast<const Vector*>(parameters)[i];
    auto m = reinterpret_cast<const Vector*>(first_moment)[i];
    auto v = reinterpret_cast<const Vector*>(second_moment)[i];
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      const AdamWValues updated = AdamWUpdate(
          coefficients, g.value[j], {p.value[j], m.value[j], v.value[j]});
      p.value[j] = updated.parameter;
      m.value[j] = updated.first_moment;
      v.value[j] = updated.second_moment;
    }
    reinterpret_cast<Vector*>(to)[i] = p;
    if constexpr (!kEstimate) {
      reinterpret_cast<Vector*>(first_moment)[i] = m;
      reinterpret_cast<Vector*>(second_moment)[i] = v;
    }
  }
}

static __global__ void LinearCombinationKernel(float a, const float* x, float b,
                                               const float* y, int64_t size,
                                               float* to) {
  for (int64_t i = GlobalThread(); i < size; i += GlobalThreads()) {
    to[i] = a * x[i] + b * y[i];
  }
}

// to <- values / (norm + 1e-7), rounded to bf16; the squared norm is the sum of
// SumKernel's `parts`. Every block adds them for itself.
static __global__ void NormalizeKernel(const double* squares, int64_t parts,
                                       const float* values, int64_t size,
                                       Bf16* to) {
  double sum = 0;
  for (int64_t i = threadIdx.x; i < parts; i += blockDim.x) sum += squares[i];
  const auto norm = std::sqrt(static_cast<float>(BlockSum(sum)));
  const float factor = 1 / (norm + 1e-7f);
  for (int64_t i = GlobalThread(); i < size; i += GlobalThreads()) {
    to[i] = ToBf16(factor * values[i]);
  }
}

// square <- a I + b gram + c square; both are [size, size].
static __global__ void QuinticKernel(Quintic quintic, const Bf16* gram,
                                     int64_t size, Bf16* square) {
  for (int64_t i = GlobalThread(); i < size * size; i += GlobalThreads()) {
    const float identity = i / size == i % size ? quintic.a : 0;
    square[i] = ToBf16(identity + quintic.b * FromBf16(gram[i]) +
                       quintic.c * FromBf16(square[i]));
  }
}

}  // namespace causeway

#endif  // WORKER_MODEL_CUDA_VECTOR_KERNELS_H_
