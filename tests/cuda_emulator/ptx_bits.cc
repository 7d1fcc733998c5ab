// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Operations on bits, selections and moves, as the PTX ISA manual defines them.
#include <algorithm>
#include <cstdint>
#include <string>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "tests/cuda_emulator/ptx_operations.h"

namespace causeway::ptx {
namespace {

struct And {
  auto operator()(auto a, auto b) const { return a & b; }
};
struct Or {
  auto operator()(auto a, auto b) const { return a | b; }
};
struct Xor {
  auto operator()(auto a, auto b) const { return a ^ b; }
};
struct Not {
  auto operator()(auto a) const { return ~a; }
};

template <typename T>
void ShiftLeft(Warp& warp, const Instruction& i, uint32_t mask) {
  uint64_t* const to = warp.Slot(i.to[0]);
  const uint64_t* const a = warp.Slot(i.from[0]);
  const uint64_t* const b = warp.Slot(i.from[1]);
  ForLanes(mask, [&](int lane) {
    const auto by = Read<uint32_t>(b, lane);
    Write<T>(
        to, lane,
        by >= 8 * sizeof(T) ? T{0} : static_cast<T>(Read<T>(a, lane) << by));
  });
}
template <typename T>
void ShiftRight(Warp& warp, const Instruction& i, uint32_t mask) {
  uint64_t* const to = warp.Slot(i.to[0]);
  const uint64_t* const a = warp.Slot(i.from[0]);
  const uint64_t* const b = warp.Slot(i.from[1]);
  ForLanes(mask, [&](int lane) {
    const auto by = std::min<uint32_t>(
        Read<uint32_t>(b, lane),
        std::is_signed_v<T> ? 8 * sizeof(T) - 1 : 8 * sizeof(T));
    Write<T>(
        to, lane,
        by >= 8 * sizeof(T) ? T{0} : static_cast<T>(Read<T>(a, lane) >> by));
  });
}

// bfi: inserts the lower bits of a into b.
template <typename T>
void InsertBits(Warp& warp, const Instruction& i, uint32_t mask) {
  uint64_t* const to = warp.Slot(i.to[0]);
  ForLanes(mask, [&](int lane) {
    const T a = Read<T>(warp.Slot(i.from[0]), lane);
    const T b = Read<T>(warp.Slot(i.from[1]), lane);
    const uint32_t at = Read<uint32_t>(warp.Slot(i.from[2]), lane) & 0xff;
    const uint32_t length = Read<uint32_t>(warp.Slot(i.from[3]), lane) & 0xff;
    if (length == 0 || at >= 8 * sizeof(T)) {
      Write<T>(to, lane, b);
      return;
    }
    const T ones = length >= 8 * sizeof(T)
                       ? static_cast<T>(~T{0})
                       : static_cast<T>((T{1} << length) - 1);
    const T field = static_cast<T>(ones << at);
    Write<T>(to, lane, (b & ~field) | (static_cast<T>(a << at) & field));
  });
}
template <typename T>
void ExtractBits(Warp& warp, const Instruction& i, uint32_t mask) {
  using U = std::make_unsigned_t<T>;
  constexpr uint32_t kBits = 8 * sizeof(T);
  uint64_t* const to = warp.Slot(i.to[0]);
  ForLanes(mask, [&](int lane) {
    const U a = Read<U>(warp.Slot(i.from[0]), lane);
    const uint32_t at = Read<uint32_t>(warp.Slot(i.from[1]), lane) & 0xff;
    const uint32_t length = Read<uint32_t>(warp.Slot(i.from[2]), lane) & 0xff;
    const U ones = length >= kBits ? ~U{0} : (U{1} << length) - 1;
    U field = at >= kBits ? U{0} : (a >> at) & ones;
    if (std::is_signed_v<T> && length > 0) {
      const uint32_t sign = std::min(at + length - 1, kBits - 1);
      if ((a >> sign & 1) != 0) field |= ~ones;
    }
    Write<U>(to, lane, field);
  });
}

// prmt in its default mode: selects four of the eight bytes of b:a.
void PermuteBytes(Warp& warp, const Instruction& i, uint32_t mask) {
  uint64_t* const to = warp.Slot(i.to[0]);
  ForLanes(mask, [&](int lane) {
    const uint64_t bytes = Read<uint32_t>(warp.Slot(i.from[0]), lane) |
                           uint64_t{Read<uint32_t>(warp.Slot(i.from[1]), lane)}
                               << 32;
    const uint32_t selector = Read<uint32_t>(warp.Slot(i.from[2]), lane);
    uint32_t result = 0;
    for (int byte = 0; byte < 4; ++byte) {
      const uint32_t which = selector >> 4 * byte & 0xf;
      uint32_t value = static_cast<uint32_t>(bytes >> 8 * (which & 7)) & 0xff;
      if (which & 8) value = value & 0x80 ? 0xff : 0;
      result |= value << 8 * byte;
    }
    Write<uint32_t>(to, lane, result);
  });
}

void Select(Warp& warp, const Instruction& i, uint32_t mask) {
  uint64_t* const to = warp.Slot(i.to[0]);
  ForLanes(mask, [&](int lane) {
    to[lane] = warp.Slot(i.from[warp.Slot(i.from[2])[lane] != 0 ? 0 : 1])[lane];
  });
}

void NotPredicate(Warp& warp, const Instruction& i, uint32_t mask) {
  uint64_t* const to = warp.Slot(i.to[0]);
  ForLanes(mask, [&](int lane) {
    to[lane] = warp.Slot(i.from[0])[lane] == 0 ? 1 : 0;
  });
}

// mov: copies one register, or converts between one register and several parts
// of it, the lowest first. The mode is the bits of the whole.
void Move(Warp& warp, const Instruction& i, uint32_t mask) {
  const int parts = std::max<int>(i.to_count, i.from_count);
  if (parts == 1) {
    uint64_t* const to = warp.Slot(i.to[0]);
    const uint64_t* const from = warp.Slot(i.from[0]);
    ForLanes(mask, [&](int lane) { to[lane] = from[lane]; });
    return;
  }
  const int bits = i.mode / parts;
  const uint64_t ones = (uint64_t{1} << bits) - 1;
  ForLanes(mask, [&](int lane) {
    if (i.to_count == 1) {
      uint64_t value = 0;
      for (int part = 0; part < parts; ++part) {
        value |= (warp.Slot(i.from[part])[lane] & ones) << bits * part;
      }
      warp.Slot(i.to[0])[lane] = value;
    } else {
      const uint64_t value = warp.Slot(i.from[0])[lane];
      for (int part = 0; part < parts; ++part) {
        warp.Slot(i.to[part])[lane] = value >> bits * part & ones;
      }
    }
  });
}

}  // namespace

void AddBitOperations(OperationTable& table) {
  ForTypes<uint16_t, uint32_t, uint64_t>([&]<typename T>() {
    const std::string type = absl::StrCat(".b", 8 * sizeof(T));
    table["and" + type] = Binary<T, T, And>;
    table["or" + type] = Binary<T, T, Or>;
    table["xor" + type] = Binary<T, T, Xor>;
    table["not" + type] = Unary<T, T, Not>;
    table["shl" + type] = ShiftLeft<T>;
    table["shr" + type] = ShiftRight<T>;
    table["bfi" + type] = InsertBits<T>;
  });
  ForIntegers([&]<typename T>() {
    table[absl::StrCat("shr.", Name<T>::kText)] = ShiftRight<T>;
  });
  ForTypes<int32_t, uint32_t, int64_t, uint64_t>([&]<typename T>() {
    table[absl::StrCat("bfe.", Name<T>::kText)] = ExtractBits<T>;
  });
  table["and.pred"] = Binary<uint64_t, uint64_t, And>;
  table["or.pred"] = Binary<uint64_t, uint64_t, Or>;
  table["xor.pred"] = Binary<uint64_t, uint64_t, Xor>;
  table["not.pred"] = NotPredicate;
  table["prmt.b32"] = PermuteBytes;
  table["selp"] = Select;
  table["mov"] = Move;
}

}  // namespace causeway::ptx
