// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/collective/rank_stamps.h"

#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/testing/status_matchers.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

std::atomic<int64_t> seconds = 1000;

// A process opens only one page, so this test has everything that needs it.
TEST(RankStampsTest, AnotherProcessSeesWhatARankDoes) {
  const RankSectionScope without(0, RankLane::kTraining, RankSection::kStep);
  StampStep(0, 17);
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<RankStampPage> page,
                       RankStampPage::Create());
  ASSERT_EQ(setenv(kRankStampsVariable, page->path().c_str(), 1), 0);
  ASSERT_OK(OpenRankStamps([] { return absl::FromUnixSeconds(seconds); }));

  RankStamps& stamps = page->rank(3);
  RankStamps::Lane& lane = stamps.lanes[static_cast<int>(RankLane::kReplica)];
  const auto stay = [&](int time) {
    const RankSectionScope scope(3, RankLane::kReplica, RankSection::kEncoding);
    seconds += time;
  };
  {
    const RankSectionScope scope(3, RankLane::kReplica, RankSection::kEncoding);
    EXPECT_EQ(stamps.process, getpid());
    EXPECT_EQ(lane.now & 0xff, static_cast<uint64_t>(RankSection::kEncoding));
    EXPECT_EQ(lane.now >> 8, 1'000'000'000);
    EXPECT_EQ(stamps.beat, 1'000'000'000);
    seconds += 5;
    while (stamps.beat != 1'005'000'000) absl::SleepFor(absl::Milliseconds(1));
  }
  EXPECT_EQ(lane.now, 0) << "the section has ended";
  const auto& longest = lane.longest[static_cast<int>(RankSection::kEncoding)];
  EXPECT_EQ(longest, 0) << "the first rounds do not count";
  for (uint64_t round = 0; round < kFirstRounds; ++round) StampRound(3);
  for (const int time : {2, 7, 3}) stay(time);
  EXPECT_EQ(longest, 7'000'000);
  EXPECT_EQ(lane.count, 4);
  EXPECT_EQ(stamps.step, 0);
  StampStep(3, 17);
  EXPECT_EQ(stamps.step, 17);

  page->member() = 99;
  page->Clear();
  EXPECT_EQ(stamps.process, 0);
  EXPECT_EQ(longest, 0);
  EXPECT_EQ(OpenedRankStamps()->member(), 99);
}

TEST(RankStampsTest, TheFirstVerdictIsTakenOnce) {
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<RankStampPage> page,
                       RankStampPage::Create());
  EXPECT_FALSE(page->TakeVerdict().has_value());
  v1::RankTrouble verdict;
  for (const uint32_t rank : {2, 1}) {
    verdict.set_kind(v1::RankTrouble::STUCK_RANK);
    verdict.set_rank(rank);
    page->SetVerdict(verdict);
  }
  page->Clear();
  const std::optional<v1::RankTrouble> taken = page->TakeVerdict();
  ASSERT_TRUE(taken.has_value());
  EXPECT_EQ(taken->kind(), v1::RankTrouble::STUCK_RANK);
  EXPECT_EQ(taken->rank(), 2);
  EXPECT_FALSE(page->TakeVerdict().has_value());
}

TEST(RankStampsTest, OneProcessTakesAVerdictWholeWhileOthersAreSet) {
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<RankStampPage> page,
                       RankStampPage::Create());
  std::atomic<bool> is_done = false;
  std::thread supervisor([&] {
    for (uint32_t number = 0; !is_done; ++number) {
      v1::RankTrouble verdict;
      verdict.set_rank(number);
      verdict.set_text(std::string(1000, number % 2 == 0 ? 'a' : 'b'));
      page->SetVerdict(verdict);
      std::this_thread::yield();
    }
  });
  const auto take = [&](std::vector<uint32_t>& taken) {
    while (taken.size() < 300) {
      const std::optional<v1::RankTrouble> verdict = page->TakeVerdict();
      if (!verdict.has_value()) {
        std::this_thread::yield();
        continue;
      }
      taken.push_back(verdict->rank());
      EXPECT_EQ(verdict->text(),
                std::string(1000, verdict->rank() % 2 == 0 ? 'a' : 'b'));
    }
  };
  std::vector<uint32_t> here, there;
  std::thread other([&] { take(there); });
  take(here);
  other.join();
  is_done = true;
  supervisor.join();
  std::set<uint32_t> taken(here.begin(), here.end());
  taken.insert(there.begin(), there.end());
  EXPECT_EQ(taken.size(), here.size() + there.size());
}

TEST(RankStampsTest, AVerdictCanBeDropped) {
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<RankStampPage> page,
                       RankStampPage::Create());
  v1::RankTrouble verdict;
  for (const uint32_t rank : {2, 1}) {
    verdict.set_rank(rank);
    page->DropVerdict();
    page->SetVerdict(verdict);
  }
  EXPECT_EQ(page->TakeVerdict()->rank(), 1);
}

TEST(RankStampsTest, AFileThatIsNoPageIsRefused) {
  EXPECT_THAT(RankStampPage::Open("/dev/null"), IsFailedPrecondition());
  EXPECT_THAT(RankStampPage::Open("/nowhere"), IsNotFound());
}

}  // namespace
}  // namespace causeway
