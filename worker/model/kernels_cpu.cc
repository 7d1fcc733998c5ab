// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/model/kernels_cpu.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

// Highway compiles this file once per instruction set: foreach_target.h
// includes it repeatedly, with a different HWY_NAMESPACE and compiler target
// each time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "worker/model/kernels_cpu.cc"
#include "hwy/foreach_target.h"
// foreach_target.h has to come before the rest of Highway.
#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace causeway {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Vector = hn::ScalableTag<float>;
// A vector of one value, so that the same code serves the values left at the
// end of a row.
using Single = hn::CappedTag<float, 1>;

// Calls body(tag, i) for vectors at i = begin, begin + lanes, ..., then for the
// single values that are left.
template <typename Body>
HWY_INLINE void ForEach(int64_t begin, int64_t end, const Body& body) {
  const Vector tag;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(tag));
  int64_t i = begin;
  for (; i + lanes <= end; i += lanes) body(tag, i);
  for (; i < end; ++i) body(Single(), i);
}

// Returns the sum of term(tag, i) over [0, size): one partial sum per lane, in
// a fixed order.
template <typename Term>
HWY_INLINE float SumOf(int64_t size, const Term& term) {
  const Vector tag;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(tag));
  // There are two chains because an addition takes several cycles.
  auto sum0 = hn::Zero(tag);
  auto sum1 = hn::Zero(tag);
  int64_t i = 0;
  for (; i + 2 * lanes <= size; i += 2 * lanes) {
    sum0 = hn::Add(sum0, term(tag, i));
    sum1 = hn::Add(sum1, term(tag, i + lanes));
  }
  if (i + lanes <= size) {
    sum0 = hn::Add(sum0, term(tag, i));
    i += lanes;
  }
  float sum = hn::GetLane(hn::SumOfLanes(tag, hn::Add(sum0, sum1)));
  for (; i < size; ++i) sum += hn::GetLane(term(Single(), i));
  return sum;
}

HWY_INLINE float MaxOf(const float* values, int64_t size) {
  const Vector tag;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(tag));
  float max = values[0];
  int64_t i = 0;
  if (size >= lanes) {
    auto vector = hn::LoadU(tag, values);
    for (i = lanes; i + lanes <= size; i += lanes) {
      vector = hn::Max(vector, hn::LoadU(tag, values + i));
    }
    max = hn::GetLane(hn::MaxOfLanes(tag, vector));
  }
  for (; i < size; ++i) max = std::max(max, values[i]);
  return max;
}

// values[i] <- exp(values[i] - shift); returns the sum of the results.
HWY_INLINE float ExpInPlace(float shift, int64_t size, float* values) {
  return SumOf(size, [=](auto tag, int64_t i) HWY_ATTR {
    const auto x = hn::Sub(hn::LoadU(tag, values + i), hn::Set(tag, shift));
    // Highway's Exp turns NaN into 0, which would hide that training diverged.
    const auto e = hn::IfThenElse(hn::Eq(x, x), hn::Exp(tag, x), x);
    hn::StoreU(e, tag, values + i);
    return e;
  });
}

template <class Tag, class Vec>
HWY_INLINE Vec Sigmoid(Tag tag, Vec x) {
  const auto one = hn::Set(tag, 1.0f);
  return hn::Div(one, hn::Add(one, hn::Exp(tag, hn::Neg(x))));
}

void RmsNormRows(const float* x, const float* delta, const float* gain,
                 int64_t rows, int64_t width, float epsilon, float* sum,
                 float* inverse_rms, float* normalized) {
  for (int64_t r = 0; r < rows; ++r) {
    const float* row = x + r * width;
    float squares;
    if (delta == nullptr) {
      squares = SumOf(width, [=](auto tag, int64_t i) HWY_ATTR {
        const auto v = hn::LoadU(tag, row + i);
        return hn::Mul(v, v);
      });
    } else {
      const float* delta_row = delta + r * width;
      float* sum_row = sum + r * width;
      squares = SumOf(width, [=](auto tag, int64_t i) HWY_ATTR {
        const auto v =
            hn::Add(hn::LoadU(tag, row + i), hn::LoadU(tag, delta_row + i));
        hn::StoreU(v, tag, sum_row + i);
        return hn::Mul(v, v);
      });
      row = sum_row;
    }
    const float scale =
        1 / std::sqrt(squares / static_cast<float>(width) + epsilon);
    inverse_rms[r] = scale;
    float* out = normalized + r * width;
    ForEach(0, width, [=](auto tag, int64_t i) HWY_ATTR {
      const auto v = hn::Mul(hn::LoadU(tag, row + i), hn::Set(tag, scale));
      hn::StoreU(hn::Mul(v, hn::LoadU(tag, gain + i)), tag, out + i);
    });
  }
}

void RmsNormBackwardRows(const float* d_normalized, const float* x,
                         const float* inverse_rms, const float* gain,
                         int64_t rows, int64_t width, bool accumulate,
                         float* d_x, float* d_gain, float* normalized) {
  for (int64_t r = 0; r < rows; ++r) {
    const float* x_row = x + r * width;
    const float* dy_row = d_normalized + r * width;
    float* out = normalized + r * width;
    float* dx_row = d_x + r * width;
    const float s = inverse_rms[r];
    const float dot = SumOf(width, [=](auto tag, int64_t i) HWY_ATTR {
      const auto dy = hn::LoadU(tag, dy_row + i);
      const auto g = hn::LoadU(tag, gain + i);
      const auto unit = hn::Mul(hn::LoadU(tag, x_row + i), hn::Set(tag, s));
      hn::StoreU(hn::MulAdd(dy, unit, hn::LoadU(tag, d_gain + i)), tag,
                 d_gain + i);
      hn::StoreU(hn::Mul(unit, g), tag, out + i);
      return hn::Mul(hn::Mul(g, dy), unit);
    });
    // With unit = x s:  dx = s (g dy - unit mean(g dy unit)).
    const float factor = -s * s * (dot / static_cast<float>(width));
    ForEach(0, width, [=](auto tag, int64_t i) HWY_ATTR {
      const auto dy =
          hn::Mul(hn::LoadU(tag, gain + i), hn::LoadU(tag, dy_row + i));
      const auto from_mean =
          hn::Mul(hn::LoadU(tag, x_row + i), hn::Set(tag, factor));
      auto d = hn::MulAdd(dy, hn::Set(tag, s), from_mean);
      if (accumulate) d = hn::Add(d, hn::LoadU(tag, dx_row + i));
      hn::StoreU(d, tag, dx_row + i);
    });
  }
}

void RopeHeads(const float* cosine, const float* sine, int64_t heads,
               int64_t head_dim, float sign, float* values) {
  const int64_t half = head_dim / 2;
  for (int64_t h = 0; h < heads; ++h) {
    float* low = values + h * head_dim;
    float* high = low + half;
    ForEach(0, half, [=](auto tag, int64_t i) HWY_ATTR {
      const auto c = hn::LoadU(tag, cosine + i);
      const auto s = hn::Mul(hn::LoadU(tag, sine + i), hn::Set(tag, sign));
      const auto a = hn::LoadU(tag, low + i);
      const auto b = hn::LoadU(tag, high + i);
      hn::StoreU(hn::NegMulAdd(b, s, hn::Mul(a, c)), tag, low + i);
      hn::StoreU(hn::MulAdd(a, s, hn::Mul(b, c)), tag, high + i);
    });
  }
}

void SwiGluRows(const float* gate_up, int64_t rows, int64_t width,
                float* output) {
  for (int64_t r = 0; r < rows; ++r) {
    const float* gates = gate_up + 2 * r * width;
    const float* ups = gates + width;
    float* out = output + r * width;
    ForEach(0, width, [=](auto tag, int64_t i) HWY_ATTR {
      const auto gate = hn::LoadU(tag, gates + i);
      const auto silu = hn::Mul(gate, Sigmoid(tag, gate));
      hn::StoreU(hn::Mul(silu, hn::LoadU(tag, ups + i)), tag, out + i);
    });
  }
}

void SwiGluBackwardRows(const float* gate_up, const float* d_output,
                        int64_t rows, int64_t width, float* d_gate_up,
                        float* output) {
  for (int64_t r = 0; r < rows; ++r) {
    const float* gates = gate_up + 2 * r * width;
    const float* ups = gates + width;
    const float* d_row = d_output + r * width;
    float* d_gates = d_gate_up + 2 * r * width;
    float* d_ups = d_gates + width;
    float* out = output + r * width;
    ForEach(0, width, [=](auto tag, int64_t i) HWY_ATTR {
      const auto gate = hn::LoadU(tag, gates + i);
      const auto up = hn::LoadU(tag, ups + i);
      const auto d = hn::LoadU(tag, d_row + i);
      const auto sigmoid = Sigmoid(tag, gate);
      const auto silu = hn::Mul(gate, sigmoid);
      // d silu / d gate = sigmoid + silu (1 - sigmoid).
      const auto slope = hn::Add(hn::NegMulAdd(silu, sigmoid, silu), sigmoid);
      hn::StoreU(hn::Mul(hn::Mul(d, up), slope), tag, d_gates + i);
      hn::StoreU(hn::Mul(d, silu), tag, d_ups + i);
      hn::StoreU(hn::Mul(silu, up), tag, out + i);
    });
  }
}

void Scale(float factor, int64_t size, float* values) {
  ForEach(0, size, [=](auto tag, int64_t i) HWY_ATTR {
    hn::StoreU(hn::Mul(hn::LoadU(tag, values + i), hn::Set(tag, factor)), tag,
               values + i);
  });
}

void Add(const float* values, int64_t size, float* into) {
  ForEach(0, size, [=](auto tag, int64_t i) HWY_ATTR {
    hn::StoreU(hn::Add(hn::LoadU(tag, into + i), hn::LoadU(tag, values + i)),
               tag, into + i);
  });
}

void LinearCombination(float a, const float* x, float b, const float* y,
                       int64_t size, float* to) {
  ForEach(0, size, [=](auto tag, int64_t i) HWY_ATTR {
    const auto scaled = hn::Mul(hn::Set(tag, b), hn::LoadU(tag, y + i));
    hn::StoreU(hn::MulAdd(hn::Set(tag, a), hn::LoadU(tag, x + i), scaled), tag,
               to + i);
  });
}

float Dot(const float* a, const float* b, int64_t size) {
  return SumOf(size, [=](auto tag, int64_t i) HWY_ATTR {
    return hn::Mul(hn::LoadU(tag, a + i), hn::LoadU(tag, b + i));
  });
}

void CrossEntropyRows(const int32_t* targets, int64_t rows, int64_t vocab_size,
                      bool gradient, float scale, float* logits,
                      float* losses) {
  for (int64_t r = 0; r < rows; ++r) {
    float* row = logits + r * vocab_size;
    if (targets[r] < 0) {
      losses[r] = 0;
      if (gradient) std::fill(row, row + vocab_size, 0.0f);
      continue;
    }
    const float max = MaxOf(row, vocab_size);
    const float target = row[targets[r]] - max;
    const float sum = ExpInPlace(max, vocab_size, row);
    losses[r] = std::log(sum) - target;
    if (!gradient) continue;
    Scale(scale / sum, vocab_size, row);
    row[targets[r]] -= scale;
  }
}

void CausalExpRows(int64_t rows, int64_t first, int64_t width, float* scores,
                   float* inverse_sum, float* log_sum_exp) {
  for (int64_t r = 0; r < rows; ++r, scores += width) {
    const int64_t keys = first + r + 1;
    const float max = MaxOf(scores, keys);
    const float sum = ExpInPlace(max, keys, scores);
    std::fill(scores + keys, scores + width, 0.0f);
    inverse_sum[r] = 1 / sum;
    log_sum_exp[r] = max + std::log(sum);
  }
}

void CausalExpBackwardRows(int64_t rows, int64_t first, int64_t width,
                           const float* log_sum_exp, const float* mean,
                           float scale, float* scores, float* d_scores) {
  for (int64_t r = 0; r < rows; ++r, scores += width, d_scores += width) {
    const int64_t keys = first + r + 1;
    ForEach(0, keys, [=](auto tag, int64_t i) HWY_ATTR {
      const auto p = hn::Exp(tag, hn::Sub(hn::LoadU(tag, scores + i),
                                          hn::Set(tag, log_sum_exp[r])));
      const auto d =
          hn::Sub(hn::LoadU(tag, d_scores + i), hn::Set(tag, mean[r]));
      hn::StoreU(p, tag, scores + i);
      hn::StoreU(hn::Mul(hn::Mul(p, hn::Set(tag, scale)), d), tag,
                 d_scores + i);
    });
    std::fill(scores + keys, scores + width, 0.0f);
    std::fill(d_scores + keys, d_scores + width, 0.0f);
  }
}

// Returns the sum of term(values) in double, for vectors of half as many
// values.
template <typename Term>
HWY_INLINE double DoubleSumOf(const float* values, int64_t size,
                              const Term& term) {
  const hn::ScalableTag<double> wide;
  const hn::Rebind<float, decltype(wide)> narrow;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(wide));
  auto sum0 = hn::Zero(wide);
  auto sum1 = hn::Zero(wide);
  int64_t i = 0;
  for (; i + 2 * lanes <= size; i += 2 * lanes) {
    sum0 =
        hn::Add(sum0, term(hn::PromoteTo(wide, hn::LoadU(narrow, values + i))));
    sum1 = hn::Add(
        sum1, term(hn::PromoteTo(wide, hn::LoadU(narrow, values + i + lanes))));
  }
  double sum = hn::GetLane(hn::SumOfLanes(wide, hn::Add(sum0, sum1)));
  const hn::CappedTag<double, 1> single;
  for (; i < size; ++i) {
    sum += hn::GetLane(term(hn::Set(single, static_cast<double>(values[i]))));
  }
  return sum;
}

double Sum(const float* values, int64_t size) {
  return DoubleSumOf(values, size, [](auto v) HWY_ATTR { return v; });
}

double SquaredNorm(const float* values, int64_t size) {
  return DoubleSumOf(values, size,
                     [](auto v) HWY_ATTR { return hn::Mul(v, v); });
}

// The moments and parameters after one update.
template <class Vec>
struct AdamWResult {
  Vec parameter;
  Vec first_moment;
  Vec second_moment;
};

template <class Tag, class Vec = hn::Vec<Tag>>
HWY_INLINE AdamWResult<Vec> AdamWUpdate(const AdamWCoefficients& c, Tag tag,
                                        Vec gradient, Vec parameter,
                                        Vec first_moment, Vec second_moment) {
  const auto g = hn::Mul(gradient, hn::Set(tag, c.gradient_scale));
  const auto share1 = hn::Set(tag, 1 - c.beta1);
  const auto share2 = hn::Set(tag, 1 - c.beta2);
  const auto m =
      hn::MulAdd(hn::Set(tag, c.beta1), first_moment, hn::Mul(share1, g));
  const auto v = hn::MulAdd(hn::Set(tag, c.beta2), second_moment,
                            hn::Mul(share2, hn::Mul(g, g)));
  const auto root =
      hn::MulAdd(hn::Sqrt(v), hn::Set(tag, c.inverse_sqrt_correction2),
                 hn::Set(tag, c.epsilon));
  const auto step = hn::Div(hn::Mul(hn::Set(tag, c.step_size), m), root);
  return {hn::MulSub(hn::Set(tag, c.decay), parameter, step), m, v};
}

void AdamW(const AdamWCoefficients& coefficients, const float* gradients,
           int64_t size, float* parameters, float* first_moment,
           float* second_moment, float* estimate) {
  const auto update = [=](auto tag, int64_t i) HWY_ATTR {
    return AdamWUpdate(coefficients, tag, hn::LoadU(tag, gradients + i),
                       hn::LoadU(tag, parameters + i),
                       hn::LoadU(tag, first_moment + i),
                       hn::LoadU(tag, second_moment + i));
  };
  if (estimate != nullptr) {
    return ForEach(0, size, [=](auto tag, int64_t i) HWY_ATTR {
      hn::StoreU(update(tag, i).parameter, tag, estimate + i);
    });
  }
  ForEach(0, size, [=](auto tag, int64_t i) HWY_ATTR {
    const auto result = update(tag, i);
    hn::StoreU(result.parameter, tag, parameters + i);
    hn::StoreU(result.first_moment, tag, first_moment + i);
    hn::StoreU(result.second_moment, tag, second_moment + i);
  });
}

constexpr ModelKernels kKernels = {
    RmsNormRows,   RmsNormBackwardRows,   RopeHeads,
    SwiGluRows,    SwiGluBackwardRows,    CrossEntropyRows,
    CausalExpRows, CausalExpBackwardRows, Scale,
    Add,           LinearCombination,     Dot,
    Sum,           SquaredNorm,           AdamW};

const ModelKernels* KernelsOfTarget() { return &kKernels; }

}  // namespace HWY_NAMESPACE
}  // namespace causeway
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace causeway {

HWY_EXPORT(KernelsOfTarget);

const ModelKernels& CpuModelKernels() {
  return *HWY_DYNAMIC_DISPATCH(KernelsOfTarget)();
}

}  // namespace causeway
#endif  // HWY_ONCE
