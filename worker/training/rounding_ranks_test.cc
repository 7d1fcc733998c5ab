// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Tests trainers whose ranks exchange values in bf16.
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/tensors/model_layout.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "quantization/formats/dense_reference.h"
#include "worker/training/testing/train_ranks.h"

namespace causeway {
namespace {

double MeanDistance(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += std::abs(a[i] - b[i]);
  return sum / static_cast<double>(a.size());
}

// Most parameters' steps are too small for bf16: these would stand still if
// masters were rounded.
TEST(RoundingRanksTest, MastersKeepWhatRoundedParametersCannotShow) {
  for (const auto algorithm :
       {v1::TrainingConfig::DDP, v1::TrainingConfig::ACCO}) {
    for (const int ranks : {2, 3}) {
      SCOPED_TRACE(absl::StrCat(
          v1::TrainingConfig::InnerAlgorithm_Name(algorithm), ", ", ranks));
      Scenario scenario = {.config = Config(algorithm, ranks),
                           .ranks = ranks,
                           .counts = SharesOf(ranks),
                           .steps = 40};
      scenario.config.set_learning_rate(0.0005);
      scenario.config.set_warmup_steps(0);
      scenario.config.set_schedule(v1::TrainingConfig::CONSTANT);
      scenario.config.set_weight_decay(0);
      ASSERT_OK_AND_ASSIGN(const Outcome exact, Train(scenario));
      scenario.rounds = true;
      ASSERT_OK_AND_ASSIGN(const Outcome rounded, Train(scenario));
      const std::vector<float>& want = exact.parameters.back();
      const std::vector<float>& got = rounded.parameters.back();
      for (const float value : got) {
        ASSERT_EQ(value, FloatFromBf16(Bf16FromFloat(value)));
      }
      const std::vector<float> start =
          InitialParameters(MakeModelLayout(scenario.model), 1);
      EXPECT_LT(MeanDistance(got, want), MeanDistance(start, want) / 8);
    }
  }
}

}  // namespace
}  // namespace causeway
