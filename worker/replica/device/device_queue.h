// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// What the outer loop does on a device: copies to and from it, and the
// arithmetic of outer_optimizer/mixing.h and quantization/codec.h there: a CUDA
// stream (cuda_queue.h).
//
//   queue->Copy(anchor, 4 * n, staged_anchor);
//   queue->EncodeDifference(spec, {}, staged_anchor, values, n, encoded);
//   queue->Copy(encoded, bytes, host);
//   RETURN_IF_ERROR(queue->Synchronize());
#ifndef WORKER_REPLICA_DEVICE_DEVICE_QUEUE_H_
#define WORKER_REPLICA_DEVICE_DEVICE_QUEUE_H_

#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "quantization/codec.h"
#include "quantization/formats/block_format.h"

namespace causeway {

enum class MemoryKind {
  // Only operations of queues may touch it.
  kDevice,
  // The host's, which the device reaches by itself.
  kPinned,
};

// As what devices encode and decode such vectors: formats with one scale per
// block, without entropy coding. Of the others, none.
std::optional<BlockFormat> DeviceFormat(const CodecSpec& spec);
inline bool HasDeviceKernels(const CodecSpec& spec) {
  return DeviceFormat(spec).has_value();
}

// Operations are done one after the other, some time between the call and the
// end of the next Synchronize: until then what they read must stay, and what
// they write is unknown. After its first error a queue does nothing more. For
// one thread at a time, but for Allocate and Free, which any thread may call;
// memory may be used by all queues of the device.
class DeviceQueue {
 public:
  virtual ~DeviceQueue() = default;

  // Aligned to 256 bytes. RESOURCE_EXHAUSTED, or why the device is of no use.
  virtual absl::StatusOr<void*> Allocate(MemoryKind kind, size_t bytes) = 0;
  // Of Allocate; nothing may be using it.
  virtual void Free(MemoryKind kind, void* memory) = 0;

  // From and to either kind of memory, or any of the host's, which is slower.
  virtual void Copy(const void* from, size_t bytes, void* to) = 0;

  // The rest is for memory of the device, with arrays aligned to 16 bytes that
  // do not overlap. Specs are those of HasDeviceKernels, encodings whole strips
  // of MaxEncodedBytes. Bits are those of the host.

  // encoded <- anchor - values, encoded. `options` must pass
  // CheckEncodeOptions; `first_value` is that of NewEncoder.
  virtual void EncodeDifference(const CodecSpec& spec,
                                const EncodeOptions& options,
                                uint64_t first_value, const float* anchor,
                                const float* values, uint64_t count,
                                char* encoded) = 0;
  // values += decoded. What is not finite must have been refused before.
  virtual void DecodeAdd(const CodecSpec& spec, const char* encoded,
                         uint64_t count, float* values) = 0;
  // Mix() and Rebase() of outer_optimizer/mixing.h.
  virtual void Mix(const float* anchor, float mixing, uint64_t count,
                   float* values) = 0;
  virtual void Rebase(const float* change, uint64_t count, float* values) = 0;

  // Waits for the operations before. The first error of any; it stays.
  virtual absl::Status Synchronize() = 0;
};

}  // namespace causeway

#endif  // WORKER_REPLICA_DEVICE_DEVICE_QUEUE_H_
