// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/checkpoint/initial_values.h"

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/testing/checkpoint_writer.h"
#include "common/tensors/model_layout.h"
#include "common/tensors/safetensors.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temporary_directory.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "outer_optimizer/fragment_plan.h"

namespace causeway {
namespace {

using testing::ElementsAre;
using testing::Field;
using testing::HasSubstr;
using testing::Not;
using testing::UnorderedElementsAreArray;

class InitialValuesTest : public testing::Test {
 protected:
  InitialValuesTest() {
    v1::ModelConfig& model = *config_.mutable_model();
    model.set_layers(2);
    model.set_hidden_size(8);
    model.set_intermediate_size(12);
    model.set_heads(2);
    model.set_kv_heads(1);
    model.set_vocab_size(20);
    config_.mutable_synchronization()->set_fragments(3);
    config_.mutable_synchronization()->set_inner_steps_per_round(6);
  }

  ModelLayout Layout() const { return MakeModelLayout(config_.model()); }
  // Returns the model's values, read piece by piece.
  std::vector<float> ReadAll(const InitialValues& initial) const {
    const v1::FragmentPlan plan = *MakeFragmentPlan(Layout(), config_);
    const FragmentMap map = *FragmentMap::Create(Layout(), plan);
    std::vector<float> model(map.model_size());
    for (const v1::Fragment& fragment : plan.fragments()) {
      std::vector<float> values(fragment.size());
      constexpr uint64_t kPiece = 77;
      for (uint64_t begin = 0; begin < fragment.size(); begin += kPiece) {
        EXPECT_OK(initial.Read(fragment, begin,
                               absl::MakeSpan(values).subspan(begin, kPiece)));
      }
      map.Scatter(fragment.id(), values, absl::MakeSpan(model));
    }
    return model;
  }
  absl::Status Open(Safetensors contents) const {
    RETURN_IF_ERROR(WriteSafetensors(path_, std::move(contents)));
    return InitialValues::FromCheckpoint(path_, Layout()).status();
  }

  v1::RunConfig config_;
  TemporaryDirectory directory_ = *TemporaryDirectory::Make("initial_values");
  const std::string path_ =
      absl::StrCat(directory_.path(), "/model.safetensors");
};

TEST_F(InitialValuesTest, FragmentsOfTheSeedAreThoseOfTheModel) {
  EXPECT_EQ(ReadAll(InitialValues::FromSeed(Layout(), 5)),
            InitialParameters(Layout(), 5));
}

TEST_F(InitialValuesTest, ReadsACheckpoint) {
  const std::vector<float> parameters = InitialParameters(Layout(), 7);
  Safetensors contents = ModelTensors(Layout(), parameters);
  // Old checkpoints contain rotary frequencies, although these are derived.
  const std::vector<float> frequencies = {1, 0.5};
  contents.tensors.push_back(FloatTensor(
      "model.layers.0.self_attn.rotary_emb.inv_freq", {2}, frequencies));
  ASSERT_OK(WriteSafetensors(path_, std::move(contents)));
  ASSERT_OK_AND_ASSIGN(const InitialValues initial,
                       InitialValues::FromCheckpoint(path_, Layout()));
  EXPECT_EQ(ReadAll(initial), parameters);
}

TEST_F(InitialValuesTest, AHeadThatIsTiedMayBeStored) {
  config_.mutable_model()->set_tie_embeddings(true);
  const std::vector<float> parameters = InitialParameters(Layout(), 7);
  Safetensors contents = ModelTensors(Layout(), parameters);
  std::vector<float> head(parameters.begin(), parameters.begin() + 20 * 8);
  contents.tensors.push_back(FloatTensor("lm_head.weight", {20, 8}, head));
  EXPECT_OK(Open(contents));
  head[3] += 1;
  EXPECT_THAT(Open(contents), IsInvalidArgument("has no lm_head.weight"));
}

TEST_F(InitialValuesTest, NamesWhatDoesNotFit) {
  const std::vector<float> parameters = InitialParameters(Layout(), 7);
  Safetensors contents = ModelTensors(Layout(), parameters);
  contents.tensors[0].name = "transformer.wte.weight";
  contents.tensors[2].shape = {4, 16};
  contents.tensors[3].dtype = "I32";
  EXPECT_THAT(
      Open(std::move(contents)),
      IsInvalidArgument(path_, "model.embed_tokens.weight is missing",
                        "q_proj.weight has the shape [4, 16], the model "
                        "[8, 8]",
                        "k_proj.weight is I32",
                        "the model has no transformer.wte.weight",
                        Not(HasSubstr("more"))));
  EXPECT_THAT(Open({}), IsInvalidArgument("; and 13 more"));
}

std::vector<std::string> NamesOf(const ModelLayout& layout) {
  std::vector<std::string> names;
  for (const TensorSpec& tensor : layout.tensors) names.push_back(tensor.name);
  return names;
}

TEST_F(InitialValuesTest, ACheckpointDefinesARunThatListsNoTensors) {
  const std::vector<float> parameters = InitialParameters(Layout(), 7);
  Safetensors contents = ModelTensors(Layout(), parameters);
  contents.tensors.push_back({.name = "mask", .dtype = "U8", .shape = {0}});
  ASSERT_OK(WriteSafetensors(path_, std::move(contents)));
  v1::RunConfig config;
  v1::TensorsConfig& tensors = *config.mutable_tensors();
  EXPECT_THAT(NewRunLayout(config, ""),
              IsInvalidArgument("name it with --initial_parameters"));
  EXPECT_THAT(NewRunLayout(config, path_),
              IsInvalidArgument(path_, "\"mask\""));
  tensors.add_exclude("mask");
  ASSERT_OK_AND_ASSIGN(const ModelLayout layout, NewRunLayout(config, path_));
  EXPECT_EQ(layout.size, Layout().size);
  EXPECT_THAT(NamesOf(layout), UnorderedElementsAreArray(NamesOf(Layout())));
  EXPECT_EQ(CountBlocks(layout), 2);
  // The checkpoint may have excluded tensors, which need not be readable.
  EXPECT_OK(InitialValues::FromCheckpoint(path_, layout));
}

TEST_F(InitialValuesTest, ACheckpointMustHaveTheTensorsThatAreListed) {
  v1::RunConfig config;
  const auto add = [&](const std::string& name, uint64_t extent) {
    v1::TensorsConfig::Tensor& tensor = *config.mutable_tensors()->add_tensor();
    tensor.set_name(name);
    tensor.add_shape(extent);
  };
  add("wte", 2);
  add("ln_f", 3);
  EXPECT_THAT(NewRunLayout(config, ""),
              IsOkAndHolds(Field(&ModelLayout::size, 5)));
  const std::vector<float> values(4);
  const auto floats = absl::MakeConstSpan(values);
  ASSERT_OK(WriteSafetensors(
      path_, {.tensors = {FloatTensor("wte", {2}, floats.first(2)),
                          FloatTensor("ln_f", {4}, floats),
                          FloatTensor("head", {1}, floats.first(1))}}));
  EXPECT_THAT(NewRunLayout(config, path_),
              IsInvalidArgument(path_, "ln_f has the shape [4], the model [3]",
                                "the model has no head"));
  ASSERT_OK(WriteSafetensors(
      path_, {.tensors = {FloatTensor("wte", {2}, floats.first(2)),
                          FloatTensor("ln_f", {3}, floats.first(3))}}));
  ASSERT_OK_AND_ASSIGN(const ModelLayout layout, NewRunLayout(config, path_));
  EXPECT_THAT(NamesOf(layout), ElementsAre("wte", "ln_f"));
}

TEST_F(InitialValuesTest, RefusesValuesThatAreNotFinite) {
  std::vector<float> parameters = InitialParameters(Layout(), 7);
  parameters.back() = std::numeric_limits<float>::infinity();
  EXPECT_THAT(Open(ModelTensors(Layout(), parameters)),
              IsInvalidArgument(path_, "lm_head.weight", "at index 159"));
}

}  // namespace
}  // namespace causeway
