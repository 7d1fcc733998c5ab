// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The parameters of a run. Its configuration defines them by a `model`, or by
// `tensors`, of which only names and shapes are known.
//
//   new run        list or checkpoint -> MakeTensorsLayout -> plan
//   existing run   plan -> RunLayout
//
// A new run's layout comes from NewRunLayout
// (common/checkpoint/initial_values.h), because it may need a checkpoint.
#ifndef COMMON_TENSORS_TENSORS_LAYOUT_H_
#define COMMON_TENSORS_TENSORS_LAYOUT_H_

#include <fnmatch.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/tensors/model_layout.h"
#include "proto/fragment.pb.h"
#include "proto/run_config.pb.h"

namespace causeway {

// The most parameters of a run, 2^40: their fp32 values take 4 TiB.
inline constexpr int64_t kMostParameters = int64_t{1} << 40;

// Returns whether one of the patterns matches the whole name: `*` matches any
// characters, `?` one, and [...] one of a set (fnmatch(3)).
template <typename Patterns>
bool MatchesAny(const Patterns& patterns, const std::string& name) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](const std::string& pattern) {
                       return fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
                     });
}

struct NamedShape {
  std::string name;
  // The extents, row-major; empty for a scalar.
  std::vector<int64_t> shape;
};

// Returns the tensors that the configuration lists, in its order.
std::vector<NamedShape> ListedTensors(const v1::TensorsConfig& config);

// Returns the layout of `tensors` in their order, without those that the
// configuration excludes. Blocks are numbered from 0, without gaps, in the
// order of their first tensors' prefixes, then of their indices.
//   INVALID_ARGUMENT  A name is empty, too long, not printable or repeated; an
//                     extent is less than 1; all tensors together have more
//                     than kMostParameters values, or more names than a message
//                     holds; a pattern is not valid or matches no tensor; or no
//                     tensor is left.
absl::StatusOr<ModelLayout> MakeTensorsLayout(
    const v1::TensorsConfig& config, const std::vector<NamedShape>& tensors);

// Returns the layout of a run that has a plan: its model's, or else the tensors
// of the plan, one fragment after the other, without blocks.
//   INVALID_ARGUMENT  The plan's shapes are not possible.
absl::StatusOr<ModelLayout> RunLayout(const v1::RunConfig& config,
                                      const v1::FragmentPlan& plan);

}  // namespace causeway

#endif  // COMMON_TENSORS_TENSORS_LAYOUT_H_
