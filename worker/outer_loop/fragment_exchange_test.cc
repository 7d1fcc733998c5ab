// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/outer_loop/fragment_exchange.h"

#include <optional>
#include <variant>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/backoff.h"
#include "common/testing/status_matchers.h"
#include "gtest/gtest.h"
#include "worker/outer_loop/retry.h"
#include "worker/outer_loop/testing/island_driver.h"

namespace causeway {
namespace {

// Tests the exchange of fragment 0, at version 2, with a driver's membership.
class FragmentExchangeTest : public testing::Test {
 protected:
  void SetUp() override {
    driver_.Connect();
    driver_.Publish({2, 0});
  }

  const IslandMembership& membership() { return driver_.loop().membership(); }
  FragmentAction Next() { return exchange_.Next(membership(), driver_.now()); }
  template <typename Action>
  std::optional<Action> NextIf() {
    const FragmentAction next = Next();
    if (!std::holds_alternative<Action>(next)) return std::nullopt;
    return std::get<Action>(next);
  }

  void Answer(const action::Contribute& contribute,
              absl::StatusOr<v1::ContributeResponse::Verdict> verdict) {
    absl::StatusOr<v1::ContributeResponse> response;
    if (verdict.ok()) {
      response.emplace().set_verdict(*verdict);
    } else {
      response = verdict.status();
    }
    exchange_.ContributionAnswered(contribute, response, "digest",
                                   driver_.now());
  }
  // Hands over a contribution, which the coordinator accepts.
  void Contribute() {
    exchange_.Send({.tokens = 40, .inner_steps = 4}, /*partial=*/false);
    const auto contribute = NextIf<action::Contribute>();
    ASSERT_TRUE(contribute.has_value());
    exchange_.ContributionSent(membership(), "digest");
    Answer(*contribute, v1::ContributeResponse::ACCEPTED);
  }
  // Returns the answer with a whole update to version 3.
  static UpdateAnswer Received() {
    UpdateAnswer answer{.began = true, .anchor_digest = "anchor"};
    answer.head.set_version(3);
    answer.head.set_digest("anchor");
    return answer;
  }
  void Sleep() {
    const auto wait = NextIf<action::Wait>();
    ASSERT_TRUE(wait.has_value());
    ASSERT_NE(wait->until, absl::InfiniteFuture());
    driver_.Sleep(wait->until - driver_.now());
  }

  IslandDriver driver_;
  FragmentExchange exchange_{{.fragment = 0, .seed = 1}, 2};
};

TEST_F(FragmentExchangeTest, AfterAnUpdateTheNextPauseIsShortAgain) {
  for (uint64_t version = 3; version < 11; ++version) {
    driver_.Publish({version, 0});
    ASSERT_TRUE(NextIf<action::ReceiveUpdate>().has_value());
    exchange_.UpdateAnswered({.status = absl::UnavailableError("reset")},
                             driver_.now());
    const auto wait = NextIf<action::Wait>();
    ASSERT_TRUE(wait.has_value());
    EXPECT_LE(wait->until - driver_.now(), Backoff::Options().first);
    Sleep();
    UpdateAnswer answer = Received();
    answer.head.set_version(version);
    exchange_.UpdateAnswered(answer, driver_.now());
    ASSERT_TRUE(exchange_.ready());
    exchange_.Advance();
  }
}

TEST_F(FragmentExchangeTest, SendsAContributionAndReceivesItsUpdate) {
  ASSERT_TRUE(NextIf<action::Wait>().has_value());
  exchange_.Send({.tokens = 40, .restored_tokens = 10, .inner_steps = 4},
                 /*partial=*/true);
  EXPECT_TRUE(exchange_.in_flight());
  const auto contribute = NextIf<action::Contribute>();
  ASSERT_TRUE(contribute.has_value());
  EXPECT_TRUE(contribute->is_new);
  EXPECT_EQ(contribute->header.identity().incarnation(), 1);
  EXPECT_EQ(contribute->header.base_version(), 2);
  EXPECT_EQ(contribute->header.tokens(), 40);
  EXPECT_EQ(contribute->header.restored_tokens(), 10);
  EXPECT_EQ(contribute->header.inner_steps(), 4);
  EXPECT_TRUE(contribute->header.partial());
  const v1::FetchUpdateRequest request =
      exchange_.ContributionSent(membership(), "digest");
  EXPECT_EQ(request.from_version(), 2);
  EXPECT_EQ(request.contribution_digest(), "digest");
  EXPECT_TRUE(request.wait());
  EXPECT_FALSE(exchange_.accepted(membership()));
  Answer(*contribute, v1::ContributeResponse::ACCEPTED);
  EXPECT_TRUE(exchange_.accepted(membership()));

  const auto receive = NextIf<action::ReceiveUpdate>();
  ASSERT_TRUE(receive.has_value());
  EXPECT_TRUE(receive->is_under_way);
  UpdateAnswer answer = Received();
  answer.includes_island = true;
  exchange_.UpdateAnswered(answer, driver_.now());
  EXPECT_FALSE(exchange_.ready());
  const auto ended = NextIf<action::EndContribution>();
  ASSERT_TRUE(ended.has_value());
  EXPECT_TRUE(ended->merged);
  exchange_.ContributionEnded();
  ASSERT_TRUE(exchange_.ready());
  EXPECT_TRUE(exchange_.update().includes_island);
  exchange_.Advance();
  EXPECT_EQ(exchange_.version(), 3);
  EXPECT_FALSE(exchange_.in_flight());
}

TEST_F(FragmentExchangeTest, ReceivesTheUpdatesOfOthersWithoutAContribution) {
  driver_.Publish({3, 0});
  const auto receive = NextIf<action::ReceiveUpdate>();
  ASSERT_TRUE(receive.has_value());
  EXPECT_FALSE(receive->is_under_way);
  EXPECT_TRUE(receive->request.contribution_digest().empty());
  exchange_.UpdateAnswered(Received(), driver_.now());
  EXPECT_TRUE(exchange_.ready());
}

// The contribution builds on parameters that the update replaces.
TEST_F(FragmentExchangeTest, AContributionSentAfterTheUpdateCameIsDropped) {
  driver_.Publish({3, 0});
  exchange_.UpdateAnswered(Received(), driver_.now());
  ASSERT_TRUE(exchange_.ready());
  exchange_.Send({.tokens = 40, .inner_steps = 4}, /*partial=*/false);
  exchange_.Advance();
  EXPECT_FALSE(exchange_.in_flight());
  EXPECT_FALSE(NextIf<action::Contribute>().has_value());
}

TEST_F(FragmentExchangeTest, OffersOnlyWhereItIsExpected) {
  exchange_.Send({.tokens = 40, .inner_steps = 4}, /*partial=*/false);
  v1::SessionResponse view = membership().state();
  const auto offers_with = [&](const v1::SessionResponse& changed) {
    driver_.loop().membership().ViewArrived(changed, driver_.now());
    return NextIf<action::Contribute>().has_value();
  };
  EXPECT_TRUE(offers_with(view));
  v1::SessionResponse later = view;
  later.set_first_contribution_version(0, 3);
  EXPECT_FALSE(offers_with(later));
  v1::SessionResponse fenced = view;
  fenced.clear_first_contribution_version();
  EXPECT_FALSE(offers_with(fenced));
  for (const v1::RunState state : {v1::RUNNING, v1::SUSPENDED, v1::PAUSED,
                                   v1::WAITING_FOR_ISLANDS, v1::FINISHED}) {
    view.set_run_state(state);
    EXPECT_EQ(offers_with(view),
              state != v1::WAITING_FOR_ISLANDS && state != v1::FINISHED);
  }
  view.set_run_state(v1::RUNNING);
  ASSERT_TRUE(offers_with(view));
  driver_.loop().membership().StreamBroke();
  EXPECT_FALSE(NextIf<action::Contribute>().has_value());
}

TEST_F(FragmentExchangeTest, OffersAgainOnEachConnectionAndOnceOnEach) {
  exchange_.Send({.tokens = 40, .inner_steps = 4}, /*partial=*/false);
  Answer(NextIf<action::Contribute>().value(),
         v1::ContributeResponse::ACCEPTED);
  EXPECT_TRUE(NextIf<action::Wait>().has_value());
  driver_.loop().membership().StreamBroke();
  driver_.loop().membership().StreamEnded(absl::UnavailableError("reset"),
                                          driver_.now());
  driver_.Sleep(absl::Seconds(10));
  driver_.OpenStream();
  driver_.Publish({2, 0});
  const auto again = NextIf<action::Contribute>();
  ASSERT_TRUE(again.has_value());
  EXPECT_FALSE(again->is_new);
}

TEST_F(FragmentExchangeTest, WhatAnotherCoordinatorHasAcceptedDoesNotCount) {
  Contribute();
  IslandMembership& session = driver_.loop().membership();
  session.StreamBroke();
  session.StreamEnded(absl::UnavailableError("reset"), driver_.now());
  EXPECT_FALSE(exchange_.accepted(membership()));
  driver_.Sleep(absl::Seconds(10));
  driver_.OpenStream();
  EXPECT_TRUE(exchange_.accepted(membership()));
  v1::SessionResponse view = membership().state();
  view.set_epoch(1);
  session.ViewArrived(view, driver_.now());
  EXPECT_FALSE(exchange_.accepted(membership()));
}

TEST_F(FragmentExchangeTest, WhatAnEarlierIncarnationContributedDoesNotCount) {
  Contribute();
  IslandMembership& session = driver_.loop().membership();
  session.StreamBroke();
  session.StreamEnded(absl::AbortedError("fenced off"), driver_.now());
  driver_.joined().mutable_identity()->set_incarnation(2);
  driver_.Connect();
  EXPECT_FALSE(exchange_.accepted(membership()));
}

TEST_F(FragmentExchangeTest, AContributionThatIsLateWaitsForTheUpdate) {
  exchange_.Send({.tokens = 40, .inner_steps = 4}, /*partial=*/false);
  Answer(NextIf<action::Contribute>().value(), v1::ContributeResponse::LATE);
  EXPECT_FALSE(exchange_.accepted(membership()));
  EXPECT_TRUE(NextIf<action::Wait>().has_value());
  driver_.Publish({3, 0});
  ASSERT_TRUE(NextIf<action::ReceiveUpdate>().has_value());
  exchange_.UpdateAnswered(Received(), driver_.now());
  const auto ended = NextIf<action::EndContribution>();
  ASSERT_TRUE(ended.has_value());
  EXPECT_FALSE(ended->merged);
}

TEST_F(FragmentExchangeTest, AnOfferThatFailsForNowIsMadeAgainAfterAPause) {
  exchange_.Send({.tokens = 40, .inner_steps = 4}, /*partial=*/false);
  Answer(NextIf<action::Contribute>().value(), absl::UnavailableError("reset"));
  Sleep();
  const auto again = NextIf<action::Contribute>();
  ASSERT_TRUE(again.has_value());
  EXPECT_FALSE(again->is_new);
}

TEST_F(FragmentExchangeTest, ARefusedContributionEndsTheExchange) {
  exchange_.Send({.tokens = 40, .inner_steps = 4}, /*partial=*/false);
  Answer(NextIf<action::Contribute>().value(),
         absl::InvalidArgumentError("norm"));
  EXPECT_TRUE(NextIf<action::End>().has_value());
  EXPECT_THAT(exchange_.failure(), IsInvalidArgument());
}

// The request under way is void, and the new one does not wait for a round that
// may never close.
TEST_F(FragmentExchangeTest, AWaitForTheUpdateThatTakesTooLongIsNoFailure) {
  Contribute();
  exchange_.UpdateAnswered({.status = absl::DeadlineExceededError("round")},
                           driver_.now());
  const auto wait = NextIf<action::Wait>();
  ASSERT_TRUE(wait.has_value());
  EXPECT_EQ(wait->until, absl::InfiniteFuture());
  driver_.Publish({3, 0});
  const auto receive = NextIf<action::ReceiveUpdate>();
  ASSERT_TRUE(receive.has_value());
  EXPECT_FALSE(receive->is_under_way);
  EXPECT_EQ(receive->request.contribution_digest(), "digest");
}

TEST_F(FragmentExchangeTest, ADownloadThatBreaksOffGoesOnAfterAPause) {
  Contribute();
  exchange_.UpdateAnswered(
      {.status = absl::DeadlineExceededError("stalled"), .began = true},
      driver_.now());
  driver_.Publish({3, 0});
  EXPECT_FALSE(NextIf<action::ReceiveUpdate>().has_value());
  Sleep();
  EXPECT_TRUE(NextIf<action::ReceiveUpdate>().has_value());
}

TEST_F(FragmentExchangeTest, AnAnchorWithAnotherDigestIsReplacedByParameters) {
  driver_.Publish({3, 0});
  UpdateAnswer answer = Received();
  answer.anchor_digest = "another";
  exchange_.UpdateAnswered(answer, driver_.now());
  const auto fetch = NextIf<action::FetchParameters>();
  ASSERT_TRUE(fetch.has_value());
  EXPECT_EQ(fetch->request.version(), 3);
  v1::FragmentHead head;
  head.set_version(3);
  exchange_.ParametersAnswered(head, driver_.now());
  EXPECT_TRUE(exchange_.ready());
}

TEST_F(FragmentExchangeTest, ParametersReplaceUpdatesThatAreNoLongerKept) {
  Contribute();
  driver_.Publish({6, 0});
  UpdateAnswer gone{.status = absl::NotFoundError("dropped")};
  gone.head.set_version(3);
  exchange_.UpdateAnswered(gone, driver_.now());
  const auto fetch = NextIf<action::FetchParameters>();
  ASSERT_TRUE(fetch.has_value());
  EXPECT_EQ(fetch->request.version(), 6);
  // The coordinator has moved on meanwhile.
  exchange_.ParametersAnswered(absl::NotFoundError("dropped"), driver_.now());
  driver_.Publish({7, 0});
  Sleep();
  EXPECT_EQ(NextIf<action::FetchParameters>()->request.version(), 7);
  v1::FragmentHead head;
  head.set_version(7);
  exchange_.ParametersAnswered(head, driver_.now());
  // A process that began with the run's parameters has nothing to ask.
  EXPECT_FALSE(NextIf<action::EndContribution>()->merged);
  exchange_.ContributionEnded();
  ASSERT_TRUE(exchange_.ready());
  EXPECT_EQ(exchange_.update().from_version, 2);
  exchange_.Advance();
  EXPECT_EQ(exchange_.version(), 7);
}

// Any version up to the fourth may contain training of an earlier process, so
// the exchange asks about the updates that the parameters skip.
TEST_F(FragmentExchangeTest, AsksWhatSkippedUpdatesContainOfAnEarlierProcess) {
  FragmentExchange exchange({.fragment = 0, .earlier_until = 4, .seed = 1}, 2);
  const auto next = [&] { return exchange.Next(membership(), driver_.now()); };
  driver_.Publish({6, 0});
  UpdateAnswer gone{.status = absl::NotFoundError("dropped"),
                    .other = {.tokens = 10, .inner_steps = 1}};
  gone.head.set_version(3);
  exchange.UpdateAnswered(gone, driver_.now());
  v1::FragmentHead head;
  head.set_version(6);
  exchange.ParametersAnswered(head, driver_.now());
  const FragmentAction ask = next();
  ASSERT_TRUE(std::holds_alternative<action::AskWhatIsMerged>(ask));
  EXPECT_EQ(std::get<action::AskWhatIsMerged>(ask).request.from_version(), 3);
  exchange.MergedAnswered(absl::UnavailableError("reset"), driver_.now());
  EXPECT_TRUE(std::holds_alternative<action::Wait>(next()));
  driver_.Sleep(absl::Seconds(1));
  ASSERT_TRUE(std::holds_alternative<action::AskWhatIsMerged>(next()));
  exchange.MergedAnswered(
      FragmentWindow::Training{.tokens = 20, .inner_steps = 2}, driver_.now());
  ASSERT_TRUE(exchange.ready());
  EXPECT_EQ(exchange.update().other,
            (FragmentWindow::Training{.tokens = 30, .inner_steps = 3}));
}

// Another coordinator, which lacks the versions, has taken over since the
// parameters came. The island begins again with the run's parameters.
TEST_F(FragmentExchangeTest, AnAnchorThatTheCoordinatorHasLostCannotBeUsed) {
  FragmentExchange exchange({.fragment = 0, .earlier_until = 4, .seed = 1}, 2);
  driver_.Publish({6, 0});
  UpdateAnswer gone{.status = absl::NotFoundError("dropped")};
  gone.head.set_version(3);
  exchange.UpdateAnswered(gone, driver_.now());
  v1::FragmentHead head;
  head.set_version(6);
  exchange.ParametersAnswered(head, driver_.now());
  driver_.Publish({3, 0});
  exchange.MergedAnswered(absl::NotFoundError("no committed version 4"),
                          driver_.now());
  EXPECT_TRUE(std::holds_alternative<action::End>(
      exchange.Next(membership(), driver_.now())));
  EXPECT_TRUE(SaysVersionIsLost(exchange.failure())) << exchange.failure();
}

}  // namespace
}  // namespace causeway
