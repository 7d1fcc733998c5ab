// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/training/memory_advice.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/tensors/model_layout.h"
#include "outer_optimizer/fragment_plan.h"
#include "worker/model/transformer.h"
#include "worker/training/rank_trainer.h"

namespace causeway {
namespace {

// Covers the operations' scratch memory, the outer loop's pieces and
// fragmentation, but not the memory of cuDNN's gradient, without which
// attention uses other kernels.
constexpr int64_t kReserve = int64_t{192} << 20;

// Returns the bytes of a snapshot of the largest fragment. With anchors on the
// device, returns the bytes of all anchors, and of a snapshot and next anchor
// of the largest fragment, or of all fragments if their memory is reserved.
int64_t OuterLoopBytes(const v1::RunConfig& config, const ModelLayout& layout,
                       const RankShare& share) {
  const absl::StatusOr<v1::FragmentPlan> plan =
      MakeFragmentPlan(layout, config);
  if (!plan.ok()) return 0;
  const absl::StatusOr<FragmentMap> map = FragmentMap::Create(layout, *plan);
  if (!map.ok()) return 0;
  uint64_t largest = 0;
  for (uint32_t fragment = 0; fragment < map->fragments(); ++fragment) {
    largest = std::max(largest, map->size(fragment));
  }
  auto values = static_cast<int64_t>(largest);
  if (share.anchors_on_device) {
    values = layout.size + 2 * (share.reserves ? layout.size : values);
  }
  return values * int64_t{sizeof(float)} / share.ranks;
}

int64_t MiB(int64_t bytes) { return bytes >> 20; }

// Returns `config` with the largest micro-batch that divides a step and fits,
// or nothing if not even one sequence fits.
std::optional<v1::RunConfig> LargestThatFits(v1::RunConfig config,
                                             const RankShare& share,
                                             int64_t free_bytes, Ops* ops) {
  v1::TrainingConfig& training = *config.mutable_training();
  const uint32_t batch =
      training.batch_size() / static_cast<uint32_t>(share.ranks);
  for (uint32_t size = training.micro_batch_size(); size > 0; --size) {
    if (batch % size != 0) continue;
    training.set_micro_batch_size(size);
    if (TrainingBytes(config, share, ops) <= free_bytes) return config;
  }
  return std::nullopt;
}

}  // namespace

int64_t TrainingBytes(const v1::RunConfig& config, const RankShare& share,
                      Ops* ops) {
  const v1::TrainingConfig& training = config.training();
  const ModelLayout layout = MakeModelLayout(config.model());
  return RankTrainerBytes(training, layout, share.ranks) +
         OuterLoopBytes(config, layout, share) +
         Transformer::BytesNeeded(
             config.model(),
             {.micro_batch = training.micro_batch_size(),
              .recompute_activations = training.recompute_activations()},
             ops) +
         kReserve;
}

std::string MemoryAdvice(const v1::RunConfig& config, const RankShare& share,
                         int64_t free_bytes, Ops* ops) {
  v1::RunConfig frugal = config;
  frugal.mutable_training()->set_recompute_activations(true);
  std::string advice = absl::StrCat(
      "training.micro_batch_size ", config.training().micro_batch_size(),
      " needs about ", MiB(TrainingBytes(config, share, ops)), " MiB");
  if (free_bytes == std::numeric_limits<int64_t>::max()) {
    return absl::StrCat(advice, "; a smaller one, or ",
                        "training.recompute_activations, needs less");
  }
  absl::StrAppend(&advice, ", and ", MiB(free_bytes), " MiB were free; ");
  if (const auto fits = LargestThatFits(config, share, free_bytes, ops)) {
    return absl::StrCat(advice, fits->training().micro_batch_size(),
                        " would fit");
  }
  if (const auto fits = LargestThatFits(frugal, share, free_bytes, ops)) {
    return absl::StrCat(advice, fits->training().micro_batch_size(),
                        " would fit with training.recompute_activations");
  }
  frugal.mutable_training()->set_micro_batch_size(1);
  return absl::StrCat(
      advice, "one sequence with training.recompute_activations needs ",
      MiB(TrainingBytes(frugal, share, ops)),
      " MiB: the model needs a larger device, or more ranks to share the "
      "optimizer's state");
}

}  // namespace causeway
