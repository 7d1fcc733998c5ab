// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/model/cuda/device_emulator.h"

#include <ucontext.h>

#include <bit>
#include <cstring>
#include <deque>
#include <memory>
#include <vector>

#include "glog/logging.h"

namespace causeway::emulator {
namespace {

constexpr uint32_t kWarpSize = 32;
constexpr size_t kStackBytes = size_t{256} << 10;

// A thread of a block, and later of others.
struct Fiber {
  ucontext_t context;
  std::unique_ptr<char[]> stack;
  bool done = false;
};

std::vector<Fiber>& Fibers() {
  // They stay: stacks are expensive.
  static auto& fibers = *new std::vector<Fiber>(1024);
  return fibers;
}

// What a group of threads waits at. Values are kept for two rounds: nobody can
// be two rounds ahead of a thread that still reads.
struct Meeting {
  uint32_t arrived = 0;
  uint64_t round = 0;
  Words values[2][kWarpSize];
};

// 16 bytes on their way to shared memory.
struct PendingCopy {
  const void* from;
  bool zeros;
  void* to;

  void Do() const {
    if (zeros) {
      std::memset(to, 0, 16);
    } else {
      std::memcpy(to, from, 16);
    }
  }
};
// Those of a thread, by groups; the last one is still open.
using PendingCopies = std::deque<std::vector<PendingCopy>>;

// The launch that is running.
struct Launch {
  GridSize blocks;
  GridSize block;
  uint32_t threads = 0;
  std::vector<unsigned char> shared;
  absl::FunctionRef<void()> kernel;
  ucontext_t scheduler;
  uint32_t thread = 0;
  uint32_t running = 0;
  Meeting block_meeting;
  std::vector<Meeting> warp_meetings;
  std::vector<PendingCopies> copies;
};

Launch* launch = nullptr;
Order launch_order = Order::kForward;
Copies launch_copies = Copies::kWhenAwaited;

void Yield() {
  swapcontext(&Fibers()[launch->thread].context, &launch->scheduler);
}

void RunFiber() {
  while (true) {
    launch->kernel();
    Fibers()[launch->thread].done = true;
    // Those who wait at the barrier wait for the threads that are left.
    --launch->running;
    Yield();
  }
}

void StartFiber(Fiber& fiber) {
  fiber.stack = std::make_unique<char[]>(kStackBytes);
  getcontext(&fiber.context);
  fiber.context.uc_stack.ss_sp = fiber.stack.get();
  fiber.context.uc_stack.ss_size = kStackBytes;
  fiber.context.uc_link = nullptr;
  makecontext(&fiber.context, RunFiber, 0);
}

// Waits until `size` threads have come.
void Meet(Meeting& meeting, const uint32_t& size) {
  const uint64_t round = meeting.round;
  ++meeting.arrived;
  while (meeting.round == round) {
    if (meeting.arrived >= size) {
      meeting.arrived = 0;
      ++meeting.round;
    } else {
      Yield();
    }
  }
}

void RunBlock() {
  launch->shared.assign(launch->shared.size(), 0xff);
  launch->running = launch->threads;
  launch->block_meeting = {};
  launch->warp_meetings.assign((launch->threads + kWarpSize - 1) / kWarpSize,
                               {});
  launch->copies.assign(launch->threads, PendingCopies(1));
  for (uint32_t i = 0; i < launch->threads; ++i) {
    Fiber& fiber = Fibers()[i];
    fiber.done = false;
    if (fiber.stack == nullptr) StartFiber(fiber);
  }
  while (launch->running > 0) {
    for (uint32_t i = 0; i < launch->threads; ++i) {
      launch->thread =
          launch_order == Order::kForward ? i : launch->threads - 1 - i;
      Fiber& fiber = Fibers()[launch->thread];
      if (!fiber.done) swapcontext(&launch->scheduler, &fiber.context);
    }
  }
}

}  // namespace

void SetOrder(Order order) { launch_order = order; }
void SetCopies(Copies copies) { launch_copies = copies; }

void Emulate(const GridSize& blocks, uint32_t threads, size_t shared_bytes,
             absl::FunctionRef<void()> kernel) {
  CHECK(launch == nullptr) << "kernels do not start kernels";
  CHECK(threads > 0 && threads <= 1024 && threads % kWarpSize == 0) << threads;
  CHECK(blocks.x > 0 && blocks.y > 0 && blocks.z > 0);
  CHECK(blocks.y < 65536 && blocks.z < 65536);
  Launch this_launch{.blocks = blocks,
                     .threads = threads,
                     .shared = std::vector<unsigned char>(shared_bytes + 16),
                     .kernel = kernel};
  launch = &this_launch;
  GridSize& block = this_launch.block;
  for (block.z = 0; block.z < blocks.z; ++block.z) {
    for (block.y = 0; block.y < blocks.y; ++block.y) {
      for (block.x = 0; block.x < blocks.x; ++block.x) RunBlock();
    }
  }
  launch = nullptr;
}

GridSize Block() { return launch->block; }
GridSize Blocks() { return launch->blocks; }
uint32_t Thread() { return launch->thread; }
uint32_t Threads() { return launch->threads; }
unsigned char* Shared() {
  const auto address = reinterpret_cast<uintptr_t>(launch->shared.data());
  return launch->shared.data() + (16 - address % 16) % 16;
}

void SyncBlock() { Meet(launch->block_meeting, launch->running); }

void Exchange(const Words& value, absl::FunctionRef<void(const Words*)> read) {
  Meeting& meeting = launch->warp_meetings[launch->thread / kWarpSize];
  Words* const values = meeting.values[meeting.round % 2];
  values[launch->thread % kWarpSize] = value;
  Meet(meeting, kWarpSize);
  read(values);
}

namespace {

float Bf16Half(uint32_t pair, int upper) {
  return std::bit_cast<float>(upper == 0 ? pair << 16 : pair & 0xffff0000u);
}

}  // namespace

void MultiplyAdd(const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                 float (&accumulator)[4]) {
  const Words own = {{a[0], a[1], a[2], a[3], b0, b1}};
  const int group = static_cast<int>(launch->thread % kWarpSize / 4);
  const int column = static_cast<int>(launch->thread % 4 * 2);
  Exchange(own, [&](const Words* lanes) {
    for (int i = 0; i < 4; ++i) {
      // Of the accumulator: row group + 8 * below, column + i % 2.
      const int below = i / 2;
      for (int k = 0; k < 16; ++k) {
        const int word = k / 8 * 2 + below;
        const float left =
            Bf16Half(lanes[group * 4 + k % 8 / 2].word[word], k % 2);
        const float right = Bf16Half(
            lanes[(column + i % 2) * 4 + k % 8 / 2].word[4 + k / 8], k % 2);
        accumulator[i] += left * right;
      }
    }
  });
}

void LoadMatrices(const void* row, bool transposed, uint32_t (&values)[4]) {
  CHECK_EQ(reinterpret_cast<uintptr_t>(row) % 16, 0u) << "rows of ldmatrix";
  Words own = {};
  std::memcpy(own.word, &row, sizeof(row));
  const uint32_t lane = launch->thread % kWarpSize;
  Exchange(own, [&](const Words* lanes) {
    for (uint32_t matrix = 0; matrix < 4; ++matrix) {
      uint16_t pair[2];
      for (uint32_t i = 0; i < 2; ++i) {
        const uint32_t from_row = transposed ? lane % 4 * 2 + i : lane / 4;
        const uint32_t from_column = transposed ? lane / 4 : lane % 4 * 2 + i;
        const uint16_t* begin = nullptr;
        std::memcpy(&begin, lanes[matrix * 8 + from_row].word, sizeof(begin));
        pair[i] = begin[from_column];
      }
      values[matrix] = pair[0] | uint32_t{pair[1]} << 16;
    }
  });
}

void CopyAsync(const void* from, bool zeros, void* to) {
  const PendingCopy copy = {from, zeros, to};
  if (launch_copies == Copies::kAtOnce) return copy.Do();
  launch->copies[launch->thread].back().push_back(copy);
}
void EndCopies() { launch->copies[launch->thread].emplace_back(); }
void AwaitCopies(size_t groups) {
  PendingCopies& pending = launch->copies[launch->thread];
  while (pending.size() > groups + 1) {
    for (const PendingCopy& copy : pending.front()) copy.Do();
    pending.pop_front();
  }
}

}  // namespace causeway::emulator
