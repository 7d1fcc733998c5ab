// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// CUDA kernels on the CPU, for tests: runs the source of a kernel with the
// semantics of the device, one thread block after the other. The threads of a
// block are fibers of the calling thread, which change places only where they
// wait for one another, so that what one thread must not yet read has not been
// written: a missing barrier gives wrong results here, too. Dynamic shared
// memory begins with bytes of 0xff (NaN as any float).
//
//   Emulate({.x = 4}, 128, shared_bytes, [&] { Kernel(arguments...); });
//
// Knows what device_code.h needs: indices, barriers, warp shuffles,
// asynchronous copies, and the warp's matrix operations as the PTX manual
// defines them. All threads of a warp must take part in its operations. Slow;
// and silent about what costs time on a GPU. Kernels are run by one thread of
// the process at a time.
#ifndef WORKER_MODEL_CUDA_DEVICE_EMULATOR_H_
#define WORKER_MODEL_CUDA_DEVICE_EMULATOR_H_

#include <cstddef>
#include <cstdint>

#include "absl/functional/function_ref.h"

namespace causeway {

struct GridSize {
  uint32_t x = 1;
  uint32_t y = 1;
  uint32_t z = 1;
};

namespace emulator {

// Which of the threads that wait for nothing runs next: results must not
// depend on it.
enum class Order { kForward, kBackward };
void SetOrder(Order order);
// When asynchronous copies to shared memory are done: at once, which shows
// where something is overwritten that is still to be read, or when they are
// waited for (the default), which shows where nobody waits.
enum class Copies { kAtOnce, kWhenAwaited };
void SetCopies(Copies copies);

void Emulate(const GridSize& blocks, uint32_t threads, size_t shared_bytes,
             absl::FunctionRef<void()> kernel);

// The rest is for code inside of kernels.
GridSize Block();
GridSize Blocks();
uint32_t Thread();
uint32_t Threads();
unsigned char* Shared();
void SyncBlock();

// What each lane of a warp sees of the others: its own `value` is given to
// them, and `read` is called with those of all 32, in order of lane.
struct Words {
  uint32_t word[6];
};
void Exchange(const Words& value, absl::FunctionRef<void(const Words*)> read);

// As device_code.h describes them.
void MultiplyAdd(const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                 float (&accumulator)[4]);
void LoadMatrices(const void* row, bool transposed, uint32_t (&values)[4]);
void CopyAsync(const void* from, bool zeros, void* to);
void EndCopies();
void AwaitCopies(size_t groups);

}  // namespace emulator
}  // namespace causeway

#endif  // WORKER_MODEL_CUDA_DEVICE_EMULATOR_H_
