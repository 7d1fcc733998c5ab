// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Runs kernels of a Program: one thread block after the other, its warps in
// turns, a warp's lanes together as long as they are at the same instruction.
// The lanes that are furthest behind run first, so that they join the others
// again.
//
// Everything that a GPU would not do is an error: misaligned accesses, or
// accesses to memory that the device does not have; a trap; a shuffle or a
// matrix product that not all lanes of the warp reach; words of shared memory
// that one warp writes and another one uses without a barrier between. Shared
// memory begins with bytes of 0xff. Asynchronous copies run when they are
// waited for.
#ifndef TESTS_CUDA_EMULATOR_PTX_MACHINE_H_
#define TESTS_CUDA_EMULATOR_PTX_MACHINE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "tests/cuda_emulator/ptx_program.h"

namespace causeway::ptx {

// The memory that devices may access: their own, and pinned memory of the host.
// The host cannot access a device's memory by the device's addresses, since the
// bytes lie elsewhere. Addresses are not reused. Thread-safe.
class DeviceMemory {
 public:
  // The device number of pinned memory, which every device may access.
  static constexpr int kPinned = -1;
  // Means any device.
  static constexpr int kAny = -2;

  DeviceMemory();
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  // Returns the address of new memory of a device, filled with bytes of 0xff.
  void* Allocate(size_t bytes, int device) ABSL_LOCKS_EXCLUDED(mu_);
  // Lets all devices access memory of the host.
  void Pin(const void* memory, size_t bytes) ABSL_LOCKS_EXCLUDED(mu_);
  struct Part {
    size_t bytes;
    int device;
  };
  // Frees a device's memory or, with `pinned`, unpins the host's. Returns the
  // part that was removed, or nothing if there was none of that kind.
  std::optional<Part> Remove(const void* memory, bool pinned)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Returns the memory [begin, end) around an address that a device (or kAny)
  // may access; both are 0 if there is none.
  std::pair<uintptr_t, uintptr_t> Around(uintptr_t address, int device) const
      ABSL_LOCKS_EXCLUDED(mu_);

  // Returns the host's address of the bytes that devices know by `address`.
  char* InHost(uintptr_t address) const {
    const bool is_hidden = address - hidden_ < kMostBytes;
    return reinterpret_cast<char*>(is_hidden ? address + kMostBytes : address);
  }
  char* InHost(const void* memory) const {
    return InHost(reinterpret_cast<uintptr_t>(memory));
  }

 private:
  // The size of the range of addresses for all memory of all devices.
  static constexpr uintptr_t kMostBytes = uintptr_t{1} << 40;

  // The devices' addresses begin here, and the host's kMostBytes behind them.
  uintptr_t hidden_ = 0;
  mutable absl::Mutex mu_;
  uintptr_t next_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<uintptr_t, Part> parts_ ABSL_GUARDED_BY(mu_);
};

struct Grid {
  int device = 0;
  uint32_t blocks[3] = {1, 1, 1};
  uint32_t threads = 1;
  size_t dynamic_shared_bytes = 0;
};

// Runs the kernel with that name; `parameters` has the layout that the kernel
// declares.
absl::Status RunKernel(const Program& program, absl::string_view name,
                       const Grid& grid, const std::vector<char>& parameters,
                       const DeviceMemory& memory);

}  // namespace causeway::ptx

#endif  // TESTS_CUDA_EMULATOR_PTX_MACHINE_H_
