// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Loads, stores, addresses and asynchronous copies, as the PTX ISA manual
// defines them.
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "tests/cuda_emulator/ptx_operations.h"

namespace causeway::ptx {
namespace {

enum class Space { kParameter, kGlobal, kShared, kLocal, kGeneric };

template <Space kSpace>
char* MemoryAt(Warp& warp, const Instruction& i, uint64_t address, size_t bytes,
               Use use) {
  switch (kSpace) {
    case Space::kParameter:
    case Space::kLocal:
      return warp.Own(i, address, bytes);
    case Space::kGlobal:
      return warp.Global(i, address, bytes);
    case Space::kShared:
      return warp.Shared(i, address, bytes, use);
    case Space::kGeneric:
      return warp.Generic(i, address, bytes, use);
  }
}

template <typename T, Space kSpace>
void Load(Warp& warp, const Instruction& i, uint32_t mask) {
  const uint64_t* const address = warp.Slot(i.from[0]);
  const size_t bytes = sizeof(T) * static_cast<size_t>(i.to_count);
  ForLanes(mask, [&](int lane) {
    const char* const from = MemoryAt<kSpace>(
        warp, i, address[lane] + static_cast<uint64_t>(i.offset), bytes,
        Use::kRead);
    if (from == nullptr) return;
    for (int n = 0; n < i.to_count; ++n) {
      T value;
      std::memcpy(&value, from + n * sizeof(T), sizeof(T));
      // Signed numbers are extended to the whole register.
      if constexpr (std::is_signed_v<T> && std::is_integral_v<T>) {
        warp.Slot(i.to[n])[lane] =
            static_cast<uint64_t>(static_cast<int64_t>(value));
      } else {
        Write<T>(warp.Slot(i.to[n]), lane, value);
      }
    }
  });
}
template <typename T, Space kSpace>
void Store(Warp& warp, const Instruction& i, uint32_t mask) {
  const uint64_t* const address = warp.Slot(i.from[0]);
  const int count = i.from_count - 1;
  ForLanes(mask, [&](int lane) {
    char* const to = MemoryAt<kSpace>(
        warp, i, address[lane] + static_cast<uint64_t>(i.offset),
        sizeof(T) * static_cast<size_t>(count), Use::kWrite);
    if (to == nullptr) return;
    for (int n = 0; n < count; ++n) {
      const T value = Read<T>(warp.Slot(i.from[n + 1]), lane);
      std::memcpy(to + n * sizeof(T), &value, sizeof(T));
    }
  });
}

void SharedToGeneric(Warp& warp, const Instruction& i, uint32_t mask) {
  ForLanes(mask, [&](int lane) {
    warp.Slot(i.to[0])[lane] = warp.Slot(i.from[0])[lane] +
                               reinterpret_cast<uintptr_t>(warp.block().shared);
  });
}
void GenericToShared(Warp& warp, const Instruction& i, uint32_t mask) {
  ForLanes(mask, [&](int lane) {
    warp.Slot(i.to[0])[lane] = warp.Slot(i.from[0])[lane] -
                               reinterpret_cast<uintptr_t>(warp.block().shared);
  });
}

// cp.async [shared], [global], bytes, bytes to read: the rest becomes zeros.
void CopyAsync(Warp& warp, const Instruction& i, uint32_t mask) {
  ForLanes(mask, [&](int lane) {
    const uint64_t to = Read<uint32_t>(warp.Slot(i.from[0]), lane);
    const uint64_t from = warp.Slot(i.from[1])[lane];
    const uint32_t bytes =
        i.from_count > 3 ? Read<uint32_t>(warp.Slot(i.from[3]), lane) : 16;
    if (warp.Shared(i, to, 16, Use::kWrite) == nullptr) return;
    if (bytes > 0 && warp.Global(i, from, 16) == nullptr) return;
    warp.copies(lane).back().push_back({from, bytes, to});
  });
}
void EndCopies(Warp& warp, const Instruction&, uint32_t mask) {
  ForLanes(mask, [&](int lane) { warp.copies(lane).emplace_back(); });
}
void AwaitCopies(Warp& warp, const Instruction& i, uint32_t mask) {
  ForLanes(mask, [&](int lane) {
    auto& groups = warp.copies(lane);
    while (groups.size() > Read<uint32_t>(warp.Slot(i.from[0]), lane) + 1) {
      for (const PendingCopy& copy : groups.front()) {
        // The copy writes shared memory from its start until now.
        char* const to = warp.Shared(i, copy.to, 16, Use::kWrite);
        if (to == nullptr) return;
        std::memset(to, 0, 16);
        std::memcpy(to, warp.block().memory->InHost(copy.from), copy.bytes);
      }
      groups.pop_front();
    }
  });
}

template <Space kSpace>
void AddMemory(const std::string& space, OperationTable& table) {
  ForTypes<int8_t, uint8_t, int16_t, uint16_t, int32_t, uint32_t, int64_t,
           uint64_t, float, double>([&]<typename T>() {
    const std::string type = absl::StrCat(".", Name<T>::kText);
    table["ld" + space + type] = Load<T, kSpace>;
    table["st" + space + type] = Store<T, kSpace>;
  });
  ForTypes<uint8_t, uint16_t, uint32_t, uint64_t>([&]<typename T>() {
    const std::string type = absl::StrCat(".b", 8 * sizeof(T));
    table["ld" + space + type] = Load<T, kSpace>;
    table["st" + space + type] = Store<T, kSpace>;
  });
}

}  // namespace

void AddMemoryOperations(OperationTable& table) {
  AddMemory<Space::kParameter>(".param", table);
  AddMemory<Space::kGlobal>(".global", table);
  AddMemory<Space::kShared>(".shared", table);
  AddMemory<Space::kLocal>(".local", table);
  AddMemory<Space::kGeneric>("", table);
  table["cvta.shared.u64"] = SharedToGeneric;
  table["cvta.to.shared.u64"] = GenericToShared;
  // In the other spaces both kinds of address are the same.
  for (const char* const name :
       {"cvta.to.global.u64", "cvta.global.u64", "cvta.param.u64",
        "cvta.local.u64", "cvta.to.local.u64"}) {
    table[name] = table.at("mov");
  }
  table["cp.async.cg.shared.global"] = CopyAsync;
  table["cp.async.commit_group"] = EndCopies;
  table["cp.async.wait_group"] = AwaitCopies;
}

}  // namespace causeway::ptx
