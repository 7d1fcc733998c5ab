// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/collective/crew.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <future>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/collective/culprit.h"
#include "worker/collective/tcp_rendezvous.h"

namespace causeway {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::Optional;
using testing::StartsWith;

constexpr absl::Duration kShrinkAfter = absl::Seconds(30);

// Allows sizes that share a batch of this many micro-batches.
CrewSizeAllowed Sharing(int micro_batches) {
  return
      [micro_batches](int processes) { return micro_batches % processes == 0; };
}

// Calls check(rules, present, allowed) for islands of up to 5 processes with up
// to 2 spares.
template <typename Check>
void ForAllCrews(const Check& check) {
  for (int size = 1; size <= 5; ++size) {
    for (int least = 1; least <= size; ++least) {
      const CrewRules rules{
          .size = size, .least = least, .shrink_after = kShrinkAfter};
      for (unsigned others = 0; others < (1U << (size + 1)); ++others) {
        std::set<int> present = {0};
        for (int process = 1; process < size + 2; ++process) {
          if ((others >> (process - 1) & 1) != 0) present.insert(process);
        }
        for (const int micro_batches : {1, 4, 6, 7, 60}) {
          check(rules, present, Sharing(micro_batches));
        }
      }
    }
  }
}

TEST(CrewRulesTest, ACrewIsAllowedOrderedAndHasProcess0First) {
  int crews = 0;
  ForAllCrews([&](const CrewRules& rules, const std::set<int>& present,
                  const CrewSizeAllowed& allowed) {
    for (const absl::Duration waited : {absl::ZeroDuration(), kShrinkAfter}) {
      const std::vector<int> crew = ChooseCrew(rules, present, allowed, waited);
      if (crew.empty()) continue;
      ++crews;
      const auto size = static_cast<int>(crew.size());
      EXPECT_EQ(crew[0], 0);
      EXPECT_TRUE(std::is_sorted(crew.begin(), crew.end()));
      EXPECT_EQ(std::set<int>(crew.begin(), crew.end()).size(), crew.size());
      for (const int process : crew) EXPECT_EQ(present.count(process), 1);
      EXPECT_TRUE(allowed(size));
      EXPECT_GE(size, rules.least);
      EXPECT_LE(size, rules.size);
    }
  });
  EXPECT_GT(crews, 100);
}

TEST(CrewRulesTest, ACrewIsChosenAtOnceOnlyIfItCannotGetLarger) {
  ForAllCrews([](const CrewRules& rules, const std::set<int>& present,
                 const CrewSizeAllowed& allowed) {
    const std::vector<int> at_once =
        ChooseCrew(rules, present, allowed, absl::ZeroDuration());
    const std::vector<int> later =
        ChooseCrew(rules, present, allowed, kShrinkAfter);
    std::set<int> all = present;
    for (int process = 0; process < rules.size; ++process) all.insert(process);
    const std::vector<int> best = ChooseCrew(rules, all, allowed, kShrinkAfter);
    // No allowed size that the processes have is left out.
    for (int size = rules.least; size <= rules.size; ++size) {
      if (allowed(size) && size <= static_cast<int>(present.size())) {
        EXPECT_GE(static_cast<int>(later.size()), size);
      }
    }
    if (later.size() == best.size()) {
      EXPECT_EQ(at_once, later);
    } else {
      EXPECT_THAT(at_once, IsEmpty());
    }
  });
}

TEST(CrewRulesTest, ASpareTakesThePlaceOfAMissingProcess) {
  const CrewRules rules{.size = 3, .least = 3};
  EXPECT_THAT(ChooseCrew(rules, {0, 1, 2, 3}, Sharing(6), {}),
              ElementsAre(0, 1, 2));
  EXPECT_THAT(ChooseCrew(rules, {0, 2, 7}, Sharing(6), {}),
              ElementsAre(0, 2, 7));
  EXPECT_THAT(ChooseCrew(rules, {0, 2}, Sharing(6), absl::Hours(1)), IsEmpty());
}

// A crew that grows does not wait again for processes that were missing before.
TEST(CrewRulesTest, TheLeaderWaitsForNoMoreProcessesThanAwaited) {
  const CrewRules rules{.size = 4, .least = 1, .awaited = 3};
  EXPECT_THAT(ChooseCrew(rules, {0, 2}, Sharing(12), {}), IsEmpty());
  EXPECT_THAT(ChooseCrew(rules, {0, 2, 3}, Sharing(12), {}),
              ElementsAre(0, 2, 3));
  EXPECT_THAT(ChooseCrew(rules, {0, 1, 2, 3}, Sharing(12), {}),
              ElementsAre(0, 1, 2, 3));
}

TEST(CrewRulesTest, TheLeaderComesFirstWhateverItsNumber) {
  const CrewRules rules{.size = 3, .least = 2, .leader = 1};
  EXPECT_THAT(ChooseCrew(rules, {0, 1, 2}, Sharing(6), {}),
              ElementsAre(1, 0, 2));
  EXPECT_THAT(ChooseCrew(rules, {1, 2}, Sharing(6), absl::Hours(1)),
              ElementsAre(1, 2));
}

TEST(CrewRulesTest, MissingProcessesAreKnown) {
  EXPECT_THAT(MissingFrom({.size = 4, .least = 2}, {0, 3}), ElementsAre(1, 2));
  EXPECT_THAT(MissingFrom({.size = 3, .least = 2}, {0, 2, 5}), IsEmpty());
  // Such an island waits for all.
  EXPECT_THAT(MissingFrom({.size = 3, .least = 3}, {0}), IsEmpty());
}

// The ranks of each process.
constexpr int kRanks = 2;

// Tests a leader whose clock the test can advance.
class CrewTest : public testing::Test {
 protected:
  void SetUp() override { StartServer("127.0.0.1:0"); }

  RendezvousOptions At(const std::string& address) const {
    return {.address = address, .now = SteadyWallClock()};
  }
  // `address` may be that of the server that ends here.
  void StartServer(std::string address) {
    leader_.reset();
    server_.reset();
    RendezvousOptions options = At(address);
    options.now = [this, real = SteadyWallClock()] {
      return real() + absl::Seconds(gap_.load());
    };
    ASSERT_OK_AND_ASSIGN(server_, RendezvousServer::Start(options));
    leader_.emplace(rules_, server_.get(), options.now);
    ASSERT_OK(server_->table()->Put("key", "value"));
  }

  using Place = std::future<absl::StatusOr<std::optional<CrewPlace>>>;
  Place Ask(int process, int ranks = kRanks) {
    return std::async(std::launch::async, [options = At(server_->address()),
                                           process, ranks, life = ++lives_] {
      return AwaitPlace(options, process, ranks, life, absl::Seconds(60));
    });
  }
  void AwaitPresent(const std::set<int>& present) {
    while (leader_->Present() != present) {
      absl::SleepFor(absl::Milliseconds(1));
    }
  }
  void AwaitAsked(absl::string_view prefix) {
    while (server_->Asked(prefix).empty()) {
      absl::SleepFor(absl::Milliseconds(1));
    }
  }
  absl::StatusOr<int> Choose(int micro_batches) {
    return leader_->Choose(kRanks, Sharing(micro_batches), [] { return true; });
  }
  static CrewPlace ExpectPlace(Place place, int rank, int size) {
    absl::StatusOr<std::optional<CrewPlace>> given = place.get();
    EXPECT_OK(given);
    if (!given.ok() || !given->has_value()) {
      ADD_FAILURE() << "no place";
      return {};
    }
    EXPECT_EQ((*given)->rank, rank);
    EXPECT_EQ((*given)->size, size);
    EXPECT_THAT((*given)->table->Get("key", absl::Seconds(30)),
                IsOkAndHolds("value"));
    return **std::move(given);
  }
  // Returns the places of processes 1 and 2 in a crew of three.
  std::pair<CrewPlace, CrewPlace> ChooseThree() {
    Place first = Ask(1);
    Place second = Ask(2);
    AwaitPresent({0, 1, 2});
    EXPECT_THAT(Choose(6), IsOkAndHolds(3));
    CrewPlace one = ExpectPlace(std::move(first), 1, 3);
    return {std::move(one), ExpectPlace(std::move(second), 2, 3)};
  }

  CrewRules rules_{.size = 3, .least = 2, .shrink_after = absl::Seconds(30)};
  uint64_t lives_ = 0;
  // The seconds by which the leader's clock is ahead.
  std::atomic<int> gap_ = 0;
  std::unique_ptr<RendezvousServer> server_;
  std::optional<CrewLeader> leader_;
};

TEST_F(CrewTest, ProcessesGetTheirRanksAndOthersWaitUntilTheyAreDismissed) {
  Place fifth = Ask(5);
  Place first = Ask(1);
  Place seventh = Ask(7);
  AwaitPresent({0, 1, 5, 7});
  EXPECT_THAT(Choose(6), IsOkAndHolds(3));
  ExpectPlace(std::move(first), 1, 3);
  ExpectPlace(std::move(fifth), 2, 3);
  // Three are enough, although another one waits.
  gap_ = 3600;
  AwaitPresent({0, 7});
  EXPECT_THAT(leader_->WithSpares(), ElementsAre(0, 1, 5, 7));
  EXPECT_FALSE(leader_->CanGrow());
  leader_->Dismiss();
  EXPECT_EQ(seventh.get()->has_value(), false);
}

TEST_F(CrewTest, ASmallerCrewGrowsAfterSomeTime) {
  EXPECT_GT(QuietTime({.shrink_after = {}}), absl::ZeroDuration());
  Place first = Ask(1);
  gap_ = 3600;
  AwaitPresent({0, 1});
  const auto later = gap_ + absl::ToInt64Seconds(rules_.shrink_after);
  int looks = 0;
  EXPECT_THAT(leader_->Choose(kRanks, Sharing(6),
                              [&] {
                                // The clock advances from look to look.
                                if (++looks >= 3 && gap_ < later) {
                                  gap_ += 1;
                                }
                                absl::SleepFor(absl::Milliseconds(1));
                                return true;
                              }),
              IsOkAndHolds(2));
  EXPECT_GE(looks, 3);
  const CrewPlace place = ExpectPlace(std::move(first), 1, 2);
  Place second = Ask(2);
  AwaitPresent({0, 2});
  EXPECT_FALSE(leader_->CanGrow());
  gap_ += 3600;
  EXPECT_FALSE(leader_->CanGrow());
  AwaitPresent({0, 2});
  EXPECT_TRUE(leader_->CanGrow());
  ASSERT_OK(leader_->SayStartAgain());
  EXPECT_THAT(WhyEnded(place, absl::Seconds(30)), IsOkAndHolds(std::nullopt));
  leader_->AwaitDone(absl::InfiniteDuration());
  EXPECT_EQ(leader_->NextRules().awaited, 3);
  // They meet again at the next server.
  Place again = Ask(1);
  StartServer(server_->address());
  AwaitPresent({0, 1, 2});
  EXPECT_THAT(Choose(6), IsOkAndHolds(3));
  ExpectPlace(std::move(again), 1, 3);
  ExpectPlace(std::move(second), 2, 3);
}

// A leader that is started again listens at once, before the ranks of the
// earlier one have noticed.
TEST_F(CrewTest, APlaceIsOfNoUseAtTheServerOfAnotherLeader) {
  const CrewPlace place = ChooseThree().first;
  StartServer(server_->address());
  const auto ended = IsUnavailable("another one has its address");
  EXPECT_THAT(place.table->Put("failure/1", "late"), ended);
  EXPECT_THAT(place.table->Get("tcp/orders/0", absl::Seconds(30)), ended);
  EXPECT_THAT(server_->table()->Get("failure/1", absl::ZeroDuration()),
              IsDeadlineExceeded());
  EXPECT_THAT(server_->Asked(""), IsEmpty());
}

TEST_F(CrewTest, ALeaderThatWasStoppedWaitsAsLongAsBefore) {
  Place first = Ask(1);
  Place second;
  AwaitPresent({0, 1});
  int looks = 0;
  EXPECT_THAT(leader_->Choose(kRanks, Sharing(6),
                              [&] {
                                ++looks;
                                if (looks == 3) gap_ = 3600;
                                if (looks == 10) second = Ask(2);
                                absl::SleepFor(absl::Milliseconds(1));
                                return true;
                              }),
              IsOkAndHolds(3));
  ExpectPlace(std::move(first), 1, 3);
  ExpectPlace(std::move(second), 2, 3);
}

TEST_F(CrewTest, TheTimeBetweenTwoWaitsDoesNotCount) {
  const Place first = Ask(1);
  const Place second = Ask(2);
  ASSERT_OK(leader_->AwaitEnough([] { return true; }));
  gap_ = 3600;
  EXPECT_THAT(Choose(6), IsOkAndHolds(3));
  leader_->Dismiss();
}

TEST_F(CrewTest, AProcessWithABrokenLinkGetsNoPlaceForSomeTime) {
  rules_.avoided = {{2, SteadyWallClock()() + absl::Minutes(5)}};
  rules_.awaited = 2;
  StartServer(server_->address());
  Place first = Ask(1);
  Place second = Ask(2);
  AwaitAsked("place/2/");
  AwaitPresent({0, 1});
  ASSERT_OK(leader_->AwaitEnough([] { return true; }));
  // A download ends after that time, while it asks for a place.
  gap_ = 600;
  const auto asked = [&] { return server_->Asked("place/2/")["place/2/2/2"]; };
  const uint64_t before = asked().count;
  while (asked().count == before) absl::SleepFor(absl::Milliseconds(1));
  EXPECT_THAT(Choose(6), IsOkAndHolds(2));
  ExpectPlace(std::move(first), 1, 2);
  EXPECT_EQ(leader_->ProcessWithRank(3), 1);
  EXPECT_FALSE(leader_->CanGrow());
  gap_ = 3600;
  AwaitPresent({0, 2});
  EXPECT_TRUE(leader_->CanGrow());
  EXPECT_THAT(leader_->NextRules().avoided, IsEmpty());
  leader_->Dismiss();
  EXPECT_EQ(second.get()->has_value(), false);
}

TEST_F(CrewTest, ASlowProcessIsLeftOutForSomeTime) {
  const std::pair<CrewPlace, CrewPlace> places = ChooseThree();
  EXPECT_EQ(leader_->SizeWithoutOne(), 2);
  // With a spare the crew stays as large.
  Place spare = Ask(5);
  AwaitPresent({0, 5});
  EXPECT_EQ(leader_->SizeWithoutOne(), 3);
  ASSERT_OK(leader_->SayStartAgain(1, absl::Minutes(10)));
  EXPECT_THAT(WhyEnded(places.first, absl::Seconds(30)),
              IsOkAndHolds(std::nullopt));
  EXPECT_THAT(WhyEnded(places.second, absl::Seconds(30)),
              IsOkAndHolds(std::nullopt));
  gap_ = 3600;
  AwaitPresent({0, 5});
  rules_ = leader_->NextRules();
  // Process 1 and the time until now do not count, but the spare does.
  EXPECT_EQ(rules_.awaited, 3);
  const auto avoided = rules_.avoided;
  StartServer(server_->address());
  Place first = Ask(1);
  Place second = Ask(2);
  AwaitAsked("place/1/");
  AwaitPresent({0, 2, 5});
  EXPECT_THAT(Choose(6), IsOkAndHolds(3));
  ExpectPlace(std::move(second), 1, 3);
  ExpectPlace(std::move(spare), 2, 3);
  EXPECT_EQ(leader_->NextRules().avoided, avoided);
  // The process that is left out hears that the island has ended.
  leader_->Dismiss();
  EXPECT_EQ(first.get()->has_value(), false);
}

// The host of process 0 was lost, comes back, and may be out of reach.
TEST_F(CrewTest, AnotherProcessLeadsAndGivesProcess0APlace) {
  rules_.leader = 1;
  StartServer(server_->address());
  Place zeroth = Ask(0);
  Place second = Ask(2);
  AwaitPresent({0, 1, 2});
  EXPECT_THAT(Choose(6), IsOkAndHolds(3));
  ExpectPlace(std::move(zeroth), 1, 3);
  ExpectPlace(std::move(second), 2, 3);
  EXPECT_EQ(leader_->ProcessWithRank(0), 1);
  EXPECT_EQ(leader_->ProcessWithRank(kRanks), 0);

  rules_.avoided = {{0, SteadyWallClock()() + absl::Minutes(5)}};
  rules_.awaited = 2;
  StartServer(server_->address());
  zeroth = Ask(0);
  second = Ask(2, kRanks + 1);
  AwaitAsked("place/0/");
  AwaitPresent({1, 2});
  const auto unequal = IsFailedPrecondition(
      "process 1 has 2 ranks, and process 2 has 3: give all");
  EXPECT_THAT(Choose(6), unequal);
  EXPECT_THAT(second.get().status(), unequal);
  leader_->Dismiss();
  EXPECT_EQ(zeroth.get()->has_value(), false);
}

TEST_F(CrewTest, AProcessThatNoLongerAsksIsGone) {
  ASSERT_OK_AND_ASSIGN(
      const auto table,
      ConnectRendezvous(At(server_->address()), absl::Seconds(30)));
  Place first = Ask(1);
  AwaitPresent({0, 1});
  // A question that takes too long does not arrive.
  const auto ask = [&](const std::string& key) {
    const uint64_t before = server_->Asked(key)[key].count;
    while (server_->Asked(key)[key].count == before) {
      table->Get(key, absl::Milliseconds(100)).IgnoreError();
    }
  };
  ask("place/2/77/2");
  AwaitPresent({0, 1, 2});
  // The leader did not look when it asked, and looks some time later.
  ask("place/2/77/2");
  gap_ = 10;
  EXPECT_THAT(leader_->Present(), Not(Contains(2)));
  AwaitPresent({0, 1});
  // Nor does an earlier life get the place.
  ask("place/2/88/2");
  gap_ = 20;
  Place second = Ask(2);
  while (server_->Asked("place/2/").size() < 3) {
    absl::SleepFor(absl::Milliseconds(1));
  }
  EXPECT_THAT(Choose(6), IsOkAndHolds(3));
  ExpectPlace(std::move(first), 1, 3);
  ExpectPlace(std::move(second), 2, 3);
}

TEST_F(CrewTest, AProcessThatStartsAgainTellsThatItHadEnded) {
  const CrewPlace one = ChooseThree().first;
  Place spare = Ask(5);
  Place second = Ask(2);
  const absl::Status status =
      CheckUnconnected(absl::Seconds(30), one.table.get());
  EXPECT_THAT(status, IsUnavailable());
  const std::optional<v1::RankTrouble> trouble = RankTroubleOf(status);
  ASSERT_TRUE(trouble.has_value());
  EXPECT_EQ(trouble->kind(), v1::RankTrouble::DEAD_RANK);
  EXPECT_EQ(trouble->rank(), 2 * kRanks);
  AwaitPresent({0, 2, 5});
  leader_->Dismiss();
}

TEST_F(CrewTest, AProcessThatGetsItsPlaceIsNotItsEarlierLife) {
  rules_.awaited = 2;
  StartServer(server_->address());
  Place first = Ask(1);
  AwaitAsked("rank of/1");
  EXPECT_THAT(Choose(6), IsOkAndHolds(2));
  ExpectPlace(std::move(first), 1, 2);
  EXPECT_OK(CheckUnconnected(absl::ZeroDuration(), server_->table()));
}

TEST_F(CrewTest, TheCrewHearsWhyItHasEnded) {
  const CrewPlace place = ChooseThree().first;
  leader_->SayFailed(BlameCorruptRank(1, "bad sector"));
  ASSERT_OK_AND_ASSIGN(const std::optional<std::string> why,
                       WhyEnded(place, absl::Seconds(30)));
  EXPECT_THAT(why, Optional(AllOf(HasSubstr("bad sector"),
                                  Not(HasSubstr("type.googleapis")))));
  // Rank 2 is dead, and says nothing.
  leader_->AwaitDone(absl::InfiniteDuration(), 2);
}

TEST_F(CrewTest, AllHearThatTheIslandHasEndedForGood) {
  const CrewPlace place = ChooseThree().first;
  Place spare = Ask(3);
  AwaitPresent({0, 3});
  leader_->SayFailed(BlameCorruptRank(1, "bad sector"), /*for_good=*/true);
  const auto for_good =
      StatusIs(absl::StatusCode::kAborted,
               AllOf(StartsWith("the island has ended for good: "),
                     HasSubstr("bad sector")));
  EXPECT_THAT(WhyEnded(place, absl::Seconds(30)), for_good);
  EXPECT_THAT(spare.get(), for_good);
}

TEST_F(CrewTest, TheOthersHearLateThatTheIslandHasEndedForGood) {
  Place first = Ask(1);
  Place second;
  leader_->DismissAll(2, "it fails", [&] {
    const bool has_heard =
        first.valid() &&
        first.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
    if (has_heard) {
      EXPECT_THAT(first.get(), IsAborted());
      second = Ask(2);
    }
    absl::SleepFor(absl::Milliseconds(20));
    return true;
  });
  EXPECT_THAT(second.get(), IsAborted());
}

TEST_F(CrewTest, TheLeaderDoesNotWaitForALostHost) {
  ChooseThree();
  EXPECT_THAT(FindCulprit({.rank = 0,
                           .ranks = 3 * kRanks,
                           .suspect = kRanks,
                           .status = absl::DeadlineExceededError("no answer"),
                           .unreached = {2, 3, 4, 5}},
                          server_->table(), [] {}),
              IsUnavailable());
  leader_->AwaitDone(absl::InfiniteDuration(), 1);
}

TEST_F(CrewTest, AServerIsNeededUntilTheRanksHaveEnded) {
  const std::pair<CrewPlace, CrewPlace> places = ChooseThree();
  std::atomic<bool> is_done = false;
  std::thread done([&] {
    SayDone(places.second);
    absl::SleepFor(absl::Milliseconds(50));
    is_done = true;
    SayDone(places.first);
  });
  leader_->AwaitDone(absl::InfiniteDuration());
  EXPECT_TRUE(is_done);
  done.join();
}

TEST_F(CrewTest, ABatchThatNoCrewCanShareIsAnError) {
  EXPECT_THAT(Choose(7), IsInvalidArgument("2 to 3 processes"));
}

TEST_F(CrewTest, BothSidesSayThatRanksAreUnequal) {
  Place first = Ask(1, kRanks + 1);
  Place second = Ask(2);
  AwaitPresent({0, 1, 2});
  const auto unequal = IsFailedPrecondition(
      "process 0 has 2 ranks, and process 1 has 3: give all");
  EXPECT_THAT(Choose(6), unequal);
  EXPECT_THAT(first.get().status(), unequal);
  // The other waits for a process 0 that chooses again.
  StartServer(server_->address());
  Place third = Ask(1);
  AwaitPresent({0, 1, 2});
  EXPECT_THAT(Choose(6), IsOkAndHolds(3));
  ExpectPlace(std::move(third), 1, 3);
  ExpectPlace(std::move(second), 2, 3);
}

TEST_F(CrewTest, ANewcomerWithUnequalRanksIsRefusedAndTheCrewContinues) {
  rules_.awaited = 2;
  StartServer(server_->address());
  Place first = Ask(1);
  AwaitPresent({0, 1});
  EXPECT_THAT(Choose(6), IsOkAndHolds(2));
  ExpectPlace(std::move(first), 1, 2);
  gap_ = 3600;
  const auto ask_unequal = [&] {
    Place unequal = Ask(2, kRanks + 1);
    AwaitAsked("place/2/");
    return unequal;
  };
  const auto refused = IsFailedPrecondition(
      "process 0 has 2 ranks, and process 2 has 3: give all");
  Place unequal = ask_unequal();
  EXPECT_FALSE(leader_->CanGrow());
  EXPECT_THAT(unequal.get().status(), refused);
  EXPECT_EQ(leader_->NextRules().awaited, 2);
  Place second = Ask(2);
  AwaitPresent({0, 2});
  EXPECT_TRUE(leader_->CanGrow());
  leader_->Dismiss();
  EXPECT_EQ(second.get()->has_value(), false);

  // The leader of the next crew knows how many ranks a process must have.
  rules_ = leader_->NextRules();
  rules_.awaited = 2;
  StartServer(server_->address());
  unequal = ask_unequal();
  first = Ask(1);
  AwaitPresent({0, 1});
  EXPECT_THAT(Choose(6), IsOkAndHolds(2));
  ExpectPlace(std::move(first), 1, 2);
  EXPECT_THAT(unequal.get().status(), refused);
}

TEST_F(CrewTest, AWaitEndsWhenItIsToldTo) {
  EXPECT_THAT(leader_->AwaitEnough([] { return false; }), IsCancelled());
}

TEST_F(CrewTest, TooFewProcessesAreAnErrorAfterMinutes) {
  EXPECT_THAT(leader_->AwaitEnough([this] {
    gap_ += 10;
    return gap_ < 3600;
  }),
              IsDeadlineExceeded("have connected: 0; wanted: 3, at least 2"));
}

}  // namespace
}  // namespace causeway
