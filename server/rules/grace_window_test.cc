// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/rules/grace_window.h"

#include "gtest/gtest.h"

namespace causeway {
namespace {

constexpr absl::Time kStart = absl::UnixEpoch();
constexpr GraceOptions kOptions{
    .most = absl::Seconds(100), .overlap_share = 0.5, .overlap_steps = 10};

// Steps of 2 s: the update is needed 20 s after the first island sent.
GraceMeasures Measures() {
  return {.first_offer = kStart,
          .upload = absl::Seconds(3),
          .outer_step = absl::Seconds(1),
          .quorum_at = kStart + absl::Seconds(4),
          .inner_step = absl::Seconds(2)};
}

TEST(GraceWindow, IsAShareOfTheOverlapTimeThatIsLeft) {
  EXPECT_EQ(GraceWindow(kOptions, Measures()), 0.5 * absl::Seconds(12));
  GraceOptions all = kOptions;
  all.overlap_share = 1;
  EXPECT_EQ(GraceWindow(all, Measures()), absl::Seconds(12));
}

TEST(GraceWindow, IsAtLeastAnInnerStep) {
  GraceMeasures late = Measures();
  late.quorum_at = kStart + absl::Seconds(30);
  EXPECT_EQ(GraceWindow(kOptions, late), absl::Seconds(2));
  GraceOptions no_overlap = kOptions;
  no_overlap.overlap_steps = 0;
  EXPECT_EQ(GraceWindow(no_overlap, Measures()), absl::Seconds(2));
}

TEST(GraceWindow, IsAtMostWhatIsConfigured) {
  GraceOptions tight = kOptions;
  tight.most = absl::Seconds(1);
  EXPECT_EQ(GraceWindow(tight, Measures()), absl::Seconds(1));
}

TEST(GraceWindow, IsWhatIsConfiguredWithoutAShareOrAMeasure) {
  GraceOptions fixed = kOptions;
  fixed.overlap_share = 0;
  EXPECT_EQ(GraceWindow(fixed, Measures()), fixed.most);
  GraceMeasures unknown = Measures();
  unknown.inner_step = absl::ZeroDuration();
  EXPECT_EQ(GraceWindow(kOptions, unknown), kOptions.most);
}

}  // namespace
}  // namespace causeway
