// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/outer_loop/fragment_window.h"

#include <cstdint>

#include "gtest/gtest.h"

namespace causeway {
namespace {

using Training = FragmentWindow::Training;

AnchorChange Update(uint64_t from_version) {
  AnchorChange update{.from_version = from_version};
  update.head.set_version(from_version + 1);
  return update;
}
AnchorChange Own(uint64_t from_version) {
  AnchorChange update = Update(from_version);
  update.includes_island = true;
  return update;
}
// Returns an update with training of an earlier process, ten tokens a step.
AnchorChange Other(uint64_t from_version, uint64_t tokens) {
  AnchorChange update = Update(from_version);
  update.other = {.tokens = tokens, .inner_steps = tokens / 10};
  return update;
}

// The window of a process that begins with 100 tokens in 10 steps, and joined
// at version 6.
FragmentWindow Restored() {
  v1::IslandCheckpoint::Fragment saved;
  saved.set_tokens(100);
  saved.set_inner_steps(10);
  return FragmentWindow(saved, 6);
}

TEST(FragmentWindow, WhatIsMergedLeavesTheWindow) {
  FragmentWindow window;
  EXPECT_TRUE(window.empty());
  window.Add(10);
  window.Add(0);
  window.Add(10);
  window.Send();
  EXPECT_TRUE(window.all_sent());
  window.Add(10);
  EXPECT_FALSE(window.all_sent());
  EXPECT_TRUE(window.Settle(Own(4)));
  EXPECT_EQ(window.training(), (Training{.tokens = 10, .inner_steps = 1}));
}

TEST(FragmentWindow, WhatIsLateStays) {
  FragmentWindow window;
  window.Add(10);
  window.Send();
  window.Add(10);
  EXPECT_FALSE(window.Settle(Update(4)));
  EXPECT_EQ(window.training(), (Training{.tokens = 20, .inner_steps = 2}));
  EXPECT_FALSE(window.all_sent());
}

TEST(FragmentWindow, AFreshStartHasNoEarlierTraining) {
  FragmentWindow window;
  window.Add(10);
  EXPECT_FALSE(window.Settle(Other(4, 10)));
  EXPECT_EQ(window.training().tokens, 10);
  EXPECT_EQ(window.earlier_until(), 0);
}

TEST(FragmentWindow, WhatEarlierProcessesHandedInLeavesTheWindow) {
  FragmentWindow window = Restored();
  EXPECT_EQ(window.earlier_until(), 7);
  window.Add(10);
  EXPECT_EQ(
      window.training(),
      (Training{.tokens = 110, .restored_tokens = 100, .inner_steps = 11}));
  EXPECT_FALSE(window.Settle(Update(4)));
  EXPECT_EQ(window.training().tokens, 110);
  // All was handed in with 30 later tokens, 10 of which were repeated.
  EXPECT_TRUE(window.Settle(Other(6, 130)));
  EXPECT_EQ(window.training(), Training());
}

// The parameters become the anchor, because the snapshot is missing.
TEST(FragmentWindow, WhatWasTrainedBeyondAnEarlierContributionIsLost) {
  FragmentWindow window = Restored();
  window.Add(10);
  // Part of the window was in flight when the checkpoint was made.
  EXPECT_TRUE(window.Settle(Other(4, 60)));
  EXPECT_EQ(window.training(), Training());
  window.Add(10);
  EXPECT_EQ(window.training(), (Training{.tokens = 10, .inner_steps = 1}));
}

// The parameters keep what was trained since the snapshot.
TEST(FragmentWindow, WhatWasTrainedSinceASnapshotStays) {
  FragmentWindow window = Restored();
  window.Add(10);
  window.Send();
  window.Add(10);
  window.Add(10);
  EXPECT_TRUE(window.Settle(Other(4, 60)));
  EXPECT_EQ(window.training(), (Training{.tokens = 20, .inner_steps = 2}));
}

TEST(FragmentWindow, WhatWasRepeatedSinceASnapshotIsRemoved) {
  FragmentWindow window = Restored();
  window.Send();
  for (int i = 0; i < 5; ++i) window.Add(10);
  EXPECT_TRUE(window.Settle(Other(6, 120)));
  EXPECT_EQ(window.training(), (Training{.tokens = 30, .inner_steps = 3}));
}

// A contribution of tokens without inner steps would be refused.
TEST(FragmentWindow, TokensWithoutAStepLeaveTheWindow) {
  v1::IslandCheckpoint::Fragment saved;
  saved.set_tokens(6000);
  saved.set_inner_steps(6);
  FragmentWindow window(saved, 6);
  window.Send();
  for (int i = 0; i < 4; ++i) window.Add(1010);
  AnchorChange update = Update(6);
  update.other = {.tokens = 10000, .inner_steps = 10};
  EXPECT_TRUE(window.Settle(update));
  EXPECT_EQ(window.training(), Training());
}

TEST(FragmentWindow, LaterRoundsContainNoEarlierTraining) {
  FragmentWindow window = Restored();
  EXPECT_FALSE(window.Settle(Other(7, 40)));
  EXPECT_EQ(window.training().restored_tokens, 100);
  window.Send();
  EXPECT_TRUE(window.Settle(Own(12)));
  EXPECT_TRUE(window.empty());
}

TEST(FragmentWindow, ACheckpointHasAllThatIsNotMerged) {
  FragmentWindow window = Restored();
  window.Add(10);
  window.Send();
  window.Add(10);
  v1::IslandCheckpoint::Fragment saved;
  window.Save(saved);
  EXPECT_EQ(saved.tokens(), 120);
  EXPECT_EQ(saved.inner_steps(), 12);
}

}  // namespace
}  // namespace causeway
