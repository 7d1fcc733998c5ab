// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/optimizer/owners.h"

#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "worker/optimizer/muon.h"

namespace causeway {
namespace {

v1::TrainingConfig Muon() {
  v1::TrainingConfig config;
  config.set_optimizer(v1::TrainingConfig::MUON);
  return config;
}

ModelLayout Layout(uint32_t layers) {
  v1::ModelConfig config;
  config.set_layers(layers);
  config.set_hidden_size(48);
  config.set_intermediate_size(128);
  config.set_heads(3);
  config.set_kv_heads(3);
  config.set_vocab_size(258);
  config.set_sequence_length(4);
  return MakeModelLayout(config);
}

// Returns the operations of the matrices in each shard.
std::vector<double> MatrixWork(const ModelLayout& layout,
                               const std::vector<Slice>& shards) {
  std::vector<double> work;
  for (const Slice& shard : shards) {
    double sum = 0;
    for (const TensorSpec& tensor : layout.tensors) {
      if (!IsMuonMatrix(Muon(), tensor) || tensor.offset < shard.begin ||
          tensor.offset >= shard.end) {
        continue;
      }
      const auto n = static_cast<double>(tensor.size) / 48;
      sum += 20 * 48 * 48 * n + 10 * 48 * 48 * 48;
    }
    work.push_back(sum);
  }
  return work;
}

TEST(OwnersTest, ShardsCoverTheModelAndCutNoMatrix) {
  for (const uint32_t layers : {1u, 6u}) {
    const ModelLayout layout = Layout(layers);
    for (int ranks = 1; ranks <= 60; ++ranks) {
      const std::vector<Slice> shards =
          DivideAmongOwners(Muon(), layout, ranks);
      ASSERT_EQ(shards.size(), static_cast<size_t>(ranks));
      int64_t end = 0;
      for (const Slice& shard : shards) {
        ASSERT_EQ(shard.begin, end);
        ASSERT_GE(shard.end, shard.begin);
        end = shard.end;
        for (const TensorSpec& tensor : layout.tensors) {
          const bool inside = tensor.offset < shard.begin &&
                              shard.begin < tensor.offset + tensor.size;
          ASSERT_FALSE(inside && IsMuonMatrix(Muon(), tensor)) << tensor.name;
        }
      }
      ASSERT_EQ(end, layout.size);
    }
  }
}

// The largest of these matrices takes a fifth of a block's work.
TEST(OwnersTest, WorkIsBalancedToOneMatrix) {
  const ModelLayout layout = Layout(6);
  const double all = MatrixWork(layout, {{0, layout.size}})[0];
  const double largest = 20.0 * 48 * 48 * 128 + 10.0 * 48 * 48 * 48;
  for (int ranks = 2; ranks <= 8; ++ranks) {
    for (const double work :
         MatrixWork(layout, DivideAmongOwners(Muon(), layout, ranks))) {
      EXPECT_LT(work, all / ranks + largest) << ranks;
    }
  }
}

// Equal values would be unequal work: the embedding of this model has more
// values than its block.
TEST(OwnersTest, AMatrixCountsByItsWorkRatherThanItsValues) {
  const ModelLayout layout = Layout(1);
  const std::vector<Slice> shards = DivideAmongOwners(Muon(), layout, 2);
  const TensorSpec& embedding = layout.tensors[0];
  EXPECT_GT(shards[0].end, embedding.offset + embedding.size);
  const std::vector<double> work = MatrixWork(layout, shards);
  EXPECT_GT(work[0], 0);
  EXPECT_GT(work[1], 0);
}

}  // namespace
}  // namespace causeway
