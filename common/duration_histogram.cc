// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/duration_histogram.h"

#include <algorithm>
#include <cstdint>
#include <numeric>

namespace causeway {
namespace {

constexpr int kBounds = 21;

}  // namespace

void AddTo(absl::Duration duration, v1::DurationHistogram& histogram) {
  if (histogram.counts().empty()) {
    for (int i = 0; i < kBounds; ++i) {
      histogram.add_upper_bounds_seconds(0.001 * (1 << i));
    }
    histogram.mutable_counts()->Resize(kBounds + 1, 0);
  }
  const double seconds = absl::ToDoubleSeconds(duration);
  const auto& bounds = histogram.upper_bounds_seconds();
  const auto bin = static_cast<int>(
      std::lower_bound(bounds.begin(), bounds.end(), seconds) - bounds.begin());
  histogram.set_counts(bin, histogram.counts(bin) + 1);
  histogram.set_sum_seconds(histogram.sum_seconds() + seconds);
}

double MeanSeconds(const v1::DurationHistogram& histogram) {
  const uint64_t count = std::accumulate(histogram.counts().begin(),
                                         histogram.counts().end(), uint64_t{0});
  return count == 0 ? 0 : histogram.sum_seconds() / static_cast<double>(count);
}

}  // namespace causeway
