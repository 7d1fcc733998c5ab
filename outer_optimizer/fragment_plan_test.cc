// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "outer_optimizer/fragment_plan.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

using testing::ElementsAre;
using testing::EndsWith;
using Sync = v1::SynchronizationConfig;

// Makes tensors of 1, 2, 3, ... values: embedding, two tensors per block, final
// norm and head. Blocks grow, so that packing matters.
ModelLayout LayoutOf(int blocks) {
  ModelLayout layout;
  const auto add = [&layout](std::string name, int block) {
    const int64_t size = static_cast<int64_t>(layout.tensors.size()) + 1;
    layout.tensors.push_back({.name = std::move(name),
                              .shape = {size, 1},
                              .block = block,
                              .size = size,
                              .offset = layout.size});
    layout.size += size;
  };
  add("embedding", -1);
  for (int block = 0; block < blocks; ++block) {
    add("block" + std::to_string(block) + ".a", block);
    add("block" + std::to_string(block) + ".b", block);
  }
  add("norm", -1);
  add("head", -1);
  return layout;
}

v1::RunConfig Config(uint32_t fragments, Sync::Pattern pattern,
                     uint32_t round_steps = 100) {
  v1::RunConfig config;
  config.mutable_synchronization()->set_fragments(fragments);
  config.mutable_synchronization()->set_pattern(pattern);
  config.mutable_synchronization()->set_inner_steps_per_round(round_steps);
  return config;
}

// Returns the blocks of each fragment, by the names of their tensors.
std::vector<std::set<std::string>> BlocksOf(const v1::FragmentPlan& plan) {
  std::vector<std::set<std::string>> blocks;
  for (const v1::Fragment& fragment : plan.fragments()) {
    blocks.emplace_back();
    for (const v1::TensorPlacement& tensor : fragment.tensors()) {
      blocks.back().insert(tensor.name().substr(0, tensor.name().find('.')));
    }
  }
  return blocks;
}

TEST(FragmentPlanTest, OneFragmentHoldsAllInLayoutOrder) {
  const ModelLayout layout = LayoutOf(3);
  ASSERT_OK_AND_ASSIGN(const v1::FragmentPlan plan,
                       MakeFragmentPlan(layout, Config(1, Sync::STRIDED)));
  ASSERT_EQ(plan.fragments_size(), 1);
  ASSERT_EQ(plan.fragments(0).tensors_size(), 9);
  for (int i = 0; i < 9; ++i) {
    EXPECT_EQ(plan.fragments(0).tensors(i).name(), layout.tensors[i].name);
    EXPECT_EQ(plan.fragments(0).tensors(i).offset(), layout.tensors[i].offset);
  }
  ASSERT_OK_AND_ASSIGN(const FragmentMap map,
                       FragmentMap::Create(layout, plan));
  EXPECT_THAT(map.segments(0),
              ElementsAre(FragmentMap::Segment{
                  .size = static_cast<uint64_t>(layout.size)}));
}

TEST(FragmentPlanTest, StridedDealsBlocksOut) {
  ASSERT_OK_AND_ASSIGN(const v1::FragmentPlan plan,
                       MakeFragmentPlan(LayoutOf(5), Config(3, Sync::STRIDED)));
  EXPECT_THAT(BlocksOf(plan),
              ElementsAre(ElementsAre("block0", "block2", "block4"),
                          ElementsAre("block1", "block3"),
                          ElementsAre("embedding", "head", "norm")));
}

TEST(FragmentPlanTest, SequentialKeepsNeighboursTogether) {
  ASSERT_OK_AND_ASSIGN(
      const v1::FragmentPlan plan,
      MakeFragmentPlan(LayoutOf(5), Config(3, Sync::SEQUENTIAL)));
  EXPECT_THAT(BlocksOf(plan),
              ElementsAre(ElementsAre("block0", "block1", "block2"),
                          ElementsAre("block3", "block4"),
                          ElementsAre("embedding", "head", "norm")));
}

// Blocks have 5, 9, 13, 17 and 21 values: 21 | 17 -> 17 + 13 | 21 + 9 -> ...
TEST(FragmentPlanTest, BalancedFillsTheLightest) {
  ASSERT_OK_AND_ASSIGN(
      const v1::FragmentPlan plan,
      MakeFragmentPlan(LayoutOf(5), Config(3, Sync::BALANCED)));
  EXPECT_THAT(BlocksOf(plan),
              ElementsAre(ElementsAre("block0", "block1", "block4"),
                          ElementsAre("block2", "block3"),
                          ElementsAre("embedding", "head", "norm")));
}

std::vector<uint64_t> SendOffsetsOf(const v1::RunConfig& config) {
  const v1::FragmentPlan plan = *MakeFragmentPlan(LayoutOf(3), config);
  std::vector<uint64_t> offsets;
  for (const v1::Fragment& fragment : plan.fragments()) {
    offsets.push_back(fragment.send_offset_steps());
  }
  return offsets;
}

TEST(FragmentPlanTest, SendsAreSpreadOverTheRoundIfTheyOverlapWithTraining) {
  v1::RunConfig config = Config(3, Sync::STRIDED, 100);
  config.mutable_synchronization()->set_overlap_steps(1);
  EXPECT_THAT(SendOffsetsOf(config), ElementsAre(0, 33, 66));
  config = Config(3, Sync::STRIDED, 100);
  config.mutable_synchronization()->set_max_overlap_steps(1);
  EXPECT_THAT(SendOffsetsOf(config), ElementsAre(0, 33, 66));
}

TEST(FragmentPlanTest, IslandsThatWaitForUpdatesSendAllFragmentsTogether) {
  EXPECT_THAT(SendOffsetsOf(Config(3, Sync::STRIDED, 100)),
              ElementsAre(0, 0, 0));
}

TEST(FragmentPlanTest, EachValueIsInExactlyOneFragment) {
  for (const Sync::Pattern pattern :
       {Sync::STRIDED, Sync::SEQUENTIAL, Sync::BALANCED}) {
    for (int blocks = 1; blocks <= 9; ++blocks) {
      const ModelLayout layout = LayoutOf(blocks);
      std::vector<float> model(layout.size);
      std::iota(model.begin(), model.end(), 1.0f);
      for (int fragments = 1; fragments <= blocks + 1; ++fragments) {
        ASSERT_OK_AND_ASSIGN(
            const v1::FragmentPlan plan,
            MakeFragmentPlan(layout, Config(fragments, pattern)));
        ASSERT_OK_AND_ASSIGN(const FragmentMap map,
                             FragmentMap::Create(layout, plan));
        ASSERT_EQ(map.fragments(), fragments);
        std::vector<float> gathered;
        std::vector<float> scattered(layout.size);
        for (uint32_t id = 0; id < map.fragments(); ++id) {
          EXPECT_EQ(map.size(id), plan.fragments(id).size());
          EXPECT_GT(map.size(id), 0u) << "an empty fragment";
          std::vector<float> values(map.size(id));
          map.Gather(id, model, absl::MakeSpan(values));
          gathered.insert(gathered.end(), values.begin(), values.end());
          map.Scatter(id, values, absl::MakeSpan(scattered));
        }
        EXPECT_EQ(scattered, model);
        std::sort(gathered.begin(), gathered.end());
        EXPECT_EQ(gathered, model);
      }
    }
  }
}

TEST(FragmentPlanTest, SequentialSizesDifferByAtMostOneBlock) {
  for (int blocks = 1; blocks <= 20; ++blocks) {
    for (int fragments = 2; fragments <= blocks + 1; ++fragments) {
      ASSERT_OK_AND_ASSIGN(
          const v1::FragmentPlan plan,
          MakeFragmentPlan(LayoutOf(blocks),
                           Config(fragments, Sync::SEQUENTIAL)));
      for (int id = 0; id < fragments - 1; ++id) {
        const int count = plan.fragments(id).tensors_size() / 2;
        EXPECT_GE(count, blocks / (fragments - 1));
        EXPECT_LE(count, (blocks + fragments - 2) / (fragments - 1));
      }
    }
  }
}

TEST(FragmentPlanTest, CutsARealLayout) {
  v1::RunConfig config = Config(3, Sync::STRIDED);
  v1::ModelConfig& model = *config.mutable_model();
  model.set_layers(4);
  model.set_hidden_size(8);
  model.set_intermediate_size(16);
  model.set_heads(2);
  model.set_kv_heads(2);
  model.set_vocab_size(11);
  model.set_tie_embeddings(true);
  const ModelLayout layout = MakeModelLayout(model);
  ASSERT_OK_AND_ASSIGN(const v1::FragmentPlan plan,
                       MakeFragmentPlan(layout, config));
  ASSERT_OK_AND_ASSIGN(const FragmentMap map,
                       FragmentMap::Create(layout, plan));
  // There are two blocks that are not neighbours, and embedding and final norm.
  EXPECT_EQ(map.segments(0).size(), 2u);
  EXPECT_EQ(map.segments(2).size(), 2u);
  EXPECT_EQ(map.size(2), 11u * 8 + 8);
}

TEST(FragmentPlanTest, RefusesImpossibleNumbers) {
  for (const uint32_t fragments : {0, 5}) {
    EXPECT_THAT(MakeFragmentPlan(LayoutOf(3), Config(fragments, Sync::STRIDED)),
                IsInvalidArgument(EndsWith("a model of 3 blocks takes 1 to "
                                           "4")));
  }
  v1::RunConfig config = Config(5, Sync::STRIDED);
  config.mutable_tensors();
  EXPECT_THAT(MakeFragmentPlan(LayoutOf(3), config),
              IsInvalidArgument("takes 1 to 4; blocks are found by numbers in "
                                "names, as in layers.3.; say where"));
}

// A last fragment for tensors outside of blocks would be empty.
TEST(FragmentPlanTest, BlocksAloneTakeAllFragments) {
  ModelLayout layout;
  for (int block = 0; block < 4; ++block) {
    layout.tensors.push_back({.name = std::to_string(block),
                              .shape = {1},
                              .block = block,
                              .size = 1,
                              .offset = layout.size++});
  }
  ASSERT_OK_AND_ASSIGN(const v1::FragmentPlan plan,
                       MakeFragmentPlan(layout, Config(4, Sync::STRIDED)));
  for (const v1::Fragment& fragment : plan.fragments()) {
    EXPECT_EQ(fragment.size(), 1);
  }
  EXPECT_THAT(MakeFragmentPlan(layout, Config(5, Sync::STRIDED)),
              IsInvalidArgument("a model of 4 blocks takes 1 to 4"));
}

class FragmentMapTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(plan_,
                         MakeFragmentPlan(layout_, Config(3, Sync::STRIDED)));
  }
  void ExpectRefused(const std::string& message) {
    EXPECT_THAT(FragmentMap::Create(layout_, plan_),
                IsInvalidArgument(message));
  }

  ModelLayout layout_ = LayoutOf(4);
  v1::FragmentPlan plan_;
};

TEST_F(FragmentMapTest, RefusesAMissingTensor) {
  v1::Fragment& fragment = *plan_.mutable_fragments(1);
  fragment.set_size(fragment.size() - layout_.tensors[8].size);
  fragment.mutable_tensors()->RemoveLast();
  ExpectRefused("no fragment holds tensor block3.b");
}

TEST_F(FragmentMapTest, RefusesATensorThatIsThereTwice) {
  *plan_.mutable_fragments(1)->add_tensors() = plan_.fragments(0).tensors(0);
  ExpectRefused(
      "block0.a of fragment 1 is not in the model, or is in the "
      "plan twice");
}

TEST_F(FragmentMapTest, RefusesAnotherModelsTensor) {
  plan_.mutable_fragments(0)->mutable_tensors(1)->set_name("other");
  ExpectRefused("tensor other of fragment 0");
}

TEST_F(FragmentMapTest, RefusesAnotherShape) {
  plan_.mutable_fragments(0)->mutable_tensors(0)->set_shape(1, 7);
  ExpectRefused("block0.a has shape [2, 7], the model's has [2, 1]");
}

TEST_F(FragmentMapTest, RefusesGapsAndWrongSizes) {
  const v1::FragmentPlan good = plan_;
  plan_.mutable_fragments(0)->mutable_tensors(1)->set_offset(3);
  ExpectRefused("block0.b lies at offset 3, want 2");
  plan_ = good;
  plan_.mutable_fragments(2)->set_size(1);
  ExpectRefused("fragment 2 has 1 values, its tensors have");
  plan_ = good;
  plan_.mutable_fragments(1)->set_id(2);
  ExpectRefused("fragment 2 is listed at position 1");
}

}  // namespace
}  // namespace causeway
