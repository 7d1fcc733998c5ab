// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/rules/status_views.h"

#include <string>

#include "common/testing/status_matchers.h"
#include "gtest/gtest.h"
#include "server/rules/testing/coordinator_driver.h"

namespace causeway {
namespace {

TEST(StatusViewsTest, AWaitSaysWhatTheUpdateLacks) {
  CoordinatorDriver run({.quorum = 2});
  const v1::IslandIdentity a = run.Join("a");
  const v1::IslandIdentity b = run.Join("b");
  const auto activity = [&] {
    v1::IslandProgress progress;
    progress.set_ready(true);
    progress.set_activity("waiting");
    progress.mutable_wait()->set_reason(v1::Wait::UPDATE_DUE);
    progress.mutable_wait()->set_fragment(0);
    EXPECT_OK(run.Heartbeat(a, progress));
    return DescribeIslands(run.core(), {}, 1 << 20, run.now())
        .islands(0)
        .progress()
        .activity();
  };
  ASSERT_OK(run.Contribute(Contribution(a, 0)));
  EXPECT_EQ(activity(), "waiting (for 0s; awaited: b)");
  ASSERT_OK(run.Contribute(Contribution(b, 0)));
  // The outer step may wait for the disk, or for followers.
  EXPECT_EQ(activity(), "waiting (for 0s; the update is being made)");
  run.Commit();
  EXPECT_EQ(activity(), "waiting (for 0s; the update is on its way)");
}

TEST(StatusViewsTest, AnIslandIsUnheardUntilItReports) {
  CoordinatorDriver run({});
  ASSERT_OK_AND_ASSIGN(const v1::JoinResponse joined, run.TryJoin("a", 1));
  const auto is_unheard = [&] {
    return DescribeIslands(run.core(), {}, 1 << 20, run.now())
        .islands(0)
        .is_unheard();
  };
  EXPECT_TRUE(is_unheard());
  ASSERT_OK(run.Heartbeat(joined.identity()));
  EXPECT_FALSE(is_unheard());
}

}  // namespace
}  // namespace causeway
