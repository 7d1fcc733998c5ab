// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/replica/fragment_share.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/tensors/model_layout.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/run_config.pb.h"
#include "quantization/strips/layout.h"

namespace causeway {
namespace {

std::pair<ModelLayout, v1::FragmentPlan> LayoutAndPlan(int layers, int hidden,
                                                       int fragments) {
  v1::RunConfig config;
  v1::ModelConfig& model = *config.mutable_model();
  model.set_layers(layers);
  model.set_hidden_size(hidden);
  model.set_intermediate_size(2 * hidden);
  model.set_heads(2);
  model.set_kv_heads(2);
  model.set_vocab_size(258);
  model.set_sequence_length(8);
  config.mutable_synchronization()->set_fragments(fragments);
  config.mutable_synchronization()->set_inner_steps_per_round(10);
  const ModelLayout layout = MakeModelLayout(model);
  return {layout, *MakeFragmentPlan(layout, config)};
}

FragmentMap MakeMap(int layers, int hidden, int fragments) {
  const auto [layout, plan] = LayoutAndPlan(layers, hidden, fragments);
  return *FragmentMap::Create(layout, plan);
}

std::vector<Slice> Shards(const FragmentMap& map, int ranks) {
  std::vector<Slice> shards;
  for (int rank = 0; rank < ranks; ++rank) {
    shards.push_back(SliceOf(static_cast<int64_t>(map.model_size()), ranks,
                             rank, /*granularity=*/16));
  }
  return shards;
}

// Compares held ranges and segments with the plain map from the model to a
// fragment.
void ExpectHeld(const FragmentMap& map, uint32_t fragment,
                const std::vector<Slice>& shards,
                const std::vector<FragmentShare>& shares) {
  std::vector<float> model(map.model_size());
  for (size_t i = 0; i < model.size(); ++i) model[i] = static_cast<float>(i);
  std::vector<float> values(map.size(fragment));
  map.Gather(fragment, model, absl::MakeSpan(values));
  int64_t end = 0;
  for (size_t rank = 0; rank < shares.size(); ++rank) {
    const FragmentShare& share = shares[rank];
    EXPECT_EQ(share.held.begin, end);
    end = share.held.end;
    EXPECT_EQ(share.shard_size, shards[rank].size());
    uint64_t held = 0;
    for (const FragmentMap::Segment& segment : share.segments) {
      ASSERT_EQ(segment.fragment_offset, held);
      held += segment.size;
      for (uint64_t i = 0; i < segment.size; ++i) {
        ASSERT_EQ(model[shards[rank].begin + segment.model_offset + i],
                  values[share.held.begin + segment.fragment_offset + i]);
      }
    }
    EXPECT_EQ(held, static_cast<uint64_t>(share.held.size()));
  }
  EXPECT_EQ(end, static_cast<int64_t>(map.size(fragment)));
}

// Expects that the rank which holds a strip's first value encodes the strip, no
// other rank does, and edges are the values that ranks encode but do not hold.
void ExpectEncoded(const std::vector<FragmentShare>& shares) {
  const int64_t size = shares[0].fragment_size;
  int64_t edges_out = 0;
  int64_t edges_in = 0;
  for (int64_t strip = 0; strip < size; strip += kStripValues) {
    const FragmentShare& share = shares[EncoderOf(shares, strip)];
    EXPECT_LE(share.held.begin, strip);
    EXPECT_GT(share.held.end, strip);
  }
  int64_t end = 0;
  for (const FragmentShare& share : shares) {
    EXPECT_EQ(share.encoded.begin, end);
    end = share.encoded.end;
    EXPECT_TRUE(end % kStripValues == 0 || end == size);
    edges_out += share.edge_out();
    edges_in += share.edge_in();
    EXPECT_LT(share.edge_out(), static_cast<int64_t>(kStripValues));
    EXPECT_EQ(share.held.size() - share.edge_out() + share.edge_in(),
              share.encoded.size());
  }
  EXPECT_EQ(end, size);
  EXPECT_EQ(edges_out, edges_in);
}

TEST(FragmentShareTest, CoversEveryFragmentOnce) {
  for (const int hidden : {4, 64, 160}) {
    for (const int fragments : {1, 2, 4}) {
      const FragmentMap map = MakeMap(5, hidden, fragments);
      for (const int ranks : {1, 2, 3, 7}) {
        const std::vector<Slice> shards = Shards(map, ranks);
        for (uint32_t fragment = 0; fragment < map.fragments(); ++fragment) {
          SCOPED_TRACE(absl::StrCat("hidden ", hidden, ", fragment ", fragment,
                                    " of ", fragments, ", ", ranks, " ranks"));
          ASSERT_OK_AND_ASSIGN(const std::vector<FragmentShare> shares,
                               ShareFragment(map, fragment, shards));
          ExpectHeld(map, fragment, shards, shares);
          ExpectEncoded(shares);
        }
      }
    }
  }
}

TEST(FragmentShareTest, OneRankHasAllAndNoEdges) {
  const FragmentMap map = MakeMap(3, 64, 1);
  ASSERT_OK_AND_ASSIGN(const std::vector<FragmentShare> shares,
                       ShareFragment(map, 0, Shards(map, 1)));
  EXPECT_EQ(shares[0].held.size(), shares[0].fragment_size);
  EXPECT_EQ(shares[0].encoded.size(), shares[0].fragment_size);
  EXPECT_EQ(shares[0].edge_out(), 0);
  EXPECT_EQ(shares[0].edge_in(), 0);
}

// If tensors came in another order than in the model, a rank could not hold one
// piece of a fragment.
TEST(FragmentShareTest, TensorsMustHaveTheModelsOrder) {
  const auto [layout, plan] = LayoutAndPlan(3, 64, 1);
  v1::FragmentPlan mixed = plan;
  auto& tensors = *mixed.mutable_fragments(0)->mutable_tensors();
  std::reverse(tensors.begin(), tensors.end());
  uint64_t offset = 0;
  for (v1::TensorPlacement& tensor : tensors) {
    tensor.set_offset(offset);
    uint64_t size = 1;
    for (const uint64_t extent : tensor.shape()) size *= extent;
    offset += size;
  }
  const absl::StatusOr<FragmentMap> map = FragmentMap::Create(layout, mixed);
  ASSERT_OK(map);
  EXPECT_THAT(ShareFragment(*map, 0, Shards(*map, 2)),
              IsInvalidArgument("fragment 0 are not in the model's order"));
}

}  // namespace
}  // namespace causeway
