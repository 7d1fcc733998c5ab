// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/tensors/tensors_layout.h"

#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

using testing::ElementsAre;
using testing::Pair;

constexpr int64_t kLarge = int64_t{1} << 40;

// Returns the names of a layout's tensors with their blocks.
std::vector<std::pair<std::string, int>> BlocksOf(const ModelLayout& layout) {
  std::vector<std::pair<std::string, int>> blocks;
  for (const TensorSpec& tensor : layout.tensors) {
    blocks.emplace_back(tensor.name, tensor.block);
  }
  return blocks;
}

// Returns a layout of tensors with one value.
absl::StatusOr<ModelLayout> LayoutOfNames(
    const v1::TensorsConfig& config, const std::vector<std::string>& names) {
  std::vector<NamedShape> tensors;
  for (const std::string& name : names) {
    tensors.push_back({.name = name, .shape = {1}});
  }
  return MakeTensorsLayout(config, tensors);
}

TEST(TensorsLayoutTest, TensorsFollowOneAnother) {
  ASSERT_OK_AND_ASSIGN(const ModelLayout layout,
                       MakeTensorsLayout({}, {{"wte.weight", {5, 2}},
                                              {"logit_scale", {}},
                                              {"h.0.ln_1.weight", {2}}}));
  EXPECT_EQ(layout.size, 13);
  EXPECT_THAT(layout.tensors[0].shape, ElementsAre(5, 2));
  EXPECT_EQ(layout.tensors[1].offset, 10);
  EXPECT_EQ(layout.tensors[1].size, 1);
  EXPECT_EQ(layout.tensors[2].offset, 11);
}

TEST(TensorsLayoutTest, FindsTheBlocksOfUsualNames) {
  ASSERT_OK_AND_ASSIGN(
      const ModelLayout layout,
      LayoutOfNames({}, {"transformer.wte.weight", "transformer.h.10.mlp.bias",
                         "transformer.h.2.mlp.bias", "transformer.h.2.ln.0.w",
                         "transformer.ln_f.weight"}));
  EXPECT_THAT(BlocksOf(layout),
              ElementsAre(Pair("transformer.wte.weight", -1),
                          Pair("transformer.h.10.mlp.bias", 1),
                          Pair("transformer.h.2.mlp.bias", 0),
                          Pair("transformer.h.2.ln.0.w", 0),
                          Pair("transformer.ln_f.weight", -1)));
  ASSERT_OK_AND_ASSIGN(const ModelLayout other,
                       LayoutOfNames({}, {"model.layers.0.w", "blocks.0.w"}));
  EXPECT_EQ(CountBlocks(other), 2);
}

TEST(TensorsLayoutTest, ABlockPatternBeginsWithAPartOfTheName) {
  ASSERT_OK_AND_ASSIGN(
      const ModelLayout layout,
      LayoutOfNames({}, {"depth.0.w", "players.1.w", "layers.x.w", "layers.1",
                         "layers..w", "layers.99999999999999999999.w"}));
  EXPECT_EQ(CountBlocks(layout), 0);
}

// Encoder and decoder count their blocks separately.
TEST(TensorsLayoutTest, BlocksOfSeveralStacksAreDifferent) {
  v1::TensorsConfig config;
  config.add_block("block.#.");
  ASSERT_OK_AND_ASSIGN(
      const ModelLayout layout,
      LayoutOfNames(config, {"encoder.block.0.layer.0.w", "decoder.block.0.w",
                             "encoder.block.1.w", "decoder.layers.7.w"}));
  EXPECT_THAT(
      BlocksOf(layout),
      ElementsAre(Pair("encoder.block.0.layer.0.w", 0),
                  Pair("decoder.block.0.w", 2), Pair("encoder.block.1.w", 1),
                  Pair("decoder.layers.7.w", -1)));
}

TEST(TensorsLayoutTest, RefusesBlockPatternsThatMakeNoSense) {
  for (const auto& [pattern, problem] :
       {std::pair("layers.", "must have one #"), std::pair("#.#.", "one #"),
        std::pair("encoder.#.", "matches no tensor")}) {
    v1::TensorsConfig config;
    config.add_block("h.#.");
    config.add_block(pattern);
    EXPECT_THAT(LayoutOfNames(config, {"h.0.w", "encoder.w"}),
                IsInvalidArgument(absl::StrCat("tensors.block \"", pattern)));
    EXPECT_THAT(LayoutOfNames(config, {"h.0.w"}), IsInvalidArgument(problem));
  }
}

TEST(TensorsLayoutTest, ExcludedTensorsAreNotThere) {
  v1::TensorsConfig config;
  config.add_exclude("*.attn.bias");
  config.add_exclude("wp?");
  ASSERT_OK_AND_ASSIGN(const ModelLayout layout,
                       MakeTensorsLayout(config, {{"h.0.attn.bias", {1, 1, 0}},
                                                  {"h.4.attn.bias2", {3}},
                                                  {"wpe", {2}}}));
  EXPECT_THAT(BlocksOf(layout), ElementsAre(Pair("h.4.attn.bias2", 0)));
  EXPECT_EQ(layout.size, 3);
  EXPECT_THAT(layout.ignored, ElementsAre("*.attn.bias", "wp?"));

  config.add_exclude("*.ln");
  EXPECT_THAT(LayoutOfNames(config, {"0.attn.bias", "wpe", "w"}),
              IsInvalidArgument("tensors.exclude \"*.ln\" matches no tensor"));
  EXPECT_THAT(LayoutOfNames(config, {"0.attn.bias", "wpe", "a.ln"}),
              IsInvalidArgument("no tensors to exchange"));
}

TEST(TensorsLayoutTest, AMarkMustBeOfATensorThatIsExchanged) {
  v1::TensorsConfig config;
  config.add_mean_only("wte*");
  EXPECT_OK(LayoutOfNames(config, {"wte.weight", "w"}));
  EXPECT_THAT(
      LayoutOfNames(config, {"wpe.weight", "w"}),
      IsInvalidArgument("tensors.mean_only \"wte*\" matches no tensor"));
  config.add_exclude("wte*");
  EXPECT_THAT(
      LayoutOfNames(config, {"wte.weight", "w"}),
      IsInvalidArgument("tensors.mean_only \"wte*\" matches no tensor"));
}

TEST(TensorsLayoutTest, RefusesBadNames) {
  EXPECT_THAT(LayoutOfNames({}, {"w", "w"}),
              IsInvalidArgument("\"w\" is there twice"));
  EXPECT_THAT(LayoutOfNames({}, {""}), IsInvalidArgument("no name"));
  EXPECT_THAT(LayoutOfNames({}, {"a\x1b[2J"}),
              IsInvalidArgument("\"a\\x1b[2J\" has control characters"));
  EXPECT_THAT(LayoutOfNames({}, {"a\xff"}), IsInvalidArgument("invalid UTF-8"));
  EXPECT_OK(LayoutOfNames({}, {std::string(512, 'x')}));
  EXPECT_THAT(LayoutOfNames({}, {std::string(513, 'x')}),
              IsInvalidArgument("513 bytes"));
}

TEST(TensorsLayoutTest, RefusesSizesThatCannotBe) {
  EXPECT_THAT(
      MakeTensorsLayout({}, {{"w", {3, 0}}}),
      IsInvalidArgument("\"w\" has the shape [3, 0], which has no values"));
  EXPECT_THAT(MakeTensorsLayout({}, {{"w", {-1}}}), IsInvalidArgument("[-1]"));
  EXPECT_OK(MakeTensorsLayout({}, {{"w", {kLarge / 4, 4}}}));
  for (const std::vector<int64_t>& shape :
       {std::vector<int64_t>{kLarge + 1},
        {kLarge / 4, 5},
        {int64_t{1} << 32, int64_t{1} << 32},
        {std::numeric_limits<int64_t>::max(), 2}}) {
    EXPECT_THAT(MakeTensorsLayout({}, {{"w", shape}}),
                IsInvalidArgument("allowed: up to 1099511627776 values"));
  }
  EXPECT_THAT(
      MakeTensorsLayout({}, {{"v", {kLarge}}, {"w", {1}}}),
      IsInvalidArgument("\"w\" and those before it have 1099511627777"));
}

TEST(TensorsLayoutTest, RefusesMoreNamesThanAMessageHolds) {
  std::vector<std::string> names;
  for (int i = 0; i < 10000; ++i) {
    names.push_back(absl::StrCat(i, std::string(400, 'x')));
  }
  EXPECT_THAT(LayoutOfNames({}, names),
              IsInvalidArgument("of 10000 tensors take"));
}

TEST(TensorsLayoutTest, AListSaysWhatTheConfigurationSays) {
  v1::TensorsConfig config;
  v1::TensorsConfig::Tensor& tensor = *config.add_tensor();
  tensor.set_name("w");
  tensor.add_shape(3);
  tensor.add_shape(std::numeric_limits<uint64_t>::max());
  const std::vector<NamedShape> listed = ListedTensors(config);
  ASSERT_EQ(listed.size(), 1);
  EXPECT_EQ(listed[0].name, "w");
  EXPECT_EQ(listed[0].shape[0], 3);
  EXPECT_THAT(MakeTensorsLayout(config, listed),
              IsInvalidArgument("allowed: up to"));
}

TEST(RunLayoutTest, ARunOfTensorsHasThoseOfItsPlan) {
  v1::RunConfig config;
  config.mutable_tensors()->add_exclude("mask");
  v1::FragmentPlan plan;
  for (const char* name : {"h.0.w", "wte"}) {
    v1::TensorPlacement& placement = *plan.add_fragments()->add_tensors();
    placement.set_name(name);
    placement.add_shape(2);
    placement.add_shape(3);
  }
  ASSERT_OK_AND_ASSIGN(const ModelLayout layout, RunLayout(config, plan));
  EXPECT_THAT(BlocksOf(layout),
              ElementsAre(Pair("h.0.w", -1), Pair("wte", -1)));
  EXPECT_EQ(layout.tensors[1].offset, 6);
  EXPECT_EQ(layout.size, 12);
  EXPECT_THAT(layout.ignored, ElementsAre("mask"));
  // The plan comes from a coordinator, which may be hostile.
  plan.mutable_fragments(0)->mutable_tensors(0)->set_shape(0, ~uint64_t{0});
  EXPECT_THAT(RunLayout(config, plan),
              IsInvalidArgument("\"h.0.w\" has the shape"));
}

TEST(RunLayoutTest, ARunOfAModelHasTheModels) {
  v1::RunConfig config;
  v1::ModelConfig& model = *config.mutable_model();
  model.set_layers(1);
  model.set_hidden_size(4);
  model.set_heads(2);
  model.set_kv_heads(1);
  model.set_vocab_size(3);
  model.set_intermediate_size(2);
  ASSERT_OK_AND_ASSIGN(const ModelLayout layout, RunLayout(config, {}));
  EXPECT_EQ(layout.size, MakeModelLayout(model).size);
  EXPECT_EQ(CountBlocks(layout), 1);
}

}  // namespace
}  // namespace causeway
