// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Large buffers for reuse. The first touch of fresh memory costs several times
// as much as receiving the bytes (a page fault for each 4 KiB), and uploads
// have the same few sizes in every round: one for each fragment.
//
//   BufferPool pool(1 << 30);
//   PooledBuffer buffer = pool.Take(bytes);  // back when its owner is gone
//
// Thread-safe. A buffer may outlive the pool.
#ifndef SERVER_BUFFER_POOL_H_
#define SERVER_BUFFER_POOL_H_

#include <cstdint>
#include <memory>

#include "absl/types/span.h"

namespace causeway {

// Memory of undefined content. It returns to its pool with the last copy of
// `owner`.
struct PooledBuffer {
  absl::Span<char> bytes;
  std::shared_ptr<const void> owner;
};

class BufferPool {
 public:
  // Keeps at most `idle_capacity_bytes` of unused memory.
  explicit BufferPool(uint64_t idle_capacity_bytes);
  ~BufferPool();

  // Returns exactly `bytes` bytes; large buffers are aligned for huge pages.
  PooledBuffer Take(uint64_t bytes);

  uint64_t idle_bytes() const;

 private:
  struct Idle;
  // Shared with the buffers that are in use.
  const std::shared_ptr<Idle> idle_;
};

}  // namespace causeway

#endif  // SERVER_BUFFER_POOL_H_
