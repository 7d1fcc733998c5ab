// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Loops over arrays of any length in vectors, for sources that Highway compiles
// once per instruction set. Only such sources may include it, outside all of
// their namespaces, once per instruction set.
#if defined(WORKER_MODEL_VECTOR_LOOPS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WORKER_MODEL_VECTOR_LOOPS_INL_H_
#undef WORKER_MODEL_VECTOR_LOOPS_INL_H_
#else
#define WORKER_MODEL_VECTOR_LOOPS_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace causeway::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Vector = hn::ScalableTag<float>;
// A vector of one value, for the values left at the end of a row: the same code
// serves both.
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
  // There are two chains, since an addition takes several cycles.
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

}  // namespace causeway::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // WORKER_MODEL_VECTOR_LOOPS_INL_H_
