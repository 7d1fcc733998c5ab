// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Mixes several series into one by weights. The mixture repeats a cycle of
// kCycle places, over which each source's share is evenly spread. So a number's
// source, and its index in that source, need no state.
//
//   ASSIGN_OR_RETURN(const Mixture mixture, Mixture::Create({0.75, 0.25}));
//   mixture.At(0);  // {.source = 0, .index = 0}
//   mixture.At(1);  // {.source = 1, .index = 0}
//   mixture.At(2);  // {.source = 0, .index = 1}
#ifndef WORKER_DATA_MIXTURE_H_
#define WORKER_DATA_MIXTURE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace causeway {

// Immutable, thread-safe.
class Mixture {
 public:
  static constexpr int64_t kCycle = 1000;

  struct Place {
    size_t source = 0;
    // The number of earlier places with the same source.
    int64_t index = 0;
  };

  // Creates the mixture of `weights.size()` sources, whose shares are rounded
  // to 1 / kCycle.
  //   INVALID_ARGUMENT  there is no weight, one is not positive and finite, or
  //                     its share would be rounded to 0.
  static absl::StatusOr<Mixture> Create(absl::Span<const double> weights);

  // Returns the place of a number, which is not negative.
  Place At(int64_t number) const;

 private:
  Mixture() = default;

  // The places of the first cycle, and the number of them for each source.
  std::vector<Place> cycle_;
  std::vector<int64_t> counts_;
};

}  // namespace causeway

#endif  // WORKER_DATA_MIXTURE_H_
