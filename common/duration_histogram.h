// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Counts durations by size, from a millisecond to a quarter of an hour in bins
// that double.
#ifndef COMMON_DURATION_HISTOGRAM_H_
#define COMMON_DURATION_HISTOGRAM_H_

#include "absl/time/time.h"
#include "proto/status.pb.h"

namespace causeway {

// Adds `duration` to a histogram that only this function has filled.
void AddTo(absl::Duration duration, v1::DurationHistogram& histogram);

// Returns the mean of all durations; 0 if there is none.
double MeanSeconds(const v1::DurationHistogram& histogram);

}  // namespace causeway

#endif  // COMMON_DURATION_HISTOGRAM_H_
