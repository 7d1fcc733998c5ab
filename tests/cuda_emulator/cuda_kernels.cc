// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The functions of the CUDA runtime by which programs register and launch
// kernels.
#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "tests/cuda_emulator/cuda_state.h"
#include "tests/cuda_emulator/ptx_machine.h"
#include "tests/cuda_emulator/ptx_program.h"

namespace causeway::ptx {
namespace {

// The limit of compute capability 8.6.
constexpr size_t kMostSharedBytes = 99 << 10;

cudaError_t Launch(const void* function, dim3 blocks, dim3 threads, void** args,
                   size_t shared_bytes, cudaStream_t stream) {
  Kernel kernel;
  {
    absl::MutexLock lock(&TheRuntime().mu);
    const auto found = TheRuntime().kernels.find(function);
    if (found == TheRuntime().kernels.end()) {
      return Said(cudaErrorInvalidDeviceFunction);
    }
    // The driver loads the code of a kernel when it is first launched.
    if (found->second.loaded.insert(CurrentDevice()).second) {
      ++TheRuntime().device_wide_calls;
    }
    kernel = found->second;
  }
  const absl::StatusOr<const Program*> program = kernel.module->Get();
  if (!program.ok()) {
    std::fprintf(stderr, "cuda emulator: %s\n",
                 std::string(program.status().message()).c_str());
    return Said(cudaErrorInvalidPtx);
  }
  const auto index = (*program)->by_name.find(kernel.name);
  if (index == (*program)->by_name.end()) {
    return Said(cudaErrorInvalidDeviceFunction);
  }
  if (shared_bytes > kernel.dynamic_shared_bytes || threads.x > 1024 ||
      threads.y != 1 || threads.z != 1 || threads.x == 0 || blocks.x == 0 ||
      blocks.y == 0 || blocks.z == 0 || blocks.y > 65535 || blocks.z > 65535) {
    return Said(cudaErrorInvalidConfiguration);
  }
  const Function& code = (*program)->functions[index->second];
  std::vector<char> parameters(code.parameter_bytes);
  for (size_t i = 0; i < code.parameters.size(); ++i) {
    std::memcpy(parameters.data() + code.parameters[i].offset, args[i],
                code.parameters[i].size);
  }
  // A thread that uses one device must not launch kernels on another's stream.
  if (stream != nullptr && stream->device != CurrentDevice()) {
    return Said(cudaErrorInvalidResourceHandle);
  }
  Grid grid;
  grid.device = CurrentDevice();
  grid.blocks[0] = blocks.x;
  grid.blocks[1] = blocks.y;
  grid.blocks[2] = blocks.z;
  grid.threads = threads.x;
  grid.dynamic_shared_bytes = shared_bytes;
  return Enqueue(
      stream, [program = *program, name = kernel.name, grid, parameters] {
        const absl::Status status =
            RunKernel(*program, name, grid, parameters, TheRuntime().memory);
        if (!status.ok()) {
          std::fprintf(stderr, "cuda emulator: %s\n",
                       std::string(status.message()).c_str());
        }
        EndKernel(grid.device, !status.ok());
      });
}

// Returns the PTX in a "fat binary", whose entries have a kind, a size and a
// header's size.
const char* PtxOf(const char* fat) {
  struct Header {
    uint32_t magic;
    uint16_t version;
    uint16_t header_bytes;
    uint64_t bytes;
  };
  struct Entry {
    uint16_t kind;
    uint16_t version;
    uint32_t header_bytes;
    uint64_t bytes;
  };
  constexpr uint16_t kPtx = 1;
  Header header;
  std::memcpy(&header, fat, sizeof(header));
  const char* at = fat + header.header_bytes;
  const char* const end = at + header.bytes;
  while (at < end) {
    Entry entry;
    std::memcpy(&entry, at, sizeof(entry));
    if (entry.kind == kPtx) return at + entry.header_bytes;
    at += entry.header_bytes + entry.bytes;
  }
  return nullptr;
}

struct CallConfiguration {
  dim3 blocks;
  dim3 threads;
  size_t shared_bytes;
  cudaStream_t stream;
};
thread_local std::vector<CallConfiguration> call_configurations;

}  // namespace
}  // namespace causeway::ptx

// The names are the runtime's.
// NOLINTBEGIN(readability-identifier-naming)
using namespace causeway::ptx;  // NOLINT(google-build-using-namespace)

extern "C" {

void** __cudaRegisterFatBinary(void* wrapper) {
  struct Wrapper {
    int magic;
    int version;
    const char* data;
    void* more;
  };
  auto* const module = new Module;
  module->ptx = PtxOf(static_cast<const Wrapper*>(wrapper)->data);
  return reinterpret_cast<void**>(module);
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterFunction(void** module, const char* function, char*,
                            const char* name, int, uint3*, uint3*, dim3*, dim3*,
                            int*) {
  absl::MutexLock lock(&TheRuntime().mu);
  Kernel& kernel = TheRuntime().kernels[function];
  kernel.module = reinterpret_cast<Module*>(module);
  kernel.name = name;
}
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function) {
  *kernel = static_cast<cudaKernel_t>(const_cast<void*>(function));
  return cudaSuccess;
}
unsigned __cudaPushCallConfiguration(dim3 blocks, dim3 threads,
                                     size_t shared_bytes, cudaStream_t stream) {
  call_configurations.push_back({blocks, threads, shared_bytes, stream});
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* blocks, dim3* threads,
                                       size_t* shared_bytes, void* stream) {
  const CallConfiguration call = call_configurations.back();
  call_configurations.pop_back();
  *blocks = call.blocks;
  *threads = call.threads;
  *shared_bytes = call.shared_bytes;
  *static_cast<cudaStream_t*>(stream) = call.stream;
  return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 blocks, dim3 threads,
                               void** args, size_t shared_bytes,
                               cudaStream_t stream) {
  return Launch(kernel, blocks, threads, args, shared_bytes, stream);
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config,
                                const void* function, void** args) {
  return Launch(function, config->gridDim, config->blockDim, args,
                config->dynamicSmemBytes, config->stream);
}
cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute,
                                 int value) {
  if (value < 0 || static_cast<size_t>(value) > kMostSharedBytes) {
    return Said(cudaErrorInvalidValue);
  }
  absl::MutexLock lock(&TheRuntime().mu);
  TheRuntime().kernels[function].dynamic_shared_bytes =
      static_cast<size_t>(value);
  return cudaSuccess;
}
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function,
                               void* data) {
  return Enqueue(stream, [=] { function(data); });
}

}  // extern "C"
// NOLINTEND(readability-identifier-naming)
