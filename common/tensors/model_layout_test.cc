// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/tensors/model_layout.h"

#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

v1::ModelConfig SmallModel() {
  v1::ModelConfig config;
  config.set_layers(2);
  config.set_hidden_size(64);
  config.set_intermediate_size(160);
  config.set_heads(4);
  config.set_kv_heads(2);
  config.set_vocab_size(258);
  config.set_sequence_length(32);
  return config;
}

TEST(ModelLayoutTest, TensorsAreContiguousAndNamedAsHuggingFaceLlama) {
  const ModelLayout layout = MakeModelLayout(SmallModel());
  ASSERT_EQ(layout.tensors.size(), 1 + 2 * 9 + 2);
  EXPECT_EQ(layout.tensors[0].name, "model.embed_tokens.weight");
  EXPECT_EQ(layout.tensors[3].name, "model.layers.0.self_attn.k_proj.weight");
  EXPECT_THAT(layout.tensors[3].shape, testing::ElementsAre(32, 64));
  EXPECT_EQ(layout.tensors.back().name, "lm_head.weight");
  int64_t offset = 0;
  for (const TensorSpec& tensor : layout.tensors) {
    EXPECT_EQ(tensor.offset, offset) << tensor.name;
    offset += tensor.size;
  }
  EXPECT_EQ(layout.size, offset);
}

TEST(ModelLayoutTest, TiedEmbeddingsHaveNoHead) {
  v1::ModelConfig config = SmallModel();
  const int64_t untied = MakeModelLayout(config).size;
  config.set_tie_embeddings(true);
  const ModelLayout layout = MakeModelLayout(config);
  EXPECT_EQ(layout.tensors.back().name, "model.norm.weight");
  EXPECT_EQ(layout.size, untied - 258 * 64);
}

TEST(ModelLayoutTest, BiasesAndNormsOfHeadsFollowTheProjections) {
  v1::ModelConfig config = SmallModel();
  config.set_head_dim(24);
  config.set_qkv_bias(true);
  config.set_qk_norm(true);
  const ModelLayout layout = MakeModelLayout(config);
  ASSERT_EQ(layout.tensors.size(), 1 + 2 * 14 + 2);
  const struct {
    const char* name;
    std::vector<int64_t> shape;
  } wanted[] = {
      {"q_proj.weight", {96, 64}}, {"k_proj.weight", {48, 64}},
      {"v_proj.weight", {48, 64}}, {"q_proj.bias", {96}},
      {"k_proj.bias", {48}},       {"v_proj.bias", {48}},
      {"q_norm.weight", {24}},     {"k_norm.weight", {24}},
      {"o_proj.weight", {64, 96}},
  };
  for (size_t i = 0; i < std::size(wanted); ++i) {
    const TensorSpec& tensor = layout.tensors[2 + i];
    EXPECT_EQ(tensor.name,
              absl::StrCat("model.layers.0.self_attn.", wanted[i].name));
    EXPECT_EQ(tensor.shape, wanted[i].shape) << tensor.name;
    EXPECT_EQ(tensor.block, 0);
  }
  const std::vector<float> values = InitialParameters(layout, 7);
  EXPECT_EQ(values[layout.tensors[5].offset], 0) << "a bias";
  EXPECT_EQ(values[layout.tensors[8].offset], 1) << "a gain";
}

// As in OLMo 2.
TEST(ModelLayoutTest, NormsMayFollowAndGoAcrossHeads) {
  v1::ModelConfig config = SmallModel();
  config.set_head_dim(24);
  config.set_qk_norm(true);
  config.set_qk_norm_across_heads(true);
  config.set_post_norm(true);
  const ModelLayout layout = MakeModelLayout(config);
  ASSERT_EQ(layout.tensors.size(), 1 + 2 * 11 + 2);
  EXPECT_EQ(layout.tensors[1].name, "model.layers.0.self_attn.q_proj.weight");
  EXPECT_EQ(layout.tensors[4].name, "model.layers.0.self_attn.q_norm.weight");
  EXPECT_THAT(layout.tensors[4].shape, testing::ElementsAre(96));
  EXPECT_THAT(layout.tensors[5].shape, testing::ElementsAre(48));
  EXPECT_EQ(layout.tensors[11].name,
            "model.layers.0.post_feedforward_layernorm.weight");
  EXPECT_THAT(layout.tensors[11].shape, testing::ElementsAre(64));
}

TEST(ModelLayoutTest, InitialValuesHaveTheirMoments) {
  const ModelLayout layout = MakeModelLayout(SmallModel());
  const std::vector<float> values = InitialParameters(layout, 7);
  for (const TensorSpec& tensor : layout.tensors) {
    double sum = 0;
    double squares = 0;
    double fourth = 0;
    for (int64_t i = 0; i < tensor.size; ++i) {
      const double x = values[tensor.offset + i];
      sum += x;
      squares += x * x;
      fourth += x * x * x * x;
    }
    const double n = static_cast<double>(tensor.size);
    if (tensor.init_stddev == 0) {
      EXPECT_EQ(sum, n) << tensor.name;
      continue;
    }
    const double stddev = tensor.init_stddev;
    // The bounds are five standard errors of each estimate.
    EXPECT_NEAR(sum / n / stddev, 0, 5 / std::sqrt(n)) << tensor.name;
    EXPECT_NEAR(squares / n / (stddev * stddev), 1, 5 * std::sqrt(2 / n));
    // Irwin-Hall with 12 terms has kurtosis 3 - 6/(5*12) = 2.9.
    EXPECT_NEAR(fourth / n / std::pow(stddev, 4), 2.9, 50 / std::sqrt(n));
  }
}

TEST(ModelLayoutTest, InitialValuesDependOnSeedAndName) {
  const ModelLayout layout = MakeModelLayout(SmallModel());
  EXPECT_EQ(InitialParameters(layout, 7), InitialParameters(layout, 7));
  EXPECT_NE(InitialParameters(layout, 7), InitialParameters(layout, 8));
  std::vector<float> q(64 * 64);
  std::vector<float> o(64 * 64);
  TensorSpec tensor = layout.tensors[2];
  InitializeTensor(tensor, 7, 0, absl::MakeSpan(q));
  tensor.name = "other";
  InitializeTensor(tensor, 7, 0, absl::MakeSpan(o));
  EXPECT_NE(q, o);
}

// The bits are part of the protocol: version 0 of a run is never sent. A
// change here would let two builds train from different parameters.
TEST(ModelLayoutTest, InitialBitsAreFrozen) {
  TensorSpec tensor{.name = "golden", .size = 4, .init_stddev = 0.02};
  std::vector<float> values(4);
  InitializeTensor(tensor, 1, 0, absl::MakeSpan(values).first(1));
  InitializeTensor(tensor, 1, 1, absl::MakeSpan(values).subspan(1));
  EXPECT_THAT(values, testing::ElementsAre(-0x1.342b84p-6f, 0x1.762cccp-5f,
                                           0x1.519cccp-5f, 0x1.80ca3cp-6f));
}

}  // namespace
}  // namespace causeway
