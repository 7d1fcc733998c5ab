// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// quantization/formats/block_format.h on NVIDIA GPUs: an island encodes its
// pseudo-gradient where it is computed and decodes updates where they are
// applied, so that only encoded bytes cross to the host. Bit-identical to
// quantization/formats/testing/block_reference.h; a NaN stays a NaN, but may
// have other bits.
//
//   cudaStream_t stream = ...;
//   RETURN_IF_ERROR(EncodeDifferenceCuda(spec, anchor, parameters, values,
//                                        encoded, stream));
//   cudaMemcpyAsync(host, encoded, bytes, cudaMemcpyDeviceToHost, stream);
//
// Kernels exist for all formats of quantization/formats/block_format.h. GPUs
// have no entropy coding, ECQ or error feedback.
//
// `encoded` is a whole encoding of strips (quantization/strips/layout.h) of
// codec.h's MaxEncodedBytes() bytes. A part of a longer encoding is the
// encoding of its values if it begins with a strip and ends with a strip or the
// vector.
//
// All pointers are aligned to 16 bytes and point to memory that the current
// device can access: its own, or pinned host memory at the speed of the bus.
// The arrays of one call do not overlap. They stay alive and unchanged until
// the stream has passed the call.
//
// Each call only launches one kernel on `stream`, or none if there are no
// values. It neither allocates nor waits, may be captured in a CUDA graph, and
// takes no device memory besides its arguments. Each kernel passes over memory
// once.
//
// Errors: INVALID_ARGUMENT for an unknown block size or a misaligned pointer;
// otherwise the status that common/cuda_status.h gives a failed launch. As
// always with CUDA, a later call for the same device reports a failure of a
// running kernel. Callers check encodings from elsewhere beforehand
// (Decoder::CheckFinite()); a bad one decodes to NaN or infinities, but no
// kernel reads or writes outside the arrays. Thread-safe.
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
                                  char* encoded, cudaStream_t stream);

// Decodes and adds: values[i] += decoded value i.
absl::Status DecodeAddCuda(const BlockSpec& spec, const char* encoded,
                           uint64_t count, float* values, cudaStream_t stream);

}  // namespace causeway

#endif  // QUANTIZATION_CUDA_KERNELS_CUDA_H_
