// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Cuts a model into fragments, and copies between a fragment's vector and the
// flat vector of the whole model.
//
// The coordinator makes the plan once, when it creates the run. All others
// receive the plan and resolve it against the model's layout:
//
//   ASSIGN_OR_RETURN(FragmentMap map, FragmentMap::Create(layout, plan));
//   std::vector<float> values(map.size(fragment));
//   map.Gather(fragment, parameters, absl::MakeSpan(values));
//
// Source: Streaming DiLoCo (Douillard et al., arXiv 2501.18512), section 2.2:
// fragments are groups of whole transformer blocks.
#ifndef OUTER_OPTIMIZER_FRAGMENT_PLAN_H_
#define OUTER_OPTIMIZER_FRAGMENT_PLAN_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/tensors/model_layout.h"
#include "proto/fragment.pb.h"
#include "proto/run_config.pb.h"

namespace causeway {

// Returns the most fragments that a plan may have: one for each block, and one
// for all tensors outside of blocks, if there are any.
uint32_t MostFragments(const ModelLayout& layout);

// Makes the plan. With P = config.synchronization.fragments:
//   P = 1   one fragment of all tensors, in layout order.
//   P >= 2  fragments 0 .. P - 2 hold whole blocks by the pattern; fragment
//           P - 1 holds what is in no block: embedding, final norm and head. If
//           every tensor is in a block, all P fragments hold blocks.
// The tensors of a fragment are in layout order. Fragment p is sent with the
// offset t_p = p * floor(H / P), or 0 if overlap_steps and max_overlap_steps
// are 0: islands that wait for updates then wait once a round, for all
// fragments, some of which go up while others come down.
//   INVALID_ARGUMENT  P is not in [1, MostFragments(layout)].
absl::StatusOr<v1::FragmentPlan> MakeFragmentPlan(const ModelLayout& layout,
                                                  const v1::RunConfig& config);

// A plan whose tensors have been found in the layout. Immutable, thread-safe.
class FragmentMap {
 public:
  // A run of values that is consecutive in both vectors.
  struct Segment {
    uint64_t model_offset = 0;
    uint64_t fragment_offset = 0;
    uint64_t size = 0;

    friend bool operator==(const Segment&, const Segment&) = default;
  };

  // Returns INVALID_ARGUMENT unless every tensor of the layout is in the plan
  // exactly once, with its shape, and the tensors of each fragment are
  // consecutive. The message names the first wrong tensor.
  static absl::StatusOr<FragmentMap> Create(const ModelLayout& layout,
                                            const v1::FragmentPlan& plan);

  uint32_t fragments() const { return static_cast<uint32_t>(parts_.size()); }
  // The number of values in the whole model, and in a fragment.
  uint64_t model_size() const { return model_size_; }
  uint64_t size(uint32_t fragment) const { return parts_[fragment].size; }
  // The fragment's segments, in fragment order. Neighbouring tensors share one,
  // so they are few and long.
  absl::Span<const Segment> segments(uint32_t fragment) const {
    return parts_[fragment].segments;
  }

  // Copies a fragment out of the model's flat vector (of model_size() values)
  // and back. `values` has size(fragment) values.
  void Gather(uint32_t fragment, absl::Span<const float> model,
              absl::Span<float> values) const;
  void Scatter(uint32_t fragment, absl::Span<const float> values,
               absl::Span<float> model) const;

 private:
  struct Part {
    uint64_t size = 0;
    std::vector<Segment> segments;
  };

  FragmentMap() = default;

  uint64_t model_size_ = 0;
  std::vector<Part> parts_;
};

}  // namespace causeway

#endif  // OUTER_OPTIMIZER_FRAGMENT_PLAN_H_
