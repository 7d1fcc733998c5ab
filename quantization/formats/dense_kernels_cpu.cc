// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "quantization/formats/dense_kernels_cpu.h"

#include <cstdint>
#include <cstring>

#include "quantization/formats/dense_reference.h"

// Highway compiles this file once for each instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quantization/formats/dense_kernels_cpu.cc"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace causeway {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::ScalableTag<float>;
using Words = hn::ScalableTag<uint32_t>;
using Halves = hn::Rebind<uint16_t, Words>;

// The distance, in bytes, of prefetches ahead of the reads. The outer step goes
// from one encoded vector to the next every few pages, too often for the
// hardware's prefetcher; this is about as far as it walks in each. Prefetching
// beyond the end of an array is harmless.
constexpr size_t kPrefetchBytes = 4096;

template <typename T>
T LoadUnaligned(const char* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

// These load encoded values: a vector, or one for the rest of an array. LoadU
// and StoreU compile to x86's loads and stores of unaligned lanes.
struct Fp32 {
  static constexpr size_t kBytes = 4;
  static hn::Vec<Floats> Load(const char* encoded) {
    return hn::LoadU(Floats(), reinterpret_cast<const float*>(encoded));
  }
  static float LoadOne(const char* encoded) {
    return LoadUnaligned<float>(encoded);
  }
};
struct Bf16 {
  static constexpr size_t kBytes = 2;
  static hn::Vec<Floats> Load(const char* encoded) {
    const hn::Vec<Halves> codes =
        hn::LoadU(Halves(), reinterpret_cast<const uint16_t*>(encoded));
    return hn::BitCast(Floats(),
                       hn::ShiftLeft<16>(hn::PromoteTo(Words(), codes)));
  }
  static float LoadOne(const char* encoded) {
    return FloatFromBf16(LoadUnaligned<uint16_t>(encoded));
  }
};

void EncodeBf16Kernel(const float* values, size_t count, char* encoded) {
  const Floats floats;
  const Words words;
  const size_t lanes = hn::Lanes(floats);
  size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto value = hn::LoadU(floats, values + i);
    const auto bits = hn::BitCast(words, value);
    const auto upper = hn::ShiftRight<16>(bits);
    const auto half =
        hn::Add(hn::Set(words, 0x7fff), hn::And(upper, hn::Set(words, 1)));
    const auto rounded = hn::ShiftRight<16>(hn::Add(bits, half));
    const auto quiet = hn::Or(upper, hn::Set(words, 0x0040));
    const auto nan = hn::RebindMask(words, hn::IsNaN(value));
    const auto code = hn::IfThenElse(nan, quiet, rounded);
    hn::StoreU(hn::TruncateTo(Halves(), code), Halves(),
               reinterpret_cast<uint16_t*>(encoded + 2 * i));
  }
  for (; i < count; ++i) {
    const uint16_t code = Bf16FromFloat(values[i]);
    std::memcpy(encoded + 2 * i, &code, sizeof(code));
  }
}

void DecodeBf16Kernel(const char* encoded, size_t count, float* values) {
  const Floats floats;
  const size_t lanes = hn::Lanes(floats);
  size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    hn::StoreU(Bf16::Load(encoded + 2 * i), floats, values + i);
  }
  for (; i < count; ++i) values[i] = Bf16::LoadOne(encoded + 2 * i);
}

template <class Format>
void DecodeAccumulate(const char* encoded, size_t count, float weight,
                      float* accumulator) {
  const Floats floats;
  const size_t lanes = hn::Lanes(floats);
  const auto weights = hn::Set(floats, weight);
  size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const char* const at = encoded + Format::kBytes * i;
    hwy::Prefetch(at + kPrefetchBytes);
    const auto product = hn::Mul(weights, Format::Load(at));
    hn::StoreU(hn::Add(hn::LoadU(floats, accumulator + i), product), floats,
               accumulator + i);
  }
  for (; i < count; ++i) {
    accumulator[i] = Accumulate(accumulator[i], weight,
                                Format::LoadOne(encoded + Format::kBytes * i));
  }
}

// x - x is 0 for finite x and NaN otherwise, and a NaN stays in a sum.
template <class Format>
bool AllFinite(const char* encoded, size_t count) {
  const Floats floats;
  const size_t lanes = hn::Lanes(floats);
  auto sum = hn::Zero(floats);
  size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto value = Format::Load(encoded + Format::kBytes * i);
    sum = hn::Add(sum, hn::Sub(value, value));
  }
  float tail = hn::GetLane(hn::SumOfLanes(floats, sum));
  for (; i < count; ++i) {
    const float value = Format::LoadOne(encoded + Format::kBytes * i);
    tail += value - value;
  }
  return tail == 0;
}

void DecodeAccumulateBf16Kernel(const char* encoded, size_t count, float weight,
                                float* accumulator) {
  DecodeAccumulate<Bf16>(encoded, count, weight, accumulator);
}
void DecodeAccumulateFp32Kernel(const char* encoded, size_t count, float weight,
                                float* accumulator) {
  DecodeAccumulate<Fp32>(encoded, count, weight, accumulator);
}
bool AllFiniteBf16Kernel(const char* encoded, size_t count) {
  return AllFinite<Bf16>(encoded, count);
}
bool AllFiniteFp32Kernel(const char* encoded, size_t count) {
  return AllFinite<Fp32>(encoded, count);
}

void AddSquaresKernel(const float* values, size_t count, SquareSums& sums) {
  // Four chains of additions hide each other's latency.
  constexpr size_t kChains = 4;
  const hn::CappedTag<double, SquareSums::kCount / kChains> doubles;
  const hn::Rebind<float, decltype(doubles)> floats;
  const size_t lanes = hn::Lanes(doubles);
  const size_t whole = count / SquareSums::kCount * SquareSums::kCount;
  const auto square = [&](size_t at) HWY_ATTR {
    const auto value = hn::PromoteTo(doubles, hn::LoadU(floats, values + at));
    return hn::Mul(value, value);
  };
  for (size_t j = 0; j < SquareSums::kCount; j += kChains * lanes) {
    double* const partial = sums.partial + j;
    auto a = hn::LoadU(doubles, partial);
    auto b = hn::LoadU(doubles, partial + lanes);
    auto c = hn::LoadU(doubles, partial + 2 * lanes);
    auto d = hn::LoadU(doubles, partial + 3 * lanes);
    for (size_t i = j; i < whole; i += SquareSums::kCount) {
      a = hn::Add(a, square(i));
      b = hn::Add(b, square(i + lanes));
      c = hn::Add(c, square(i + 2 * lanes));
      d = hn::Add(d, square(i + 3 * lanes));
    }
    hn::StoreU(a, doubles, partial);
    hn::StoreU(b, doubles, partial + lanes);
    hn::StoreU(c, doubles, partial + 2 * lanes);
    hn::StoreU(d, doubles, partial + 3 * lanes);
  }
  for (size_t i = whole; i < count; ++i) {
    const double value = static_cast<double>(values[i]);
    sums.partial[i - whole] += value * value;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace causeway
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace causeway {

HWY_EXPORT(EncodeBf16Kernel);
HWY_EXPORT(DecodeBf16Kernel);
HWY_EXPORT(DecodeAccumulateBf16Kernel);
HWY_EXPORT(DecodeAccumulateFp32Kernel);
HWY_EXPORT(AllFiniteBf16Kernel);
HWY_EXPORT(AllFiniteFp32Kernel);
HWY_EXPORT(AddSquaresKernel);

void EncodeBf16(const float* values, size_t count, char* encoded) {
  HWY_DYNAMIC_DISPATCH(EncodeBf16Kernel)(values, count, encoded);
}

void DecodeBf16(const char* encoded, size_t count, float* values) {
  HWY_DYNAMIC_DISPATCH(DecodeBf16Kernel)(encoded, count, values);
}

void DecodeAccumulateBf16(const char* encoded, size_t count, float weight,
                          float* accumulator) {
  HWY_DYNAMIC_DISPATCH(DecodeAccumulateBf16Kernel)
  (encoded, count, weight, accumulator);
}

void DecodeAccumulateFp32(const char* encoded, size_t count, float weight,
                          float* accumulator) {
  HWY_DYNAMIC_DISPATCH(DecodeAccumulateFp32Kernel)
  (encoded, count, weight, accumulator);
}

bool AllFiniteBf16(const char* encoded, size_t count) {
  return HWY_DYNAMIC_DISPATCH(AllFiniteBf16Kernel)(encoded, count);
}

bool AllFiniteFp32(const char* encoded, size_t count) {
  return HWY_DYNAMIC_DISPATCH(AllFiniteFp32Kernel)(encoded, count);
}

double SquareSums::Total() const {
  double sum = 0;
  for (const double part : partial) sum += part;
  return sum;
}

void AddSquares(const float* values, size_t count, SquareSums& sums) {
  HWY_DYNAMIC_DISPATCH(AddSquaresKernel)(values, count, sums);
}

double SumOfSquares(const float* values, size_t count) {
  SquareSums sums;
  AddSquares(values, count, sums);
  return sums.Total();
}

}  // namespace causeway
#endif  // HWY_ONCE
