// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda_emulator/ptx_machine.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/cuda_emulator/ptx_warp.h"

namespace causeway::ptx {

namespace {

constexpr size_t kPageBytes = 4096;

// Returns `bytes` rounded up to whole pages, at least one.
size_t Pages(size_t bytes) { return (bytes / kPageBytes + 1) * kPageBytes; }

// Makes reserved pages accessible, or inaccessible.
void Map(uintptr_t begin, size_t bytes, int protection) {
  void* const mapped =
      mmap(reinterpret_cast<void*>(begin), bytes, protection,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  if (mapped == MAP_FAILED) std::abort();
}

}  // namespace

DeviceMemory::DeviceMemory() {
  void* const reserved =
      mmap(nullptr, 2 * kMostBytes, PROT_NONE,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) std::abort();
  hidden_ = reinterpret_cast<uintptr_t>(reserved);
}

DeviceMemory::~DeviceMemory() {
  munmap(reinterpret_cast<void*>(hidden_), 2 * kMostBytes);
}

void* DeviceMemory::Allocate(size_t bytes, int device) {
  absl::MutexLock lock(&mu_);
  const uintptr_t address = hidden_ + next_;
  // The page behind the memory stays inaccessible.
  next_ += Pages(bytes) + kPageBytes;
  if (next_ > kMostBytes) std::abort();
  char* const memory = InHost(address);
  Map(reinterpret_cast<uintptr_t>(memory), Pages(bytes),
      PROT_READ | PROT_WRITE);
  std::memset(memory, -1, bytes);
  parts_[address] = {bytes, device};
  return reinterpret_cast<void*>(address);
}

void DeviceMemory::Pin(const void* memory, size_t bytes) {
  absl::MutexLock lock(&mu_);
  parts_[reinterpret_cast<uintptr_t>(memory)] = {bytes, kPinned};
}

std::optional<DeviceMemory::Part> DeviceMemory::Remove(const void* memory,
                                                       bool pinned) {
  absl::MutexLock lock(&mu_);
  const auto found = parts_.find(reinterpret_cast<uintptr_t>(memory));
  if (found == parts_.end() || (found->second.device == kPinned) != pinned) {
    return std::nullopt;
  }
  const Part part = found->second;
  parts_.erase(found);
  if (!pinned) {
    Map(reinterpret_cast<uintptr_t>(InHost(memory)), Pages(part.bytes),
        PROT_NONE);
  }
  return part;
}

std::pair<uintptr_t, uintptr_t> DeviceMemory::Around(uintptr_t address,
                                                     int device) const {
  absl::MutexLock lock(&mu_);
  auto next = parts_.upper_bound(address);
  if (next == parts_.begin()) return {0, 0};
  const auto& [begin, part] = *--next;
  if (address >= begin + part.bytes ||
      (part.device != kPinned && device != kAny && part.device != device)) {
    return {0, 0};
  }
  return {begin, begin + part.bytes};
}

namespace {

absl::Status RunBlock(Block& block,
                      const std::vector<std::unique_ptr<Warp>>& warps) {
  std::fill(block.shared_memory.begin(), block.shared_memory.end(), -1);
  ++block.interval;
  for (const auto& warp : warps) warp->Begin();
  while (block.status.ok()) {
    bool has_ended = true;
    for (const auto& warp : warps) {
      warp->Run();
      has_ended = has_ended && warp->HasEnded();
    }
    if (has_ended) break;
    ++block.interval;
    for (const auto& warp : warps) warp->Release();
  }
  return block.status;
}

}  // namespace

absl::Status RunKernel(const Program& program, absl::string_view name,
                       const Grid& grid, const std::vector<char>& parameters,
                       const DeviceMemory& memory) {
  const auto found = program.by_name.find(name);
  if (found == program.by_name.end()) {
    return absl::NotFoundError(absl::StrCat("no kernel ", name));
  }
  if (grid.threads % kLanes != 0) {
    return absl::UnimplementedError("blocks of parts of warps");
  }
  std::vector<char> aligned(parameters.size() + 16);
  char* const begin =
      aligned.data() +
      (16 - reinterpret_cast<uintptr_t>(aligned.data()) % 16) % 16;
  std::copy(parameters.begin(), parameters.end(), begin);
  Block block;
  block.program = &program;
  block.memory = &memory;
  block.parameters = begin;
  block.parameter_bytes = parameters.size();
  block.grid = grid;
  block.shared_bytes =
      (program.shared_bytes + 15) / 16 * 16 + grid.dynamic_shared_bytes;
  block.shared_memory.resize(block.shared_bytes + 128);
  block.uses.resize(block.shared_bytes / 4 + 1);
  const auto address = reinterpret_cast<uintptr_t>(block.shared_memory.data());
  block.shared = block.shared_memory.data() + (128 - address % 128) % 128;
  std::vector<std::unique_ptr<Warp>> warps;
  for (uint32_t thread = 0; thread < grid.threads; thread += kLanes) {
    warps.push_back(std::make_unique<Warp>(&block, found->second, thread));
  }
  for (block.index[2] = 0; block.index[2] < grid.blocks[2]; ++block.index[2]) {
    for (block.index[1] = 0; block.index[1] < grid.blocks[1];
         ++block.index[1]) {
      for (block.index[0] = 0; block.index[0] < grid.blocks[0];
           ++block.index[0]) {
        const absl::Status status = RunBlock(block, warps);
        if (!status.ok()) {
          return absl::Status(status.code(),
                              absl::StrCat(name, ": ", status.message()));
        }
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace causeway::ptx
