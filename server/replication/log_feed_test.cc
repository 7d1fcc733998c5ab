// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/replication/log_feed.h"

#include <atomic>
#include <memory>
#include <set>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

using testing::ElementsAre;
using testing::Field;
using testing::IsEmpty;
using testing::IsNull;
using testing::SizeIs;
using testing::UnorderedElementsAre;

constexpr absl::Time kNow = absl::FromUnixSeconds(1700000000);

v1::LogPosition PositionOf(uint64_t index) {
  v1::LogPosition position;
  position.set_index(index);
  position.set_hash(absl::StrCat("hash ", index));
  return position;
}

class LogFeedTest : public testing::Test {
 protected:
  LogFeedTest() { feed_.Begin(PositionOf(10)); }

  void Add(uint64_t index, uint64_t bytes = 1) {
    auto change = std::make_shared<v1::LogChange>();
    *change->mutable_position() = PositionOf(index);
    change->set_rows(std::string(bytes, 'r'));
    feed_.Add(std::move(change));
  }
  v1::FollowerStatus::State StateOfFirst() {
    return feed_.Report(kNow)[0].state();
  }

  LogFeed feed_;
};

TEST_F(LogFeedTest, GivesTheChangesInOrder) {
  EXPECT_EQ(feed_.Newest().index(), 10);
  EXPECT_THAT(feed_.After(10), IsOkAndHolds(IsNull()));
  Add(11);
  Add(12);
  EXPECT_EQ(feed_.Newest().index(), 12);
  EXPECT_EQ((*feed_.After(10))->position().index(), 11);
  EXPECT_EQ((*feed_.After(11))->position().index(), 12);
  EXPECT_THAT(feed_.After(12), IsOkAndHolds(IsNull()));
  EXPECT_THAT(feed_.After(9), IsNotFound());
}

TEST_F(LogFeedTest, ContinuesTheLogsThatItKnows) {
  Add(11);
  EXPECT_TRUE(feed_.Continues(PositionOf(10)));
  EXPECT_TRUE(feed_.Continues(PositionOf(11)));
  EXPECT_FALSE(feed_.Continues(PositionOf(9))) << "too old";
  EXPECT_FALSE(feed_.Continues(PositionOf(12))) << "of another log";
  v1::LogPosition other = PositionOf(11);
  other.set_hash("hash of a coordinator that was replaced");
  EXPECT_FALSE(feed_.Continues(other));
}

TEST_F(LogFeedTest, OldChangesMakeRoom) {
  Add(11, LogFeed::kMostBytes / 2);
  Add(12, LogFeed::kMostBytes / 2);
  EXPECT_TRUE(feed_.Continues(PositionOf(10)));
  Add(13);
  EXPECT_FALSE(feed_.Continues(PositionOf(10)));
  EXPECT_TRUE(feed_.Continues(PositionOf(11)));
  Add(14, 2 * LogFeed::kMostBytes);
  EXPECT_EQ((*feed_.After(13))->position().index(), 14)
      << "the newest stays, however large";
}

TEST_F(LogFeedTest, ListenersHearOfChanges) {
  absl::Notification heard;
  const uint64_t id = feed_.news().Add([&] {
    if (!heard.HasBeenNotified()) heard.Notify();
  });
  Add(11);
  heard.WaitForNotification();
  feed_.news().Remove(id);
}

TEST_F(LogFeedTest, AFollowerIsInSyncWhileItKeepsUp) {
  ASSERT_OK(feed_.Join("f", "there:1", kNow));
  EXPECT_THAT(feed_.Join("f", "elsewhere:2", kNow), IsAlreadyExists("there:1"));
  EXPECT_EQ(StateOfFirst(), v1::FollowerStatus::CATCHING_UP);
  EXPECT_EQ(feed_.Report(kNow)[0].changes_behind(), 10);
  feed_.Acknowledge("f", 10);
  EXPECT_EQ(StateOfFirst(), v1::FollowerStatus::IN_SYNC);

  Add(11);
  EXPECT_THAT(feed_.Tick(kNow),
              ElementsAre(Field(&CoordinatorEvent::kind, "follower_joined"),
                          Field(&CoordinatorEvent::kind, "follower_in_sync")));
  const absl::Time late = kNow + LogFeed::kBehindAfter;
  EXPECT_EQ(feed_.Report(late)[0].seconds_behind(),
            absl::ToDoubleSeconds(LogFeed::kBehindAfter));
  EXPECT_THAT(feed_.Tick(late - absl::Milliseconds(1)), IsEmpty());
  EXPECT_THAT(feed_.Tick(late),
              ElementsAre(Field(&CoordinatorEvent::kind, "follower_behind")));
  EXPECT_EQ(StateOfFirst(), v1::FollowerStatus::BEHIND);
  EXPECT_THAT(feed_.Tick(late), IsEmpty());
  feed_.Acknowledge("f", 11);
  EXPECT_EQ(StateOfFirst(), v1::FollowerStatus::IN_SYNC);
  feed_.Leave("f", "broken connection");
  EXPECT_THAT(feed_.Tick(late), SizeIs(2));
  EXPECT_THAT(feed_.Report(late), IsEmpty());
}

TEST_F(LogFeedTest, AFollowerThatNeverHasTheNewestChangeIsInSync) {
  ASSERT_OK(feed_.Join("f", "there:1", kNow));
  Add(11);
  feed_.Tick(kNow);
  feed_.Acknowledge("f", 10);
  const absl::Time later = kNow + LogFeed::kCaughtUpWithin;
  feed_.Tick(later);
  EXPECT_EQ(StateOfFirst(), v1::FollowerStatus::CATCHING_UP);
  Add(12);
  feed_.Acknowledge("f", 11);
  feed_.Tick(later);
  EXPECT_EQ(StateOfFirst(), v1::FollowerStatus::IN_SYNC);
}

TEST_F(LogFeedTest, AFollowerAtWorkIsInSyncForSomeMinutes) {
  ASSERT_OK(feed_.Join("f", "", kNow, {.region = "x", .address = "f:1"}));
  feed_.Acknowledge("f", 10);
  Add(11);
  feed_.Tick(kNow);
  const auto work_until = [&](absl::Time now) {
    feed_.Acknowledge("f", 0);
    feed_.Tick(now);
    return StateOfFirst();
  };
  const absl::Time late = kNow + LogFeed::kBehindAfter;
  EXPECT_FALSE(feed_.Report(kNow)[0].at_work());
  EXPECT_EQ(work_until(late), v1::FollowerStatus::IN_SYNC);
  EXPECT_TRUE(feed_.Report(late)[0].at_work());
  EXPECT_EQ(feed_.FindNear("x", "island"), "") << "it lacks the version";
  feed_.Tick(late + LogFeed::kBehindAfter - absl::Milliseconds(1));
  EXPECT_EQ(StateOfFirst(), v1::FollowerStatus::IN_SYNC);
  feed_.Tick(late + LogFeed::kBehindAfter);
  EXPECT_EQ(StateOfFirst(), v1::FollowerStatus::BEHIND) << "it is silent";
  EXPECT_FALSE(feed_.Report(late)[0].at_work());

  feed_.Acknowledge("f", 11);
  const absl::Time again = kNow + absl::Hours(1);
  Add(12);
  feed_.Tick(again);
  const absl::Time last = again + LogFeed::kBehindAtMost;
  EXPECT_EQ(work_until(last - absl::Milliseconds(1)),
            v1::FollowerStatus::IN_SYNC);
  EXPECT_EQ(work_until(last), v1::FollowerStatus::BEHIND);
}

TEST_F(LogFeedTest, AFollowerThatComesAgainAndAgainIsRecordedOnce) {
  for (int i = 0; i < 3; ++i) {
    ASSERT_OK(feed_.Join("f", "there:1", kNow));
    feed_.Leave("f", "its stream has ended");
  }
  EXPECT_THAT(feed_.Tick(kNow),
              ElementsAre(Field(&CoordinatorEvent::kind, "follower_joined"),
                          Field(&CoordinatorEvent::kind, "follower_left")));
  ASSERT_OK(feed_.Join("f", "there:1", kNow));
  feed_.Acknowledge("f", 10);
  feed_.Leave("f", "its stream has ended");
  EXPECT_THAT(feed_.Tick(kNow),
              ElementsAre(Field(&CoordinatorEvent::kind, "follower_in_sync"),
                          Field(&CoordinatorEvent::kind, "follower_left")));
  ASSERT_OK(feed_.Join("f", "there:1", kNow));
  EXPECT_THAT(feed_.Tick(kNow),
              ElementsAre(Field(&CoordinatorEvent::kind, "follower_joined")));
}

TEST_F(LogFeedTest, IslandsAreSentToFollowersOfTheirRegionThatKeepUp) {
  ASSERT_OK(feed_.Join("a", "", kNow, {.region = "x", .address = "a:1"}));
  ASSERT_OK(feed_.Join("b", "", kNow, {.region = "y", .address = "b:1"}));
  ASSERT_OK(feed_.Join("c", "", kNow));
  EXPECT_EQ(feed_.FindNear("x", "island"), "") << "it catches up";
  for (const char* name : {"a", "b", "c"}) feed_.Acknowledge(name, 10);
  EXPECT_EQ(feed_.FindNear("x", "island"), "a:1");
  EXPECT_EQ(feed_.FindNear("y", "island"), "b:1");
  EXPECT_EQ(feed_.FindNear("z", "island"), "");
  EXPECT_EQ(feed_.FindNear("", "island"), "");
  // Islands share the followers of a region.
  ASSERT_OK(feed_.Join("d", "", kNow, {.region = "x", .address = "d:1"}));
  feed_.Acknowledge("d", 10);
  std::set<std::string> found;
  for (int i = 0; i < 20; ++i) {
    const std::string island = absl::StrCat("island-", i);
    found.insert(feed_.FindNear("x", island));
    EXPECT_EQ(feed_.FindNear("x", island), feed_.FindNear("x", island));
  }
  EXPECT_THAT(found, ElementsAre("a:1", "d:1"));
  feed_.Leave("d", "");
  Add(11);
  feed_.Acknowledge("b", 11);
  feed_.Tick(kNow);
  feed_.Tick(kNow + LogFeed::kBehindAfter);
  EXPECT_EQ(feed_.FindNear("x", "island"), "") << "it is behind";
  EXPECT_EQ(feed_.FindNear("y", "island"), "b:1");
}

TEST_F(LogFeedTest, WaitsForTheFollowersInSync) {
  EXPECT_OK(feed_.AwaitDurable(10, 2)) << "nobody is in sync";
  for (const std::string name : {"a", "b"}) {
    ASSERT_OK(feed_.Join(name, "", kNow));
    feed_.Acknowledge(name, 10);
  }
  Add(11);
  const auto wait = [&](uint32_t replicas) {
    return std::thread(
        [this, replicas] { EXPECT_OK(feed_.AwaitDurable(11, replicas)); });
  };
  std::thread one = wait(1);
  std::thread two = wait(2);
  feed_.Acknowledge("b", 11);
  one.join();
  // Versions no longer wait for "a".
  feed_.Tick(kNow);
  feed_.Tick(kNow + LogFeed::kBehindAfter);
  two.join();
  Add(12);
  std::thread last = wait(1);
  feed_.Leave("b", "");
  last.join();
}

TEST_F(LogFeedTest, AStopEndsWaits) {
  ASSERT_OK(feed_.Join("a", "", kNow));
  feed_.Acknowledge("a", 10);
  Add(11);
  std::thread waiting(
      [this] { EXPECT_THAT(feed_.AwaitDurable(11, 1), IsUnavailable()); });
  feed_.Stop();
  waiting.join();
}

// Where coordinators are elected, only SetInSync changes the set of followers
// that versions wait for.
TEST_F(LogFeedTest, OnlyTheElectionChangesTheFollowersInSync) {
  feed_.SetInSync({"gone"});
  EXPECT_EQ(StateOfFirst(), v1::FollowerStatus::IN_SYNC);
  EXPECT_EQ(feed_.Report(kNow)[0].seconds_behind(), 0) << "it may come yet";
  ASSERT_OK(feed_.Join("a", "", kNow));
  feed_.Tick(kNow);
  feed_.Acknowledge("a", 10);
  EXPECT_EQ(StateOfFirst(), v1::FollowerStatus::CATCHING_UP);
  EXPECT_THAT(feed_.DueInSync(), UnorderedElementsAre("a", "gone"));
  Add(11);
  std::atomic<bool> is_over = false;
  std::thread waiting([&] {
    EXPECT_OK(feed_.AwaitDurable(11, 0));
    is_over = true;
  });
  feed_.Tick(kNow + LogFeed::kBehindAfter);
  EXPECT_THAT(feed_.DueInSync(), UnorderedElementsAre("a"));
  feed_.SetInSync({"a", "gone"});
  feed_.Acknowledge("a", 11);
  absl::SleepFor(absl::Milliseconds(50));
  EXPECT_FALSE(is_over) << "the absent one may be elected";
  feed_.SetInSync({"a"});
  waiting.join();
  EXPECT_THAT(feed_.Report(kNow), SizeIs(1));
}

TEST_F(LogFeedTest, KnowsWhichFollowersHaveThePublishedVersions) {
  feed_.SetInSync({});
  ASSERT_OK(feed_.Join("a", "", kNow));
  feed_.Acknowledge("a", 10);
  Add(11);
  EXPECT_TRUE(feed_.HavePublished({"a"}));
  EXPECT_TRUE(feed_.TryDurable(11, 0)) << "nobody is in sync";
  feed_.SetInSync({"a"});
  EXPECT_FALSE(feed_.HavePublished({"a"})) << "11 did not wait for it";
  Add(12);
  EXPECT_FALSE(feed_.TryDurable(12, 0));
  feed_.Acknowledge("a", 11);
  EXPECT_TRUE(feed_.HavePublished({"a"}));
  EXPECT_FALSE(feed_.HavePublished({"a", "stranger"}));
}

TEST_F(LogFeedTest, BeginsOnceFollowersHaveTheFirstChanges) {
  feed_.SetInSync({"a"});
  Add(11);
  EXPECT_FALSE(feed_.IsBegun());
  ASSERT_OK(feed_.Join("a", "", kNow));
  feed_.Acknowledge("a", 9);
  EXPECT_FALSE(feed_.IsBegun());
  feed_.Acknowledge("a", 10);
  EXPECT_TRUE(feed_.IsBegun());
  feed_.SetInSync({"a", "stranger"});
  EXPECT_TRUE(feed_.IsBegun()) << "for good";
}

TEST_F(LogFeedTest, BeginsAtOnceWithoutElections) {
  EXPECT_TRUE(feed_.IsBegun());
}

TEST_F(LogFeedTest, AnElectedLeaderBeginsOnceItKnowsWhoIsInSync) {
  feed_.Begin(PositionOf(10), /*is_elected=*/true);
  EXPECT_FALSE(feed_.IsBegun());
  EXPECT_FALSE(feed_.TryDurable(10, 0));
  feed_.SetInSync({"a"});
  EXPECT_FALSE(feed_.IsBegun());
  feed_.SetInSync({});
  EXPECT_TRUE(feed_.IsBegun());
}

TEST_F(LogFeedTest, VersionsWaitForAFollowerThatIsAway) {
  ASSERT_OK(feed_.Join("a", "", kNow));
  feed_.Acknowledge("a", 10);
  feed_.SetInSync({"a"});
  feed_.Leave("a", "broken connection");
  Add(11);
  std::thread waiting([&] { EXPECT_OK(feed_.AwaitDurable(11, 0)); });
  ASSERT_OK(feed_.Join("a", "", kNow));
  feed_.Acknowledge("a", 11);
  waiting.join();
}

}  // namespace
}  // namespace causeway
