// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Tests a fragment's requests to the coordinator, and after which answers the
// exchange continues.
#include <algorithm>
#include <variant>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/backoff.h"
#include "gtest/gtest.h"
#include "worker/outer_loop/fragment_exchange.h"
#include "worker/outer_loop/retry.h"
#include "worker/outer_loop/testing/island_driver.h"

namespace causeway {
namespace {

using absl::StatusCode;

// The exchange of fragment 1, which has version 2. An earlier process may have
// handed in training up to version 9.
class FragmentRequestsTest : public testing::Test {
 protected:
  void SetUp() override {
    driver_.joined().mutable_identity()->set_incarnation(4);
    driver_.Connect();
    driver_.Publish({0, 2});
  }

  const IslandMembership& membership() { return driver_.loop().membership(); }
  // Returns the next action, which must be of this kind.
  template <typename Action>
  Action Next() {
    const FragmentAction next = exchange_.Next(membership(), driver_.now());
    const auto* const action = std::get_if<Action>(&next);
    if (action != nullptr) return *action;
    ADD_FAILURE() << "action " << next.index();
    return {};
  }
  absl::Duration Pause() { return Next<action::Wait>().until - driver_.now(); }

  void Send() {
    exchange_.Send({.tokens = 40, .inner_steps = 4}, /*partial=*/false);
  }
  void Answer(const action::Contribute& contribute,
              v1::ContributeResponse::Verdict verdict) {
    v1::ContributeResponse response;
    response.set_verdict(verdict);
    exchange_.ContributionAnswered(contribute, response, "digest",
                                   driver_.now());
  }
  // An update to version 3 that leads to other values than the coordinator's.
  static UpdateAnswer Wrong() {
    UpdateAnswer answer{.began = true, .anchor_digest = "another"};
    answer.head.set_version(3);
    answer.head.set_digest("anchor");
    return answer;
  }
  template <typename Request>
  static void ExpectOwn(const Request& request) {
    EXPECT_EQ(request.identity().run_id(), "run");
    EXPECT_EQ(request.identity().incarnation(), 4);
    EXPECT_EQ(request.fragment(), 1);
  }

  IslandDriver driver_;
  FragmentExchange exchange_{{.fragment = 1, .earlier_until = 9, .seed = 1}, 2};
};

TEST_F(FragmentRequestsTest, EveryRequestNamesTheIslandAndTheFragment) {
  Send();
  const auto contribute = Next<action::Contribute>();
  ExpectOwn(contribute.header);
  EXPECT_FALSE(contribute.header.partial());
  EXPECT_EQ(contribute.connection, membership().connection());
  ExpectOwn(exchange_.ContributionSent(membership(), "digest"));
  Answer(contribute, v1::ContributeResponse::ACCEPTED);
  const auto receive = Next<action::ReceiveUpdate>();
  ExpectOwn(receive.request);
  EXPECT_EQ(receive.request.from_version(), 2);
  EXPECT_FALSE(receive.request.wait());
  exchange_.UpdateAnswered(Wrong(), driver_.now());
  // The news of version 3 has not come yet.
  const auto fetch = Next<action::FetchParameters>();
  ExpectOwn(fetch.request);
  EXPECT_EQ(fetch.request.version(), 3);
  v1::FragmentHead head;
  head.set_version(5);
  exchange_.ParametersAnswered(head, driver_.now());
  for (const uint64_t from_version : {3, 4}) {
    const auto ask = Next<action::AskWhatIsMerged>();
    ExpectOwn(ask.request);
    EXPECT_EQ(ask.request.from_version(), from_version);
    EXPECT_EQ(ask.request.contribution_digest(), "")
        << "the contribution was for version 3";
    exchange_.MergedAnswered(
        FragmentWindow::Training{.tokens = 10, .inner_steps = 1},
        driver_.now());
  }
  EXPECT_FALSE(Next<action::EndContribution>().merged);
  exchange_.ContributionEnded();
  ASSERT_TRUE(exchange_.ready());
  EXPECT_EQ(exchange_.update().from_version, 2);
  EXPECT_EQ(exchange_.update().other.tokens, 20);
}

TEST_F(FragmentRequestsTest, AnOfferThatFailsVoidsTheRequestForItsUpdate) {
  Send();
  auto contribute = Next<action::Contribute>();
  exchange_.ContributionSent(membership(), "digest");
  exchange_.ContributionAnswered(contribute, absl::UnavailableError("reset"),
                                 "digest", driver_.now());
  EXPECT_FALSE(exchange_.accepted(membership()));
  driver_.Sleep(Pause());
  contribute = Next<action::Contribute>();
  EXPECT_FALSE(contribute.is_new);
  driver_.Publish({0, 3});
  const auto receive = Next<action::ReceiveUpdate>();
  EXPECT_FALSE(receive.is_under_way);
  EXPECT_EQ(receive.request.contribution_digest(), "digest");
}

TEST_F(FragmentRequestsTest, TheNextContributionIsOfferedOnTheSameConnection) {
  for (const uint64_t version : {2, 3}) {
    Send();
    EXPECT_FALSE(exchange_.accepted(membership()));
    EXPECT_TRUE(exchange_.in_flight());
    const auto contribute = Next<action::Contribute>();
    EXPECT_TRUE(contribute.is_new);
    EXPECT_EQ(contribute.header.base_version(), version);
    Answer(contribute, v1::ContributeResponse::ACCEPTED);
    EXPECT_TRUE(exchange_.accepted(membership()));
    driver_.Publish({0, version + 1});
    UpdateAnswer answer = Wrong();
    answer.head.set_version(version + 1);
    answer.head.set_digest("another");
    exchange_.UpdateAnswered(answer, driver_.now());
    exchange_.ContributionEnded();
    exchange_.Advance();
  }
}

TEST_F(FragmentRequestsTest, ParametersThatFailForNowAreAskedForLaterAndLater) {
  driver_.Publish({0, 3});
  exchange_.UpdateAnswered(Wrong(), driver_.now());
  absl::Duration longest;
  for (int i = 0; i < 8; ++i) {
    Next<action::FetchParameters>();
    exchange_.ParametersAnswered(absl::UnavailableError("reset"),
                                 driver_.now());
    longest = std::max(longest, Pause());
    driver_.Sleep(Pause());
  }
  EXPECT_GT(longest, absl::Seconds(2));
  v1::FragmentHead head;
  head.set_version(4);
  exchange_.ParametersAnswered(head, driver_.now());
  exchange_.MergedAnswered(absl::UnavailableError("reset"), driver_.now());
  EXPECT_LE(Pause(), Backoff::Options().first) << "after a success";
}

TEST_F(FragmentRequestsTest, WhatIsRefusedEndsTheExchange) {
  const absl::Status refused = absl::PermissionDeniedError("who?");
  for (int call = 0; call < 3; ++call) {
    FragmentExchange exchange({.fragment = 1, .earlier_until = 9}, 2);
    driver_.Publish({0, 3});
    exchange.UpdateAnswered(
        call == 0 ? UpdateAnswer{.status = refused} : Wrong(), driver_.now());
    v1::FragmentHead head;
    head.set_version(4);
    if (call == 1) exchange.ParametersAnswered(refused, driver_.now());
    if (call == 2) {
      exchange.ParametersAnswered(head, driver_.now());
      exchange.MergedAnswered(refused, driver_.now());
    }
    EXPECT_EQ(exchange.failure(), refused);
    EXPECT_TRUE(std::holds_alternative<action::End>(
        exchange.Next(membership(), driver_.now())));
  }
}

TEST_F(FragmentRequestsTest, FragmentsSpreadTheirRetries) {
  FragmentExchange other({.fragment = 0, .seed = 1}, 2);
  const UpdateAnswer failed{.status = absl::UnavailableError("reset")};
  other.UpdateAnswered(failed, driver_.now());
  exchange_.UpdateAnswered(failed, driver_.now());
  const FragmentAction next = other.Next(membership(), driver_.now());
  ASSERT_TRUE(std::holds_alternative<action::Wait>(next));
  EXPECT_NE(std::get<action::Wait>(next).until - driver_.now(), Pause());
}

TEST(RetryTest, CausesThatMayPassAreRetried) {
  for (int code = 0; code <= 16; ++code) {
    bool passes = true;
    switch (static_cast<StatusCode>(code)) {
      case StatusCode::kOk:
      case StatusCode::kInvalidArgument:
      case StatusCode::kNotFound:
      case StatusCode::kAlreadyExists:
      case StatusCode::kPermissionDenied:
      case StatusCode::kFailedPrecondition:
      case StatusCode::kOutOfRange:
      case StatusCode::kUnimplemented:
      case StatusCode::kUnauthenticated:
        passes = false;
        break;
      default:
        break;
    }
    EXPECT_EQ(IsRetryable(absl::Status(static_cast<StatusCode>(code), "")),
              passes)
        << code;
  }
}

}  // namespace
}  // namespace causeway
