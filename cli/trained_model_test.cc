// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "cli/trained_model.h"

#include <string>
#include <vector>

#include "cli/testing/state.h"
#include "common/os/file.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

TEST(TrainedModelTest, PutsTheFragmentsTogether) {
  const std::string directory = testing::TempDir() + "/state";
  ASSERT_OK_AND_ASSIGN(const v1::RunConfig config,
                       ParseRunConfig(kTestConfig, "test"));
  const ModelLayout layout = MakeModelLayout(config.model());
  std::vector<float> parameters(layout.size);
  for (size_t i = 0; i < parameters.size(); ++i) parameters[i] = i;
  ASSERT_OK(WriteTestState(directory, config, parameters));

  ASSERT_OK_AND_ASSIGN(const TrainedModel model, LoadTrainedModel(directory));
  EXPECT_EQ(model.parameters, parameters);
  EXPECT_EQ(model.config.name(), "test");
  EXPECT_EQ(model.layout.size, layout.size);
  EXPECT_THAT(model.versions, testing::ElementsAre(0, 1));
  EXPECT_EQ(DescribeVersions(model.run_id, model.versions),
            "run test-1 at versions 0 to 1");
}

TEST(TrainedModelTest, TensorsAreNoModel) {
  const std::string directory = testing::TempDir() + "/tensors";
  ASSERT_OK_AND_ASSIGN(const v1::RunConfig config,
                       ParseRunConfig(kTensorsConfig, "test"));
  ASSERT_OK(WriteTestState(directory, config, std::vector<float>(52)));
  EXPECT_THAT(LoadTrainedModel(directory),
              IsFailedPrecondition("run test-1 is defined by its tensors"));
}

TEST(TrainedModelTest, SaysWhatIsNotThere) {
  EXPECT_THAT(LoadTrainedModel(testing::TempDir() + "/missing"),
              IsNotFound("/missing"));
  const std::string empty = testing::TempDir() + "/empty";
  ASSERT_OK(CreateDirectory(empty));
  EXPECT_THAT(LoadTrainedModel(empty), IsNotFound("not a state directory"));
}

}  // namespace
}  // namespace causeway
