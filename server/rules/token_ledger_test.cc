// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/rules/token_ledger.h"

#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

using Fate = TokenLedger::Fate;

uint64_t SumOfFates(const v1::TokenLedger& account) {
  return account.merged() + account.partial_merged() + account.expired() +
         account.refused() + account.quarantined() + account.pending();
}

TEST(TokenLedger, TokensArePendingUntilMerged) {
  TokenLedger ledger(2);
  const IncarnationKey east{"east", 1};
  ledger.Open(east);
  ledger.Report(east, 100);
  EXPECT_EQ(ledger.Account(east, 0, true, 0).pending(), 100);
  ledger.Settle(east, 0, Fate::kMerged, 80);
  const v1::TokenLedger merged = ledger.Account(east, 0, true, 0);
  EXPECT_EQ(merged.reported(), 100);
  EXPECT_EQ(merged.merged(), 80);
  EXPECT_EQ(merged.pending(), 20);
  EXPECT_EQ(ledger.Account(east, 1, true, 0).pending(), 100);
}

TEST(TokenLedger, WhatAnEndedIncarnationDidNotHandInExpires) {
  TokenLedger ledger(1);
  const IncarnationKey east{"east", 1};
  ledger.Open(east);
  ledger.Report(east, 100);
  ledger.Settle(east, 0, Fate::kMerged, 60);
  // 30 more are in an open round.
  const v1::TokenLedger account = ledger.Account(east, 0, false, 30);
  EXPECT_EQ(account.pending(), 30);
  EXPECT_EQ(account.expired(), 10);
}

TEST(TokenLedger, ContributionsShowWhatNoHeartbeatHasReportedYet) {
  TokenLedger ledger(1);
  const IncarnationKey east{"east", 1};
  ledger.Open(east);
  EXPECT_EQ(ledger.Account(east, 0, true, 50).reported(), 50);
  ledger.Settle(east, 0, Fate::kMerged, 50);
  // The heartbeat that comes after reports the same tokens.
  ledger.Report(east, 50);
  const v1::TokenLedger account = ledger.Account(east, 0, true, 0);
  EXPECT_EQ(account.reported(), 50);
  EXPECT_EQ(account.pending(), 0);
}

TEST(TokenLedger, NoTokenIsReportedByTwoIncarnationsOfAProcess) {
  TokenLedger ledger(1);
  ledger.Open({"east", 1});
  ledger.Settle({"east", 1}, 0, Fate::kMerged, 50);
  ledger.Open({"east", 2});
  ledger.TakeOver({"east", 1}, {"east", 2}, {0});
  ledger.Report({"east", 2}, 60);
  EXPECT_EQ(ledger.Account({"east", 1}, 0, false, 0).reported(), 50);
  EXPECT_EQ(ledger.Account({"east", 2}, 0, true, 0).reported(), 10);
}

TEST(TokenLedger, HeartbeatsThatComeAgainOrLateCountNothing) {
  TokenLedger ledger(1);
  const IncarnationKey east{"east", 1};
  ledger.Open(east);
  ledger.Report(east, 70);
  ledger.Report(east, 70);
  ledger.Report(east, 50);
  EXPECT_EQ(ledger.Account(east, 0, true, 0).reported(), 70);
}

TEST(TokenLedger, AProcessThatComesBackTakesOverWhatHadExpired) {
  TokenLedger ledger(1);
  const IncarnationKey first{"east", 1};
  const IncarnationKey second{"east", 2};
  ledger.Open(first);
  ledger.Report(first, 100);
  ledger.Settle(first, 0, Fate::kMerged, 60);
  EXPECT_EQ(ledger.Account(first, 0, false, 0).expired(), 40);

  ledger.Open(second);
  ledger.TakeOver(first, second, {0});
  EXPECT_EQ(ledger.Account(first, 0, false, 0).expired(), 0);
  EXPECT_EQ(ledger.Account(first, 0, false, 0).reported(), 60);
  EXPECT_EQ(ledger.Account(second, 0, true, 0).reported(), 40);
  // The process counts on from where it was.
  ledger.Report(second, 110);
  EXPECT_EQ(ledger.Account(second, 0, true, 0).reported(), 50);
}

TEST(TokenLedger, AnotherProcessOfTheNameStartsAnew) {
  TokenLedger ledger(1);
  ledger.Open({"east", 1});
  ledger.Report({"east", 1}, 100);
  ledger.Open({"east", 2});
  ledger.Report({"east", 2}, 7);
  EXPECT_EQ(ledger.Account({"east", 1}, 0, false, 0).expired(), 100);
  EXPECT_EQ(ledger.Account({"east", 2}, 0, true, 0).reported(), 7);
}

TEST(TokenLedger, QuarantineEndsAsRefusedOrMerged) {
  TokenLedger ledger(1);
  const IncarnationKey east{"east", 1};
  ledger.Open(east);
  ledger.Report(east, 30);
  ledger.Settle(east, 0, Fate::kQuarantined, 20);
  EXPECT_EQ(ledger.Account(east, 0, false, 0).quarantined(), 20);
  ledger.Unquarantine(east, 0, 20);
  ledger.Settle(east, 0, Fate::kRefused, 20);
  const v1::TokenLedger account = ledger.Account(east, 0, false, 0);
  EXPECT_EQ(account.refused(), 20);
  EXPECT_EQ(account.quarantined(), 0);
  EXPECT_EQ(account.expired(), 10);
}

TEST(TokenLedger, RestoredLedgersContinue) {
  TokenLedger before(2);
  const IncarnationKey east{"east", 3};
  before.Open(east);
  before.Report(east, 90);
  before.Settle(east, 1, Fate::kPartial, 40);
  TokenLedger after(2);
  after.Restore(before.Record(east));
  after.Settle(east, 1, Fate::kPartial, 40);
  for (const uint32_t fragment : {0, 1}) {
    EXPECT_EQ(after.Account(east, fragment, true, 0).SerializeAsString(),
              before.Account(east, fragment, true, 0).SerializeAsString());
  }
  after.Report(east, 100);
  EXPECT_EQ(after.Account(east, 0, true, 0).reported(), 100);
}

TEST(TokenLedger, AddsUpWhateverHappens) {
  std::mt19937_64 random(7);
  for (int history = 0; history < 50; ++history) {
    TokenLedger ledger(2);
    uint64_t incarnation = 1;
    uint64_t process = 0;
    ledger.Open({"east", 1});
    for (int event = 0; event < 100; ++event) {
      const IncarnationKey key{"east", incarnation};
      const uint32_t fragment = random() % 2;
      const uint64_t pending = ledger.Account(key, fragment, true, 0).pending();
      switch (random() % 5) {
        case 0:
          ledger.Report(key, process += random() % 100);
          break;
        case 1:
          if (pending > 0) {
            ledger.Settle(key, fragment, Fate::kMerged, 1 + random() % pending);
          }
          break;
        case 2:
          if (pending >= 3) {
            ledger.Settle(key, fragment, Fate::kQuarantined, 3);
          }
          break;
        case 3:
          if (ledger.Account(key, fragment, true, 0).quarantined() > 0) {
            ledger.Unquarantine(key, fragment, 3);
            ledger.Settle(key, fragment, Fate::kRefused, 3);
          }
          break;
        default:
          ++incarnation;
          ledger.Open({"east", incarnation});
          ledger.TakeOver(key, {"east", incarnation}, {0, 0});
      }
      for (const IncarnationKey& each : ledger.Keys()) {
        for (const uint32_t id : {0, 1}) {
          const v1::TokenLedger account =
              ledger.Account(each, id, each.incarnation == incarnation, 0);
          ASSERT_EQ(account.reported(), SumOfFates(account));
        }
      }
    }
    // One process that always came back has lost nothing and reported nothing
    // twice.
    uint64_t reported = 0;
    uint64_t expired = 0;
    for (const IncarnationKey& each : ledger.Keys()) {
      const v1::TokenLedger account =
          ledger.Account(each, 0, each.incarnation == incarnation, 0);
      reported += account.reported();
      expired += account.expired();
    }
    EXPECT_EQ(reported, process);
    EXPECT_EQ(expired, 0);
  }
}

}  // namespace
}  // namespace causeway
