// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Reuses large buffers, in memory or, where memory is short, in files. The
// first touch of fresh memory (a page fault for each 4 KiB) costs several times
// as much as receiving the bytes, and uploads have the same few sizes in every
// round, one for each fragment.
//
// A buffer in a file is memory whose pages the kernel may write to the file and
// reclaim. Reading a page brings it back.
//
//   BufferPool pool(1 << 30);
//   PooledBuffer buffer = pool.Take(bytes);  // back when its owner is gone
//
// Thread-safe. A buffer may outlive the pool, and is then freed when its owner
// is gone.
#ifndef SERVER_BUFFER_POOL_H_
#define SERVER_BUFFER_POOL_H_

#include <cstdint>
#include <memory>
#include <string>

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
  // Keeps at most `idle_capacity_bytes` of unused memory. With a `folder`,
  // buffers are in files there, which have no names and end with the process.
  explicit BufferPool(uint64_t idle_capacity_bytes, std::string folder = "");
  // Frees the unused memory.
  ~BufferPool();

  // Returns exactly `bytes` bytes; large buffers in memory are aligned for huge
  // pages. Takes memory if the folder has no room for a file.
  PooledBuffer Take(uint64_t bytes);

 private:
  struct Idle;
  const std::string folder_;
  // Shared with the buffers that are in use.
  const std::shared_ptr<Idle> idle_;
};

}  // namespace causeway

#endif  // SERVER_BUFFER_POOL_H_
