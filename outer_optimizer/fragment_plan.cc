// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "outer_optimizer/fragment_plan.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/config/run_config.h"
#include "common/status_macros.h"
#include "glog/logging.h"

namespace causeway {
namespace {

std::vector<int64_t> BlockSizes(const ModelLayout& layout) {
  std::vector<int64_t> sizes;
  for (const TensorSpec& tensor : layout.tensors) {
    if (tensor.block < 0) continue;
    const size_t block = static_cast<size_t>(tensor.block);
    if (block >= sizes.size()) sizes.resize(block + 1);
    sizes[block] += tensor.size;
  }
  return sizes;
}

// Puts each block, largest first, into the lightest bin (the first of equals).
// There are at least as many blocks as bins, so no bin stays empty.
std::vector<uint32_t> PackBlocks(const std::vector<int64_t>& sizes,
                                 uint32_t bins) {
  std::vector<size_t> order(sizes.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return sizes[a] > sizes[b]; });
  std::vector<uint32_t> bin_of_block(sizes.size());
  std::vector<int64_t> load(bins);
  for (const size_t block : order) {
    const auto lightest = std::min_element(load.begin(), load.end());
    *lightest += sizes[block];
    bin_of_block[block] = static_cast<uint32_t>(lightest - load.begin());
  }
  return bin_of_block;
}

// Returns the fragment of each block, among the first `bins` fragments.
std::vector<uint32_t> AssignBlocks(const std::vector<int64_t>& sizes,
                                   uint32_t bins,
                                   v1::SynchronizationConfig::Pattern pattern) {
  if (pattern == v1::SynchronizationConfig::BALANCED) {
    return PackBlocks(sizes, bins);
  }
  const uint64_t blocks = sizes.size();
  const bool sequential = pattern == v1::SynchronizationConfig::SEQUENTIAL;
  std::vector<uint32_t> fragment_of_block(blocks);
  for (uint64_t block = 0; block < blocks; ++block) {
    // Bin i begins at block ceil(i * blocks / bins): sizes differ by at most
    // one.
    fragment_of_block[block] = static_cast<uint32_t>(
        sequential ? block * bins / blocks : block % bins);
  }
  return fragment_of_block;
}

std::string ShapeText(absl::Span<const int64_t> shape) {
  return absl::StrFormat("[%s]", absl::StrJoin(shape, ", "));
}

// Checks that the placement has the shape of `tensor` and begins at `offset`.
absl::Status CheckPlacement(const v1::TensorPlacement& placement,
                            const TensorSpec& tensor, uint64_t offset) {
  const std::vector<int64_t> shape(placement.shape().begin(),
                                   placement.shape().end());
  if (shape != tensor.shape) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "fragment plan: tensor %s has shape %s, the model's has %s",
        tensor.name, ShapeText(shape), ShapeText(tensor.shape)));
  }
  if (placement.offset() != offset) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "fragment plan: tensor %s lies at offset %d, want %d (right after the "
        "one before)",
        tensor.name, placement.offset(), offset));
  }
  return absl::OkStatus();
}

}  // namespace

uint32_t MostFragments(const ModelLayout& layout) {
  const bool has_rest =
      std::any_of(layout.tensors.begin(), layout.tensors.end(),
                  [](const TensorSpec& tensor) { return tensor.block < 0; });
  return CountBlocks(layout) + (has_rest ? 1 : 0);
}

absl::StatusOr<v1::FragmentPlan> MakeFragmentPlan(const ModelLayout& layout,
                                                  const v1::RunConfig& config) {
  const v1::SynchronizationConfig& synchronization = config.synchronization();
  const uint32_t fragments = synchronization.fragments();
  const uint32_t round_steps = synchronization.inner_steps_per_round();
  const std::vector<int64_t> block_sizes = BlockSizes(layout);
  const uint32_t most = MostFragments(layout);
  const bool only_blocks = most == block_sizes.size();
  if (fragments < 1 || fragments > most) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "synchronization.fragments is %d; a model of %d blocks takes 1 to %d%s",
        fragments, block_sizes.size(), most,
        config.has_tensors()
            ? "; blocks are found by numbers in names, as in layers.3.; say "
              "where with tensors.block (create_run(block=...))"
            : ""));
  }
  std::vector<uint32_t> fragment_of_block(block_sizes.size(), 0);
  if (fragments > 1) {
    fragment_of_block =
        AssignBlocks(block_sizes, only_blocks ? fragments : fragments - 1,
                     synchronization.pattern());
  }

  const uint64_t offset_steps =
      WaitsForUpdates(synchronization) ? 0 : round_steps / fragments;
  v1::FragmentPlan plan;
  for (uint32_t id = 0; id < fragments; ++id) {
    v1::Fragment& fragment = *plan.add_fragments();
    fragment.set_id(id);
    fragment.set_send_offset_steps(id * offset_steps);
  }
  for (const TensorSpec& tensor : layout.tensors) {
    const uint32_t id =
        tensor.block < 0 ? fragments - 1
                         : fragment_of_block[static_cast<size_t>(tensor.block)];
    v1::Fragment& fragment = *plan.mutable_fragments(static_cast<int>(id));
    v1::TensorPlacement& placement = *fragment.add_tensors();
    placement.set_name(tensor.name);
    for (const int64_t extent : tensor.shape) {
      placement.add_shape(static_cast<uint64_t>(extent));
    }
    placement.set_offset(fragment.size());
    fragment.set_size(fragment.size() + static_cast<uint64_t>(tensor.size));
  }
  return plan;
}

absl::StatusOr<FragmentMap> FragmentMap::Create(const ModelLayout& layout,
                                                const v1::FragmentPlan& plan) {
  absl::flat_hash_map<std::string, const TensorSpec*> free_tensors;
  for (const TensorSpec& tensor : layout.tensors) {
    free_tensors.emplace(tensor.name, &tensor);
  }
  FragmentMap map;
  map.model_size_ = static_cast<uint64_t>(layout.size);
  for (const v1::Fragment& fragment : plan.fragments()) {
    if (fragment.id() != map.parts_.size()) {
      return absl::InvalidArgumentError(
          absl::StrFormat("fragment plan: fragment %d is listed at position %d",
                          fragment.id(), map.parts_.size()));
    }
    Part part;
    for (const v1::TensorPlacement& placement : fragment.tensors()) {
      const auto found = free_tensors.find(placement.name());
      if (found == free_tensors.end()) {
        return absl::InvalidArgumentError(absl::StrFormat(
            "fragment plan: tensor %s of fragment %d is not in the model, or "
            "is in the plan twice",
            placement.name(), fragment.id()));
      }
      const TensorSpec& tensor = *found->second;
      RETURN_IF_ERROR(CheckPlacement(placement, tensor, part.size));
      free_tensors.erase(found);
      const uint64_t model_offset = static_cast<uint64_t>(tensor.offset);
      const uint64_t size = static_cast<uint64_t>(tensor.size);
      if (!part.segments.empty() &&
          part.segments.back().model_offset + part.segments.back().size ==
              model_offset) {
        part.segments.back().size += size;
      } else {
        part.segments.push_back({.model_offset = model_offset,
                                 .fragment_offset = part.size,
                                 .size = size});
      }
      part.size += size;
    }
    if (part.size != fragment.size()) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "fragment plan: fragment %d has %d values, its tensors have %d",
          fragment.id(), fragment.size(), part.size));
    }
    map.parts_.push_back(std::move(part));
  }
  for (const TensorSpec& tensor : layout.tensors) {
    if (free_tensors.contains(tensor.name)) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "fragment plan: no fragment holds tensor %s", tensor.name));
    }
  }
  return map;
}

void FragmentMap::Gather(uint32_t fragment, absl::Span<const float> model,
                         absl::Span<float> values) const {
  CHECK_EQ(model.size(), model_size_);
  CHECK_EQ(values.size(), size(fragment));
  for (const Segment& segment : segments(fragment)) {
    std::copy_n(model.begin() + segment.model_offset, segment.size,
                values.begin() + segment.fragment_offset);
  }
}

void FragmentMap::Scatter(uint32_t fragment, absl::Span<const float> values,
                          absl::Span<float> model) const {
  CHECK_EQ(model.size(), model_size_);
  CHECK_EQ(values.size(), size(fragment));
  for (const Segment& segment : segments(fragment)) {
    std::copy_n(values.begin() + segment.fragment_offset, segment.size,
                model.begin() + segment.model_offset);
  }
}

}  // namespace causeway
