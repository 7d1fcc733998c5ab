// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// quantization/formats/block_format.h on NVIDIA GPUs: an island's
// pseudo-gradient is encoded where it is made, and updates are decoded where
// they are applied, so that only encoded bytes cross to the host. Bit-identical
// to quantization/formats/block_reference.h; a NaN stays a NaN, but may have
// other bits.
//
//   cudaStream_t stream = ...;
//   RETURN_IF_ERROR(EncodeDifferenceCuda(spec, anchor, parameters, values,
//                                        encoded, stream));
//   cudaMemcpyAsync(host, encoded, bytes, cudaMemcpyDeviceToHost, stream);
//
// All formats of quantization/formats/block_format.h, with nearest or
// stochastic rounding. There is no entropy coding, no ECQ and no error feedback
// on GPUs.
//
// `encoded` is a whole encoding of strips (quantization/strips/layout.h), that
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

// Encodes anchor - parameters, a pseudo-gradient.
absl::Status EncodeDifferenceCuda(const BlockSpec& spec, const float* anchor,
                                  const float* parameters, uint64_t count,
                                  char* encoded, cudaStream_t stream,
                                  const BlockRounding& rounding = {});

// values[i] += decoded value i.
absl::Status DecodeAddCuda(const BlockSpec& spec, const char* encoded,
                           uint64_t count, float* values, cudaStream_t stream);

}  // namespace causeway

#endif  // QUANTIZATION_CUDA_KERNELS_CUDA_H_
