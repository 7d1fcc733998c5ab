// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Large buffers that are used again. The first touch of fresh memory costs
// several times what receiving the bytes costs (a page fault for each 4 KiB),
// and uploads have the same few sizes in every round: one for each fragment.
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

// Memory of undefined content. It goes back to its pool with the last copy of
// `owner`.
struct PooledBuffer {
  absl::Span<char> bytes;
  std::shared_ptr<const void> owner;
};

class BufferPool {
 public:
  // Keeps at most `idle_capacity_bytes` that nobody uses.
  explicit BufferPool(uint64_t idle_capacity_bytes);
  ~BufferPool();

  // A buffer of exactly `bytes` bytes, at an address that suits huge pages if
  // it is large.
  PooledBuffer Take(uint64_t bytes);

  uint64_t idle_bytes() const;

 private:
  struct Idle;
  // Shared with the buffers that are out.
  const std::shared_ptr<Idle> idle_;
};

}  // namespace causeway

#endif  // SERVER_BUFFER_POOL_H_
