// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Conversions between types, as the PTX ISA manual defines them.
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "tests/cuda_emulator/bf16.h"
#include "tests/cuda_emulator/ptx_operations.h"

namespace causeway::ptx {
namespace {

template <typename To, typename From>
To Converted(From value, int rounding) {
  if constexpr (std::is_floating_point_v<From>) {
    if (rounding == kZero) value = std::trunc(value);
    if (rounding == kDown) value = std::floor(value);
    if (rounding == kUp) value = std::ceil(value);
    if (rounding == kNearest && !std::is_floating_point_v<To>) {
      value = std::nearbyint(value);
    }
    if (rounding == kSaturate) {
      value = std::isnan(value) ? From{0}
                                : std::fmin(std::fmax(value, From{0}), From{1});
    }
    if constexpr (std::is_integral_v<To>) {
      if (std::isnan(value)) return 0;
      const auto low = static_cast<double>(std::numeric_limits<To>::min());
      const auto high = static_cast<double>(std::numeric_limits<To>::max());
      if (static_cast<double>(value) <= low) {
        return std::numeric_limits<To>::min();
      }
      if (static_cast<double>(value) >= high) {
        return std::numeric_limits<To>::max();
      }
    }
  }
  return static_cast<To>(value);
}

template <typename To, typename From>
void Convert(Warp& warp, const Instruction& i, uint32_t mask) {
  uint64_t* const to = warp.Slot(i.to[0]);
  const uint64_t* const from = warp.Slot(i.from[0]);
  ForLanes(mask, [&](int lane) {
    const To value = Converted<To>(Read<From>(from, lane), i.mode);
    if constexpr (std::is_signed_v<To> && std::is_integral_v<To>) {
      to[lane] = static_cast<uint64_t>(static_cast<int64_t>(value));
    } else {
      Write<To>(to, lane, value);
    }
  });
}

void ConvertToBf16Pair(Warp& warp, const Instruction& i, uint32_t mask) {
  ForLanes(mask, [&](int lane) {
    const uint32_t high = ToBf16(Read<float>(warp.Slot(i.from[0]), lane));
    const uint32_t low = ToBf16(Read<float>(warp.Slot(i.from[1]), lane));
    Write<uint32_t>(warp.Slot(i.to[0]), lane, high << 16 | low);
  });
}

}  // namespace

void AddConversions(OperationTable& table) {
  ForTypes<int8_t, uint8_t, int16_t, uint16_t, int32_t, uint32_t, int64_t,
           uint64_t, float, double>([&]<typename To>() {
    ForTypes<int8_t, uint8_t, int16_t, uint16_t, int32_t, uint32_t, int64_t,
             uint64_t, float, double>([&]<typename From>() {
      table[absl::StrCat("cvt.", Name<To>::kText, ".", Name<From>::kText)] =
          Convert<To, From>;
    });
  });
  table["cvt.bf16x2.f32"] = ConvertToBf16Pair;
}

}  // namespace causeway::ptx
