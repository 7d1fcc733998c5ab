// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "cli/watch/loss_curve.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

using testing::ElementsAre;
using testing::Field;
using testing::IsEmpty;

std::vector<std::string> Drawn(const LossCurves& curves, uint64_t total_steps,
                               int rows, const ScreenFormat& format) {
  std::vector<std::string> text;
  for (const ScreenLine& line :
       DrawLossCurves(curves, total_steps, rows, format)) {
    text.push_back(line.Text(format));
  }
  return text;
}

TEST(LossCurveTest, FallsFromTheUpperLeftToTheLowerRight) {
  const LossCurves curves = {.training = {{0, 4}, {4, 2}}};
  EXPECT_THAT(Drawn(curves, 4, 6, {.columns = 12}),
              ElementsAre("loss  .. tr>", " 3.750 |.   ", " 3.250 | .  ",
                          " 2.750 |  . ", " 2.250 |   .", "        0"));
}

TEST(LossCurveTest, BrailleHasEightDotsInACharacter) {
  const LossCurves curves = {.training = {{0, 4}, {8, 2}}};
  EXPECT_THAT(Drawn(curves, 8, 3, {.columns = 10, .unicode = true})[1],
              " 3.000 \u2502\u2811\u2884");
}

TEST(LossCurveTest, TheFirstLossesDoNotFlattenTheRest) {
  LossCurves curves;
  for (uint64_t step = 0; step < 100; ++step) {
    curves.training.push_back({step, step < 3 ? 1000.0 : 3.0 - 0.01 * step});
  }
  EXPECT_EQ(Drawn(curves, 100, 7, {.columns = 40})[1].substr(0, 8), " 2.865 |");
}

TEST(LossCurveTest, AFlatCurveLiesInTheMiddle) {
  EXPECT_THAT(Drawn({.validation = {{0, 2}, {4, 2}}}, 4, 5, {.columns = 12}),
              ElementsAre("loss  oo va>", " 2.067 |    ", " 2.000 |oooo",
                          " 1.933 |    ", "        0"));
}

TEST(LossCurveTest, NothingIsDrawnWithoutPoints) {
  EXPECT_THAT(Drawn({}, 4, 5, {}), IsEmpty());
}

TEST(LossCurveTest, AMeasurementHasTheStepOfItsVersion) {
  v1::GetHistoryResponse history;
  for (uint64_t i = 1; i <= 3; ++i) {
    v1::TrainingPoint& point = *history.add_training();
    point.set_version(10 * i);
    point.set_run_step(100 * i);
    point.set_loss(i == 2 ? 0 : 2);
  }
  for (const uint64_t version : {0, 20, 25, 40}) {
    v1::Validation& measured = *history.add_validations()->mutable_validation();
    measured.set_version(version);
    measured.set_loss(3);
  }
  const LossCurves curves = MakeLossCurves(history);
  EXPECT_THAT(curves.training, ElementsAre(Field(&LossPoint::step, 100),
                                           Field(&LossPoint::step, 300)));
  EXPECT_THAT(
      curves.validation,
      ElementsAre(Field(&LossPoint::step, 0), Field(&LossPoint::step, 200),
                  Field(&LossPoint::step, 300), Field(&LossPoint::step, 300)));
}

}  // namespace
}  // namespace causeway
