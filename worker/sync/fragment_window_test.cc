// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/sync/fragment_window.h"

#include "gtest/gtest.h"

namespace causeway {
namespace {

using Training = FragmentWindow::Training;

FragmentUpdate Update(uint64_t from_version, uint64_t version = 0) {
  FragmentUpdate update{.from_version = from_version};
  update.head.set_version(version > 0 ? version : from_version + 1);
  return update;
}

FragmentUpdate Own(uint64_t from_version) {
  FragmentUpdate update = Update(from_version);
  update.includes_island = true;
  return update;
}

FragmentUpdate Others(uint64_t from_version, uint64_t version = 0) {
  FragmentUpdate update = Update(from_version, version);
  update.includes_other = true;
  return update;
}

// 100 tokens in 10 steps, of which `sent` tokens, ten for each step, were in
// flight.
v1::IslandCheckpoint::Fragment Saved(uint64_t sent = 0) {
  v1::IslandCheckpoint::Fragment saved;
  saved.set_tokens(100);
  saved.set_inner_steps(10);
  saved.set_sent_tokens(sent);
  saved.set_sent_inner_steps(sent / 10);
  return saved;
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

TEST(FragmentWindow, WhoBeganWithTheRunsParametersHasForgottenNothing) {
  FragmentWindow window(4);
  window.Add(10);
  EXPECT_FALSE(window.Settle(Others(4))) << "it has not trained that";
  EXPECT_FALSE(window.Settle(Update(5, 9)));
  EXPECT_EQ(window.training().tokens, 10);
}

TEST(FragmentWindow, ALaterContributionHeldAllOfTheCheckpoint) {
  FragmentWindow window(Saved(), 6);
  window.Add(10);
  EXPECT_EQ(
      window.training(),
      (Training{.tokens = 110, .restored_tokens = 100, .inner_steps = 11}));
  // Merged two rounds after the checkpoint's version.
  EXPECT_FALSE(window.Settle(Update(4)));
  EXPECT_FALSE(window.Settle(Update(5)));
  EXPECT_TRUE(window.Settle(Others(6)));
  EXPECT_TRUE(window.empty());
  EXPECT_EQ(window.training(), Training());
}

TEST(FragmentWindow, WhatFollowsItHoldsNothingOfTheWindow) {
  FragmentWindow window(Saved(), 6);
  EXPECT_TRUE(window.Settle(Others(4)));
  window.Add(10);
  EXPECT_FALSE(window.Settle(Others(5)));
  EXPECT_EQ(window.training(), (Training{.tokens = 10, .inner_steps = 1}));
}

TEST(FragmentWindow, WhatWasInFlightIsInTheNextUpdateAndTheRestInAnother) {
  FragmentWindow window(Saved(/*sent=*/40), 6);
  window.Add(10);
  EXPECT_TRUE(window.Settle(Others(4)));
  EXPECT_EQ(window.training(),
            (Training{.tokens = 70, .restored_tokens = 60, .inner_steps = 7}));
  EXPECT_TRUE(window.Settle(Others(5)));
  EXPECT_TRUE(window.empty());
}

TEST(FragmentWindow, WhatWasInFlightAndLateIsPartOfTheNextContribution) {
  FragmentWindow window(Saved(/*sent=*/40), 6);
  EXPECT_FALSE(window.Settle(Update(4)));
  EXPECT_TRUE(window.Settle(Others(5)));
  EXPECT_TRUE(window.empty());
}

TEST(FragmentWindow, NobodyElseIsMergedAfterTheRoundThatWasOpenAtTheJoin) {
  FragmentWindow window(Saved(), 6);
  EXPECT_FALSE(window.Settle(Update(6)));
  EXPECT_FALSE(window.Settle(Others(7)));
  EXPECT_FALSE(window.Settle(Update(8, 12)));
  EXPECT_EQ(window.training().restored_tokens, 100);
  window.Send();
  EXPECT_TRUE(window.Settle(Own(12)));
  EXPECT_TRUE(window.empty());
}

TEST(FragmentWindow, OfUpdatesThatWereSkippedItIsKnownToo) {
  FragmentUpdate skipping = Update(4, 9);
  skipping.skipped_include_other = true;
  FragmentWindow later(Saved(/*sent=*/40), 6);
  later.Add(10);
  EXPECT_TRUE(later.Settle(skipping));
  EXPECT_TRUE(later.empty());
  // What was in flight, and then the rest.
  skipping.includes_other = true;
  FragmentWindow both(Saved(/*sent=*/40), 6);
  EXPECT_TRUE(both.Settle(skipping));
  EXPECT_TRUE(both.empty());
  FragmentWindow first(Saved(/*sent=*/40), 6);
  EXPECT_TRUE(first.Settle(Others(4, 9)));
  EXPECT_EQ(first.training().tokens, 60);
  FragmentWindow none(Saved(/*sent=*/40), 6);
  EXPECT_FALSE(none.Settle(Update(4, 9)));
  EXPECT_EQ(none.training().tokens, 100);
}

TEST(FragmentWindow, SaysWhichUpdatesMayHaveTrainingOfItsCheckpoint) {
  EXPECT_EQ(FragmentWindow().earlier_until(), 0);
  EXPECT_EQ(FragmentWindow(6).earlier_until(), 0);
  FragmentWindow window(Saved(), 6);
  EXPECT_EQ(window.earlier_until(), 7);
  EXPECT_TRUE(window.Settle(Others(4)));
  EXPECT_EQ(window.earlier_until(), 0) << "nothing of it is left";
}

TEST(FragmentWindow, ACheckpointSaysWhatIsInFlightIfItIsCertainlyThat) {
  for (FragmentWindow window :
       {FragmentWindow(6), FragmentWindow(Saved(), 6)}) {
    window.Add(10);
    window.Send();
    const Training sent = window.training();
    window.Add(10);
    v1::IslandCheckpoint::Fragment saved;
    // An earlier process may be part of the update to 7 instead.
    window.Save(6, saved);
    EXPECT_EQ(saved.tokens(), window.training().tokens);
    EXPECT_EQ(saved.inner_steps(), window.training().inner_steps);
    EXPECT_EQ(saved.sent_tokens(), 0);
    EXPECT_EQ(saved.sent_inner_steps(), 0);
    window.Save(7, saved);
    EXPECT_EQ(saved.sent_tokens(), sent.tokens);
    EXPECT_EQ(saved.sent_inner_steps(), sent.inner_steps);
  }
}

}  // namespace
}  // namespace causeway
