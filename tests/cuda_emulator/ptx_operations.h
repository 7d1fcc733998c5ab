// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Common parts of the files of operations. A register has 64 bits. An operation
// reads as many of them as its type has, and sets the rest to 0 when it writes.
#ifndef TESTS_CUDA_EMULATOR_PTX_OPERATIONS_H_
#define TESTS_CUDA_EMULATOR_PTX_OPERATIONS_H_

#include <bit>
#include <cstdint>
#include <string>
#include <type_traits>
#include <unordered_map>

#include "tests/cuda_emulator/ptx_program.h"
#include "tests/cuda_emulator/ptx_warp.h"

namespace causeway::ptx {

// Operations by names such as "add.s32".
using OperationTable = std::unordered_map<std::string, Execute>;

void AddArithmetic(OperationTable& table);
void AddBitOperations(OperationTable& table);
void AddComparisons(OperationTable& table);
void AddConversions(OperationTable& table);
void AddMemoryOperations(OperationTable& table);
void AddWarpOperations(OperationTable& table);

// The rounding of a conversion, which is its mode.
enum Rounding { kNearest, kZero, kDown, kUp, kSaturate, kNone };

template <typename T>
using BitsOf = std::conditional_t<
    sizeof(T) == 1, uint8_t,
    std::conditional_t<sizeof(T) == 2, uint16_t,
                       std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>>>;

template <typename T>
T Read(const uint64_t* slot, int lane) {
  return std::bit_cast<T>(static_cast<BitsOf<T>>(slot[lane]));
}
template <typename T>
void Write(uint64_t* slot, int lane, T value) {
  slot[lane] = std::bit_cast<BitsOf<T>>(value);
}

template <typename R, typename T, typename Operation>
void Unary(Warp& warp, const Instruction& i, uint32_t mask) {
  uint64_t* const to = warp.Slot(i.to[0]);
  const uint64_t* const a = warp.Slot(i.from[0]);
  ForLanes(mask, [&](int lane) {
    Write<R>(to, lane, static_cast<R>(Operation()(Read<T>(a, lane))));
  });
}
template <typename R, typename T, typename Operation>
void Binary(Warp& warp, const Instruction& i, uint32_t mask) {
  uint64_t* const to = warp.Slot(i.to[0]);
  const uint64_t* const a = warp.Slot(i.from[0]);
  const uint64_t* const b = warp.Slot(i.from[1]);
  ForLanes(mask, [&](int lane) {
    Write<R>(to, lane,
             static_cast<R>(Operation()(Read<T>(a, lane), Read<T>(b, lane))));
  });
}
template <typename T>
struct Name;
#define CAUSEWAY_TYPE(type, text)               \
  template <>                                   \
  struct Name<type> {                           \
    static constexpr const char kText[] = text; \
  };
CAUSEWAY_TYPE(int8_t, "s8")
CAUSEWAY_TYPE(uint8_t, "u8")
CAUSEWAY_TYPE(int16_t, "s16")
CAUSEWAY_TYPE(uint16_t, "u16")
CAUSEWAY_TYPE(int32_t, "s32")
CAUSEWAY_TYPE(uint32_t, "u32")
CAUSEWAY_TYPE(int64_t, "s64")
CAUSEWAY_TYPE(uint64_t, "u64")
CAUSEWAY_TYPE(float, "f32")
CAUSEWAY_TYPE(double, "f64")
#undef CAUSEWAY_TYPE

template <typename... Ts, typename F>
void ForTypes(F add) {
  (add.template operator()<Ts>(), ...);
}

template <typename F>
void ForIntegers(F add) {
  ForTypes<int16_t, uint16_t, int32_t, uint32_t, int64_t, uint64_t>(add);
}

}  // namespace causeway::ptx

#endif  // TESTS_CUDA_EMULATOR_PTX_OPERATIONS_H_
