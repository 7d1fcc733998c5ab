// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda_emulator/ptx_machine.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/cuda_emulator/ptx_warp.h"

namespace causeway::ptx {

void DeviceMemory::Add(const void* memory, size_t bytes, int device) {
  absl::MutexLock lock(&mu_);
  parts_[reinterpret_cast<uintptr_t>(memory)] = {bytes, device};
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
