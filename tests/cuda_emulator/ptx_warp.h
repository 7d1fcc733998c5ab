// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The warps of a block, which run a kernel's instructions.
#ifndef TESTS_CUDA_EMULATOR_PTX_WARP_H_
#define TESTS_CUDA_EMULATOR_PTX_WARP_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "tests/cuda_emulator/ptx_machine.h"
#include "tests/cuda_emulator/ptx_program.h"

namespace causeway::ptx {

struct PendingCopy {
  uintptr_t from;
  uint32_t bytes;
  // The address in shared memory.
  uint64_t to;
};

enum class Use : uint8_t { kRead, kWrite };

// The users of a word of shared memory since the last barrier.
struct WordUse {
  static constexpr int16_t kNobody = -1;
  static constexpr int16_t kSeveral = -2;

  uint32_t interval = 0;
  int16_t writer = kNobody;
  int16_t reader = kNobody;
};

// The state that a block's warps share.
struct Block {
  const Program* program = nullptr;
  const DeviceMemory* memory = nullptr;
  const char* parameters = nullptr;
  size_t parameter_bytes = 0;
  Grid grid;
  uint32_t index[3] = {};
  std::vector<char> shared_memory;
  char* shared = nullptr;
  size_t shared_bytes = 0;
  std::vector<WordUse> uses;
  // Counts the intervals between barriers.
  uint32_t interval = 1;
  absl::Status status;
};

class Warp {
 public:
  Warp(Block* block, int function, uint32_t first_thread);

  // Starts the block that `block` is at now.
  void Begin();
  // Runs until all lanes are at a barrier or have ended.
  void Run();
  bool HasEnded() const;
  // Lets the lanes continue behind the barrier.
  void Release();

  uint64_t* Slot(int slot) { return registers_ + slot * kLanes; }
  Block& block() { return *block_; }
  std::deque<std::vector<PendingCopy>>& copies(int lane) {
    return copies_[lane];
  }

  // Records an error; the first one stays.
  void Fail(const Instruction& instruction, const std::string& what);

  // Return the host's address of the bytes at `address`, or null after an
  // error.
  char* Shared(const Instruction& instruction, uint64_t address, size_t bytes,
               Use use);
  char* Global(const Instruction& instruction, uint64_t address, size_t bytes);
  // Any address that is not in shared, local or parameter memory is global.
  char* Generic(const Instruction& instruction, uint64_t address, size_t bytes,
                Use use);
  // Local memory and parameters are in memory of the host.
  char* Own(const Instruction& instruction, uint64_t address, size_t bytes);

 private:
  enum class State : uint8_t { kRunning, kAtBarrier, kAwaitsWarp, kEnded };
  struct Frame {
    int function;
    int at;
  };
  // The registers and memory of a function, for all lanes.
  struct Activation {
    std::vector<uint64_t> registers;
    std::vector<char> memory;
  };

  Activation& Activate(int function);
  void SetSpecials(int function);
  // Returns whether no other warp uses these words of shared memory at the same
  // time.
  bool IsAlone(uint64_t address, size_t bytes, Use use);
  bool IsAligned(const Instruction& instruction, uint64_t address,
                 size_t bytes);
  uint32_t LanesAt(State state, int function, int at) const;
  // Returns the lanes that run next, or 0 if none can. Sets registers_ and
  // join_ for them.
  uint32_t Choose();
  void Step(uint32_t lanes);
  uint32_t Guarded(const Instruction& instruction, uint32_t lanes);
  void Call(const Instruction& instruction, uint32_t lanes);
  void Return(uint32_t lanes);
  void SetPlace(uint32_t lanes, int at);

  Block* const block_;
  const int kernel_;
  const uint32_t first_thread_;
  State state_[kLanes];
  int function_[kLanes];
  int at_[kLanes];
  std::vector<Frame> callers_[kLanes];
  std::deque<std::vector<PendingCopy>> copies_[kLanes];
  std::vector<Activation> activations_;
  // The registers of the function that runs.
  uint64_t* registers_ = nullptr;
  // The place where other lanes wait to be joined.
  int join_ = 0;
  std::pair<uintptr_t, uintptr_t> last_memory_ = {0, 0};
};

template <typename F>
inline void ForLanes(uint32_t mask, F function) {
  if (mask == 0xffffffff) {
    for (int lane = 0; lane < kLanes; ++lane) function(lane);
  } else {
    for (; mask != 0; mask &= mask - 1) function(__builtin_ctz(mask));
  }
}

}  // namespace causeway::ptx

#endif  // TESTS_CUDA_EMULATOR_PTX_WARP_H_
