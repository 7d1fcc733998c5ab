// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// quantization/block_format.h on NVIDIA GPUs: an island's pseudo-gradient is
// encoded where it is made, and updates are decoded where they are applied, so
// that only encoded bytes cross to the host. Bit-identical to
// quantization/block_reference.h; a NaN stays a NaN, but may have other bits.
//
//   cudaStream_t stream = ...;
//   RETURN_IF_ERROR(EncodeDifferenceCuda(spec, anchor, parameters, values,
//                                        encoded, stream));
//   cudaMemcpyAsync(host, encoded, bytes, cudaMemcpyDeviceToHost, stream);
//
// All formats of quantization/block_format.h, with nearest or stochastic
// rounding, and error feedback. There is no entropy coding and no ECQ on GPUs.
//
// `encoded` is a whole encoding of strips (quantization/strip_layout.h), that
// is codec.h's MaxEncodedBytes() bytes; a part of one, if it begins with a
// strip and ends with a strip or the vector, is the encoding of its values. All
// pointers are to memory of the current device (or to what it can reach: pinned
// host memory works, at the speed of the bus) and aligned to 16 bytes. Arrays
// of one call do not overlap. They stay alive and untouched until the stream
// has come past the call.
//
// Calls only put one kernel on `stream`: they neither allocate nor wait, may be
// captured in a CUDA graph, and cost no memory of the device but their
// arguments. Each kernel goes over memory once. No values: nothing to do.
//
// Errors: INVALID_ARGUMENT for an unknown block size, a misaligned pointer or
// random numbers that do not begin with a strip; otherwise what
// common/cuda_status.h makes of a failed launch. What a kernel meets while it
// runs is reported by a later call for the same device, as always with CUDA.
// Encodings from elsewhere are checked beforehand (Decoder::CheckFinite()); a
// bad one decodes to NaN or infinities, but never reads or writes outside the
// arrays. Thread-safe.
#ifndef QUANTIZATION_CUDA_KERNELS_CUDA_H_
#define QUANTIZATION_CUDA_KERNELS_CUDA_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "absl/status/status.h"
#include "quantization/cuda/block_units.h"

namespace causeway {

// Of `values`, and of anchor - parameters (a pseudo-gradient).
absl::Status EncodeCuda(const BlockSpec& spec, const float* values,
                        uint64_t count, char* encoded, cudaStream_t stream,
                        const BlockRounding& rounding = {});
absl::Status EncodeDifferenceCuda(const BlockSpec& spec, const float* anchor,
                                  const float* parameters, uint64_t count,
                                  char* encoded, cudaStream_t stream,
                                  const BlockRounding& rounding = {});

// The same with error feedback, of x = anchor - parameters + error, where
// `error` is null as long as there is none. Writes what the next contribution
// is to be given as `error` if this one was merged:
//   next_error = decay * (x - decoded)
// with decay in (0, 1], or INVALID_ARGUMENT. The bits are those of
// quantization/error_feedback.h.
absl::Status EncodeWithFeedbackCuda(const BlockSpec& spec, const float* anchor,
                                    const float* parameters, const float* error,
                                    float decay, uint64_t count, char* encoded,
                                    float* next_error, cudaStream_t stream,
                                    const BlockRounding& rounding = {});

absl::Status DecodeCuda(const BlockSpec& spec, const char* encoded,
                        uint64_t count, float* values, cudaStream_t stream);

// accumulator[i] += weight * decoded[i], rounded as Accumulate() of
// quantization/reference.h.
absl::Status DecodeAccumulateCuda(const BlockSpec& spec, const char* encoded,
                                  uint64_t count, float weight,
                                  float* accumulator, cudaStream_t stream);

// An island's update, with the words of outer_optimizer/mixing.h. Either its
// contribution is part of it:
//   anchor += decoded; parameters = mixing * parameters + (1 - mixing) * anchor
// with mixing (alpha) in [0, 1], or INVALID_ARGUMENT; or it is not:
//   anchor += decoded; parameters += decoded
absl::Status DecodeMixCuda(const BlockSpec& spec, const char* encoded,
                           uint64_t count, float mixing, float* anchor,
                           float* parameters, cudaStream_t stream);
absl::Status DecodeRebaseCuda(const BlockSpec& spec, const char* encoded,
                              uint64_t count, float* anchor, float* parameters,
                              cudaStream_t stream);

}  // namespace causeway

#endif  // QUANTIZATION_CUDA_KERNELS_CUDA_H_
