// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Arithmetic and comparisons, as the PTX ISA manual defines them.
#include <algorithm>
#include <cfenv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "tests/cuda_emulator/ptx_operations.h"

namespace causeway::ptx {
namespace {

template <typename R, typename T, typename Operation>
void Ternary(Warp& warp, const Instruction& i, uint32_t mask) {
  uint64_t* const to = warp.Slot(i.to[0]);
  const uint64_t* const a = warp.Slot(i.from[0]);
  const uint64_t* const b = warp.Slot(i.from[1]);
  const uint64_t* const c = warp.Slot(i.from[2]);
  ForLanes(mask, [&](int lane) {
    Write<R>(to, lane,
             static_cast<R>(Operation()(Read<T>(a, lane), Read<T>(b, lane),
                                        Read<R>(c, lane))));
  });
}

// Converts to the unsigned type, whose arithmetic is modulo 2^bits.
template <typename T>
auto Modular(T value) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<uint64_t>(value);
  } else {
    return value;
  }
}
struct Add {
  auto operator()(auto a, auto b) const { return Modular(a) + Modular(b); }
};
struct Subtract {
  auto operator()(auto a, auto b) const { return Modular(a) - Modular(b); }
};
struct Multiply {
  auto operator()(auto a, auto b) const { return Modular(a) * Modular(b); }
};
// Widens both factors first.
struct MultiplyHigh {
  uint32_t operator()(uint32_t a, uint32_t b) const {
    return static_cast<uint32_t>(uint64_t{a} * b >> 32);
  }
  uint64_t operator()(uint64_t a, uint64_t b) const {
    __extension__ using Wide = unsigned __int128;
    return static_cast<uint64_t>(static_cast<Wide>(a) * b >> 64);
  }
};
struct MultiplyWide {
  auto operator()(auto a, auto b) const {
    using Wide =
        std::conditional_t<std::is_signed_v<decltype(a)>, int64_t, uint64_t>;
    return static_cast<Wide>(a) * static_cast<Wide>(b);
  }
};
struct MultiplyAddLow {
  auto operator()(auto a, auto b, auto c) const {
    return Modular(a) * Modular(b) + Modular(c);
  }
};
struct MultiplyAddWide {
  auto operator()(auto a, auto b, auto c) const {
    return Modular(MultiplyWide()(a, b)) + Modular(c);
  }
};
struct Divide {
  auto operator()(auto a, auto b) const {
    if constexpr (std::is_integral_v<decltype(a)>) {
      if (b == 0) return static_cast<decltype(a)>(-1);
      if constexpr (std::is_signed_v<decltype(a)>) {
        if (b == -1) return static_cast<decltype(a)>(0 - Modular(a));
      }
    }
    return static_cast<decltype(a)>(a / b);
  }
};
struct Remainder {
  auto operator()(auto a, auto b) const {
    if (b == 0) return a;
    if constexpr (std::is_signed_v<decltype(a)>) {
      if (b == -1) return static_cast<decltype(a)>(0);
    }
    return static_cast<decltype(a)>(a % b);
  }
};
// The minimum or maximum of a number and a NaN is the number.
struct Minimum {
  auto operator()(auto a, auto b) const {
    if constexpr (std::is_floating_point_v<decltype(a)>) return std::fmin(a, b);
    return a < b ? a : b;
  }
};
struct Maximum {
  auto operator()(auto a, auto b) const {
    if constexpr (std::is_floating_point_v<decltype(a)>) return std::fmax(a, b);
    return a > b ? a : b;
  }
};
struct Negate {
  auto operator()(auto a) const {
    if constexpr (std::is_integral_v<decltype(a)>) {
      return static_cast<decltype(a)>(0 - Modular(a));
    } else {
      return -a;
    }
  }
};
struct Absolute {
  auto operator()(auto a) const {
    return static_cast<decltype(a)>(std::abs(a));
  }
};
struct Reciprocal {
  auto operator()(auto a) const { return 1 / a; }
};
struct SquareRoot {
  auto operator()(auto a) const { return std::sqrt(a); }
};
float FlushDenormal(float value) {
  return std::fabs(value) < std::numeric_limits<float>::min()
             ? std::copysign(0.0f, value)
             : value;
}
struct Power2 {
  float operator()(float a) const {
    return FlushDenormal(std::exp2(FlushDenormal(a)));
  }
};
struct Logarithm2 {
  float operator()(float a) const { return std::log2(a); }
};
struct FusedMultiplyAdd {
  auto operator()(auto a, auto b, auto c) const { return std::fma(a, b, c); }
};
struct FusedMultiplyAddDown {
  float operator()(float a, float b, float c) const {
    const int before = std::fegetround();
    std::fesetround(FE_DOWNWARD);
    // `volatile` keeps the compiler, which rounds to nearest, from computing
    // this.
    volatile float x = a;
    volatile float sum = std::fma(x, b, c);
    std::fesetround(before);
    return sum;
  }
};
enum class Comparison { kEq, kNe, kLt, kLe, kGt, kGe, kNum, kNan };

// The mode says whether the comparison is true if an operand is NaN.
template <typename T, Comparison kComparison>
void Compare(Warp& warp, const Instruction& i, uint32_t mask) {
  uint64_t* const to = warp.Slot(i.to[0]);
  const uint64_t* const left = warp.Slot(i.from[0]);
  const uint64_t* const right = warp.Slot(i.from[1]);
  ForLanes(mask, [&](int lane) {
    const T a = Read<T>(left, lane);
    const T b = Read<T>(right, lane);
    bool holds = false;
    bool unordered = false;
    if constexpr (std::is_floating_point_v<T>) {
      unordered = std::isnan(a) || std::isnan(b);
    }
    switch (kComparison) {
      case Comparison::kEq:
        holds = a == b;
        break;
      case Comparison::kNe:
        holds = !unordered && a != b;
        break;
      case Comparison::kLt:
        holds = a < b;
        break;
      case Comparison::kLe:
        holds = a <= b;
        break;
      case Comparison::kGt:
        holds = a > b;
        break;
      case Comparison::kGe:
        holds = a >= b;
        break;
      case Comparison::kNum:
        holds = !unordered;
        break;
      case Comparison::kNan:
        holds = unordered;
        break;
    }
    to[lane] = holds || (i.mode != 0 && unordered) ? 1 : 0;
  });
}

}  // namespace

void AddArithmetic(OperationTable& table) {
  ForIntegers([&]<typename T>() {
    const std::string type = absl::StrCat(".", Name<T>::kText);
    table["add" + type] = Binary<T, T, Add>;
    table["sub" + type] = Binary<T, T, Subtract>;
    table["mul.lo" + type] = Binary<T, T, Multiply>;
    table["mad.lo" + type] = Ternary<T, T, MultiplyAddLow>;
    table["div" + type] = Binary<T, T, Divide>;
    table["rem" + type] = Binary<T, T, Remainder>;
    table["min" + type] = Binary<T, T, Minimum>;
    table["max" + type] = Binary<T, T, Maximum>;
    table["neg" + type] = Unary<T, T, Negate>;
  });
  ForTypes<int32_t, int64_t>([&]<typename T>() {
    table[absl::StrCat("abs.", Name<T>::kText)] = Unary<T, T, Absolute>;
  });
  ForTypes<uint32_t, uint64_t>([&]<typename T>() {
    table[absl::StrCat("mul.hi.", Name<T>::kText)] = Binary<T, T, MultiplyHigh>;
  });
  table["mul.wide.u16"] = Binary<uint32_t, uint16_t, MultiplyWide>;
  table["mul.wide.s16"] = Binary<int32_t, int16_t, MultiplyWide>;
  table["mul.wide.u32"] = Binary<uint64_t, uint32_t, MultiplyWide>;
  table["mul.wide.s32"] = Binary<int64_t, int32_t, MultiplyWide>;
  table["mad.wide.u32"] = Ternary<uint64_t, uint32_t, MultiplyAddWide>;
  table["mad.wide.s32"] = Ternary<int64_t, int32_t, MultiplyAddWide>;
  ForTypes<float, double>([&]<typename T>() {
    const std::string type = absl::StrCat(".", Name<T>::kText);
    table["add.rn" + type] = table["add" + type] = Binary<T, T, Add>;
    table["sub.rn" + type] = table["sub" + type] = Binary<T, T, Subtract>;
    table["mul.rn" + type] = table["mul" + type] = Binary<T, T, Multiply>;
    table["div.rn" + type] = Binary<T, T, Divide>;
    table["rcp.rn" + type] = Unary<T, T, Reciprocal>;
    table["sqrt.rn" + type] = Unary<T, T, SquareRoot>;
    table["fma.rn" + type] = Ternary<T, T, FusedMultiplyAdd>;
    table["min" + type] = Binary<T, T, Minimum>;
    table["max" + type] = Binary<T, T, Maximum>;
    table["neg" + type] = Unary<T, T, Negate>;
    table["abs" + type] = Unary<T, T, Absolute>;
  });
  table["fma.rm.f32"] = Ternary<float, float, FusedMultiplyAddDown>;
  table["ex2.approx.ftz.f32"] = Unary<float, float, Power2>;
  table["lg2.approx.f32"] = Unary<float, float, Logarithm2>;
}

void AddComparisons(OperationTable& table) {
  const auto add = [&]<typename T>(const std::string& type) {
    table["setp.eq." + type] = Compare<T, Comparison::kEq>;
    table["setp.ne." + type] = Compare<T, Comparison::kNe>;
    table["setp.lt." + type] = Compare<T, Comparison::kLt>;
    table["setp.le." + type] = Compare<T, Comparison::kLe>;
    table["setp.gt." + type] = Compare<T, Comparison::kGt>;
    table["setp.ge." + type] = Compare<T, Comparison::kGe>;
    if constexpr (std::is_floating_point_v<T>) {
      table["setp.num." + type] = Compare<T, Comparison::kNum>;
      table["setp.nan." + type] = Compare<T, Comparison::kNan>;
    }
  };
  ForIntegers(
      [&]<typename T>() { add.template operator()<T>(Name<T>::kText); });
  ForTypes<uint16_t, uint32_t, uint64_t>([&]<typename T>() {
    add.template operator()<T>(absl::StrCat("b", 8 * sizeof(T)));
  });
  add.template operator()<float>("f32");
  add.template operator()<double>("f64");
}

}  // namespace causeway::ptx
