// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/collective/succession.h"

#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/collective/tcp_rendezvous.h"

namespace causeway {
namespace {

using testing::HasSubstr;
using testing::Optional;

constexpr absl::Duration kPatience = absl::Seconds(30);

TEST(ParseLeadersTest, ReadsAddressesAndTheirProcesses) {
  ASSERT_OK_AND_ASSIGN(const std::vector<LeaderAddress> one,
                       ParseLeaders("a:1"));
  ASSERT_EQ(one.size(), 1U);
  EXPECT_EQ(one[0].process, 0);
  EXPECT_EQ(one[0].address, "a:1");
  ASSERT_OK_AND_ASSIGN(const std::vector<LeaderAddress> three,
                       ParseLeaders("a:1,b:1,7=[::1]:2"));
  ASSERT_EQ(three.size(), 3U);
  EXPECT_EQ(three[1].process, 1);
  EXPECT_EQ(three[2].process, 7);
  EXPECT_EQ(three[2].address, "[::1]:2");
  EXPECT_EQ(PlaceInSuccession(three, 7), 2);
  EXPECT_EQ(PlaceInSuccession(three, 2), -1);
}

TEST(ParseLeadersTest, RefusesWhatIsAmbiguous) {
  for (const char* const text : {"", "a:1,", "1=a:1", "a:1,a:1", "a:1,0=b:1",
                                 "a:1,x=b:1", "a:1,-2=b:1", "a:1,2=3=b:1"}) {
    EXPECT_THAT(ParseLeaders(text), IsInvalidArgument("4=host:port")) << text;
  }
}

TEST(SuccessionTest, EachWaitsForThoseBeforeIt) {
  Succession succession{.leaders = {{0, "a:1"}, {4, "b:1"}, {8, "c:1"}},
                        .patience = kPatience};
  const auto silence = [&](int process, bool failed) {
    succession.process = process;
    return SilenceBeforeLeading(succession, failed);
  };
  EXPECT_THAT(silence(0, false), Optional(absl::ZeroDuration()));
  EXPECT_THAT(silence(4, false), Optional(kPatience));
  EXPECT_THAT(silence(8, false), Optional(2 * kPatience));
  EXPECT_EQ(silence(1, false), std::nullopt);
  // A process that was refused leaves the others their time.
  EXPECT_THAT(silence(0, true), Optional(kPatience));
  EXPECT_THAT(silence(8, true), Optional(2 * kPatience));
  EXPECT_EQ(silence(1, true), std::nullopt);
}

// Processes 0 and 1 may lead, each at an address of its own.
class LeadersTest : public testing::Test {
 protected:
  LeadersTest() {
    // The ports were free a moment ago.
    for (const char* const host : {"127.0.0.2", "127.0.0.3"}) {
      auto server = RendezvousServer::Start(
          {.address = absl::StrCat(host, ":0"), .now = SteadyWallClock()});
      EXPECT_OK(server);
      succession_.leaders.push_back(
          {static_cast<int>(succession_.leaders.size()),
           std::string((*server)->address())});
    }
  }

  std::unique_ptr<RendezvousServer> Lead(int process) {
    RendezvousOptions options = succession_.rendezvous;
    options.address = succession_.leaders[process].address;
    auto server = RendezvousServer::Start(options);
    EXPECT_OK(server);
    EXPECT_OK(SayLeads(process, (*server)->table()));
    return *std::move(server);
  }
  absl::StatusOr<std::optional<std::string>> Find(
      int process, const std::string& last = "") {
    Succession succession = succession_;
    succession.process = process;
    return FindLeader(succession, last, /*failed=*/false,
                      absl::Milliseconds(1));
  }
  const std::string& Address(int process) const {
    return succession_.leaders[process].address;
  }
  // Returns what a leader finds out about its rivals.
  std::string RivalOf(int process, bool keeps) const {
    Succession succession = succession_;
    succession.process = process;
    std::promise<std::string> rival;
    const RivalWatch watch(succession, keeps, [&](const std::string& words) {
      rival.set_value(words);
    });
    return rival.get_future().get();
  }

  Succession succession_{.patience = absl::Milliseconds(50),
                         .rendezvous = {.now = SteadyWallClock()}};
};

TEST_F(LeadersTest, AProcessFollowsTheLeaderThatAnswers) {
  const auto second = Lead(1);
  for (const int process : {0, 2}) {
    EXPECT_THAT(Find(process), IsOkAndHolds(Optional(Address(1))));
  }
  // If there are two, it follows its earlier leader, or else the first.
  const auto first = Lead(0);
  EXPECT_THAT(Find(2), IsOkAndHolds(Optional(Address(0))));
  EXPECT_THAT(Find(2, Address(1)), IsOkAndHolds(Optional(Address(1))));
}

TEST_F(LeadersTest, WithoutALeaderTheOwnersOfAddressesLead) {
  EXPECT_THAT(Find(0), IsOkAndHolds(std::nullopt));
  EXPECT_THAT(Find(1), IsOkAndHolds(std::nullopt));
  EXPECT_THAT(Find(2), IsDeadlineExceeded("no process leads the island"));
}

TEST_F(LeadersTest, ALeaderWithAnotherSecretIsNotFollowed) {
  const auto second = Lead(1);
  succession_.rendezvous.secret = "another one";
  EXPECT_THAT(Find(2), IsPermissionDenied(Address(1)));
  EXPECT_THAT(Find(0), IsOkAndHolds(std::nullopt));
}

TEST_F(LeadersTest, TheLaterOfTwoThatHaveNotJoinedGivesUp) {
  const auto first = Lead(0);
  const auto second = Lead(1);
  EXPECT_THAT(RivalOf(1, /*keeps=*/false), HasSubstr("process 0 leads"));
  // The first does not give up, nor does one that keeps the newest state.
  for (const int process : {0, 1}) {
    Succession succession = succession_;
    succession.process = process;
    absl::Notification found;
    const RivalWatch watch(
        succession, /*keeps=*/true,
        [&](const std::string& /*words*/) { found.Notify(); });
    EXPECT_FALSE(found.WaitForNotificationWithTimeout(absl::Milliseconds(700)));
  }
}

TEST_F(LeadersTest, OneThatHasNotJoinedGivesUpForOneThatHas) {
  const auto first = Lead(0);
  const auto second = Lead(1);
  ASSERT_OK(SayJoined(second->table()));
  EXPECT_THAT(RivalOf(0, /*keeps=*/false), HasSubstr("process 1 leads"));
  EXPECT_THAT(RivalOf(0, /*keeps=*/true), HasSubstr(Address(1)));
}

}  // namespace
}  // namespace causeway
