// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/training/memory_advice.h"

#include <limits>
#include <memory>

#include "common/tensors/model_layout.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/model/ops_cpu.h"

namespace causeway {
namespace {

using testing::HasSubstr;

class MemoryAdviceTest : public testing::Test {
 protected:
  MemoryAdviceTest() {
    v1::ModelConfig& model = *config_.mutable_model();
    model.set_layers(8);
    model.set_hidden_size(256);
    model.set_intermediate_size(688);
    model.set_heads(4);
    model.set_kv_heads(4);
    model.set_vocab_size(4096);
    model.set_sequence_length(512);
    config_.mutable_training()->set_batch_size(48);
    config_.mutable_synchronization()->set_inner_steps_per_round(10);
    config_.mutable_synchronization()->set_fragments(1);
    SetMicroBatch(24);
  }

  void SetMicroBatch(uint32_t size, bool recompute = false) {
    config_.mutable_training()->set_micro_batch_size(size);
    config_.mutable_training()->set_recompute_activations(recompute);
  }
  int64_t Need() { return TrainingBytes(config_, share_, ops_.get()); }
  std::string Advice(int64_t free_bytes) {
    SetMicroBatch(24);
    return MemoryAdvice(config_, share_, free_bytes, ops_.get());
  }

  const std::unique_ptr<Ops> ops_ = MakeCpuOps(1);
  RankShare share_ = {.ranks = 2};
  v1::RunConfig config_;
};

TEST_F(MemoryAdviceTest, NamesTheLargestMicroBatchThatFits) {
  // A rank has 24 / 2 sequences: 12, 8, 6, 4, 3, 2 or 1 at a time.
  SetMicroBatch(8);
  const int64_t need = Need();
  EXPECT_THAT(Advice(need), testing::EndsWith("; 8 would fit"));
  EXPECT_THAT(Advice(need - 1), HasSubstr("; 6 would fit"));
  // 16 divides the batch, but not a rank's part of it.
  SetMicroBatch(16);
  EXPECT_THAT(Advice(Need()), HasSubstr("; 12 would fit"));
}

TEST_F(MemoryAdviceTest, RecomputesWhereNothingElseFits) {
  SetMicroBatch(1);
  const int64_t least = Need();
  SetMicroBatch(2, /*recompute=*/true);
  const int64_t recomputed = Need();
  ASSERT_LT(recomputed, least);
  EXPECT_THAT(Advice(least - 1),
              HasSubstr(" would fit with training.recompute_activations"));
  EXPECT_THAT(Advice(recomputed),
              HasSubstr("; 2 would fit with training.recompute_activations"));
}

TEST_F(MemoryAdviceTest, SaysSoIfNothingFits) {
  SetMicroBatch(1, /*recompute=*/true);
  EXPECT_THAT(Advice(Need() - 1), HasSubstr("needs a larger device"));
  EXPECT_THAT(Advice(0), HasSubstr("and 0 MiB were free"));
}

TEST_F(MemoryAdviceTest, WithoutAMeasureOfFreeMemoryGivesGeneralAdvice) {
  EXPECT_THAT(Advice(std::numeric_limits<int64_t>::max()),
              HasSubstr("a smaller one, or training.recompute_activations"));
}

TEST_F(MemoryAdviceTest, MoreRanksNeedLessEach) {
  SetMicroBatch(4);
  const int64_t two = Need();
  share_.ranks = 4;
  const int64_t four = Need();
  // The ranks share the moments and the snapshot.
  EXPECT_EQ(two - four, MakeModelLayout(config_.model()).size * (8 + 4) / 4);
}

// Each value has an anchor, and each value of the largest fragment (here all)
// also has a next one. The snapshot is counted in any case.
TEST_F(MemoryAdviceTest, CountsAnchorsOnTheDevice) {
  const int64_t without = Need();
  share_.anchors_on_device = true;
  EXPECT_EQ(Need() - without,
            MakeModelLayout(config_.model()).size * 2 * 4 / 2);
}

TEST_F(MemoryAdviceTest, CountsNextAnchorsAndSnapshotsThatAreReserved) {
  share_.reserves = true;
  const int64_t without = Need();
  const int64_t size = MakeModelLayout(config_.model()).size;
  for (const uint32_t fragments : {1, 4}) {
    config_.mutable_synchronization()->set_fragments(fragments);
    share_.anchors_on_device = false;
    const int64_t none = Need();
    share_.anchors_on_device = true;
    EXPECT_EQ(Need() - without, size * 2 * 4 / 2) << fragments;
    // Without anchors there is only the largest fragment's snapshot.
    EXPECT_LE(none, without);
  }
}

}  // namespace
}  // namespace causeway
