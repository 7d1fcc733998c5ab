// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/rules/token_ledger.h"

#include <limits>
#include <random>
#include <tuple>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

using testing::ElementsAre;

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
  EXPECT_EQ(ledger.Account(east, 0, true, {}).pending(), 100);
  ledger.Settle(east, 0, Fate::kMerged, 80);
  const v1::TokenLedger merged = ledger.Account(east, 0, true, {});
  EXPECT_EQ(merged.reported(), 100);
  EXPECT_EQ(merged.merged(), 80);
  EXPECT_EQ(merged.pending(), 20);
  EXPECT_EQ(ledger.Account(east, 1, true, {}).pending(), 100);
}

TEST(TokenLedger, UncontributedTokensOfAnEndedIncarnationExpire) {
  TokenLedger ledger(1);
  const IncarnationKey east{"east", 1};
  ledger.Open(east);
  ledger.Report(east, 100);
  ledger.Settle(east, 0, Fate::kMerged, 60);
  // 30 more are in an open round.
  const v1::TokenLedger account =
      ledger.Account(east, 0, false, {{east, {.tokens = 30}}});
  EXPECT_EQ(account.pending(), 30);
  EXPECT_EQ(account.expired(), 10);
}

TEST(TokenLedger, SumsOfImpossibleClaimsDoNotOverflow) {
  constexpr uint64_t kAll = std::numeric_limits<uint64_t>::max();
  TokenLedger ledger(1);
  const IncarnationKey east{"east", 1};
  const IncarnationKey again{"east", 2};
  ledger.Open(east, 7);
  ledger.Report(east, kAll);
  for (const Fate fate : {Fate::kMerged, Fate::kPartial, Fate::kRefused}) {
    for (int i = 0; i < 3; ++i) ledger.Settle(east, 0, fate, kAll, kAll);
  }
  v1::TokenLedger account =
      ledger.Account(east, 0, true, {{east, {.tokens = kAll}}});
  EXPECT_EQ(account.reported(), SumOfFates(account));
  EXPECT_EQ(account.merged(), TokenLedger::kMost);
  // More is taken out of the quarantine than the sum has kept.
  ledger.Settle(east, 0, Fate::kQuarantined, kAll);
  ledger.Settle(east, 0, Fate::kQuarantined, kAll);
  ledger.Unquarantine(east, 0, kAll);
  ledger.Unquarantine(east, 0, kAll);
  ledger.Open(again, 7);
  ledger.Report(again, kAll);
  ledger.TakeOver(east, again, {{.tokens = kAll}});
  v1::TokenLedger sum;
  for (const IncarnationKey& key : {east, again}) {
    for (const bool live : {false, true}) {
      account = ledger.Account(key, 0, live, {{key, {.tokens = kAll}}});
      EXPECT_EQ(account.reported(), SumOfFates(account));
      for (int i = 0; i < 32; ++i) AddTo(account, sum);
    }
  }
  EXPECT_EQ(sum.merged(), kAll);
}

TEST(TokenLedger, ContributionsShowTokensNotYetReported) {
  TokenLedger ledger(1);
  const IncarnationKey east{"east", 1};
  ledger.Open(east);
  EXPECT_EQ(ledger.Account(east, 0, true, {{east, {.tokens = 50}}}).reported(),
            50);
  ledger.Settle(east, 0, Fate::kMerged, 50);
  // The next heartbeat reports the same tokens.
  ledger.Report(east, 50);
  const v1::TokenLedger account = ledger.Account(east, 0, true, {});
  EXPECT_EQ(account.reported(), 50);
  EXPECT_EQ(account.pending(), 0);
}

TEST(TokenLedger, NoTokenIsReportedByTwoIncarnationsOfAProcess) {
  TokenLedger ledger(1);
  ledger.Open({"east", 1});
  ledger.Settle({"east", 1}, 0, Fate::kMerged, 50);
  ledger.Open({"east", 2});
  ledger.TakeOver({"east", 1}, {"east", 2}, {OpenTokens()});
  ledger.Report({"east", 2}, 60);
  EXPECT_EQ(ledger.Account({"east", 1}, 0, false, {}).reported(), 50);
  EXPECT_EQ(ledger.Account({"east", 2}, 0, true, {}).reported(), 10);
}

TEST(TokenLedger, HeartbeatsThatComeAgainOrLateCountNothing) {
  TokenLedger ledger(1);
  const IncarnationKey east{"east", 1};
  ledger.Open(east);
  ledger.Report(east, 70);
  ledger.Report(east, 70);
  ledger.Report(east, 50);
  EXPECT_EQ(ledger.Account(east, 0, true, {}).reported(), 70);
}

TEST(TokenLedger, AReturningProcessTakesOverItsExpiredTokens) {
  TokenLedger ledger(1);
  const IncarnationKey first{"east", 1};
  const IncarnationKey second{"east", 2};
  ledger.Open(first);
  ledger.Report(first, 100);
  ledger.Settle(first, 0, Fate::kMerged, 60);
  EXPECT_EQ(ledger.Account(first, 0, false, {}).expired(), 40);

  ledger.Open(second);
  ledger.TakeOver(first, second, {OpenTokens()});
  EXPECT_EQ(ledger.Account(first, 0, false, {}).expired(), 0);
  EXPECT_EQ(ledger.Account(first, 0, false, {}).reported(), 60);
  EXPECT_EQ(ledger.Account(second, 0, true, {}).reported(), 40);
  // The process's count continues where it was.
  ledger.Report(second, 110);
  EXPECT_EQ(ledger.Account(second, 0, true, {}).reported(), 50);
}

TEST(TokenLedger, AnotherProcessOfTheNameStartsAnew) {
  TokenLedger ledger(1);
  ledger.Open({"east", 1});
  ledger.Report({"east", 1}, 100);
  ledger.Open({"east", 2});
  ledger.Report({"east", 2}, 7);
  EXPECT_EQ(ledger.Account({"east", 1}, 0, false, {}).expired(), 100);
  EXPECT_EQ(ledger.Account({"east", 2}, 0, true, {}).reported(), 7);
}

TEST(TokenLedger, QuarantineEndsAsRefusedOrMerged) {
  TokenLedger ledger(1);
  const IncarnationKey east{"east", 1};
  ledger.Open(east);
  ledger.Report(east, 30);
  ledger.Settle(east, 0, Fate::kQuarantined, 20);
  EXPECT_EQ(ledger.Account(east, 0, false, {}).quarantined(), 20);
  ledger.Unquarantine(east, 0, 20);
  ledger.Settle(east, 0, Fate::kRefused, 20);
  const v1::TokenLedger account = ledger.Account(east, 0, false, {});
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
    EXPECT_EQ(after.Account(east, fragment, true, {}).SerializeAsString(),
              before.Account(east, fragment, true, {}).SerializeAsString());
  }
  after.Report(east, 100);
  EXPECT_EQ(after.Account(east, 0, true, {}).reported(), 100);
}

TEST(TokenLedger, TokensFromACheckpointHaveNotExpired) {
  TokenLedger ledger(1);
  const IncarnationKey dead{"east", 1};
  const IncarnationKey restored{"east", 2};
  ledger.Open({"aa", 1});
  ledger.Open(dead);
  ledger.Report(dead, 100);
  ledger.Settle(dead, 0, Fate::kMerged, 40);
  ledger.Open(restored);
  EXPECT_EQ(ledger.Account(dead, 0, false, {}).expired(), 60);
  // The checkpoint has 25 of the 60 tokens; the process has trained 30
  // itself.
  ledger.Report(restored, 30);
  const auto expect = [&](uint64_t pending, uint64_t merged,
                          const std::map<IncarnationKey, OpenTokens>& open) {
    const v1::TokenLedger old = ledger.Account(dead, 0, false, open);
    const v1::TokenLedger now = ledger.Account(restored, 0, true, open);
    EXPECT_EQ(old.reported(), 75);
    EXPECT_EQ(old.expired(), 35);
    EXPECT_EQ(old.reported(), SumOfFates(old));
    EXPECT_EQ(now.reported(), 55);
    EXPECT_EQ(now.pending(), pending);
    EXPECT_EQ(now.merged(), merged);
    EXPECT_EQ(now.reported(), SumOfFates(now));
  };
  expect(55, 0, {{restored, {.tokens = 45, .restored = 25}}});
  ledger.Settle(restored, 0, Fate::kMerged, 45, 25);
  expect(10, 45, {});
  // After a restart the commits give the same.
  TokenLedger again(1);
  again.Restore(ledger.Record(dead));
  again.Restore(ledger.Record(restored));
  again.Settle(restored, 0, Fate::kMerged, 45, 25);
  again.Settle(dead, 0, Fate::kMerged, 40);
  EXPECT_EQ(again.Account(dead, 0, false, {}).expired(), 35);
}

TEST(TokenLedger, RestoredTokensComeFromTheNewestDeadProcessFirst) {
  const IncarnationKey first{"east", 1};
  const IncarnationKey second{"east", 2};
  const IncarnationKey third{"east", 3};
  for (const auto& [restored, left_of_first, left_of_second] :
       {std::tuple(30, 100, 20), {50, 100, 0}, {70, 80, 0}, {150, 0, 0}}) {
    SCOPED_TRACE(restored);
    TokenLedger ledger(1);
    ledger.Open(first, /*process=*/5);
    ledger.Report(first, 100);
    ledger.Open(second, /*process=*/6);
    ledger.Report(second, 50);
    ledger.Open(third, /*process=*/7);
    ledger.Settle(third, 0, Fate::kMerged, restored, restored);
    EXPECT_EQ(ledger.Account(first, 0, false, {}).expired(), left_of_first);
    EXPECT_EQ(ledger.Account(second, 0, false, {}).expired(), left_of_second);
    EXPECT_EQ(ledger.Account(third, 0, true, {}).reported(), restored);
  }
}

TEST(TokenLedger, TokensOfTheProcessItselfAreNotFromItsCheckpoint) {
  TokenLedger ledger(1);
  const IncarnationKey dead{"east", 1};
  const IncarnationKey evicted{"east", 2};
  const IncarnationKey again{"east", 3};
  ledger.Open(dead, /*process=*/5);
  ledger.Report(dead, 100);
  // It contributed 30 to a round that a restart of the coordinator has lost.
  ledger.Restore(
      {.key = evicted, .process = 6, .process_tokens = 30, .reported = {30}});
  ledger.Restore(
      {.key = again, .process = 6, .process_tokens = 50, .reported = {20}});
  EXPECT_EQ(ledger.Account(evicted, 0, false, {}).expired(), 30);
  // It contributes them again, together with tokens from the checkpoint and 10
  // that it has not reported yet.
  ledger.Settle(again, 0, Fate::kMerged, 100, /*restored=*/40);
  EXPECT_EQ(ledger.Account(dead, 0, false, {}).expired(), 60);
  EXPECT_EQ(ledger.Account(evicted, 0, false, {}).expired(), 0);
  EXPECT_EQ(ledger.Account(again, 0, true, {}).reported(), 100);
  EXPECT_EQ(ledger.Account(again, 0, true, {}).merged(), 100);
}

TEST(TokenLedger, AContributionReportsTokensThatNoHeartbeatDid) {
  TokenLedger ledger(1);
  const IncarnationKey first{"east", 1};
  const IncarnationKey second{"east", 2};
  const IncarnationKey third{"east", 3};
  ledger.Open(first);
  ledger.Report(first, 10);
  ledger.Open(second);
  ledger.Report(second, 5);
  ledger.Open(third);
  // From a checkpoint of the second process, which had the first one's
  // training.
  ledger.Settle(third, 0, Fate::kPartial, 20, 20);
  EXPECT_EQ(ledger.Account(second, 0, false, {}).reported(), 0);
  EXPECT_EQ(ledger.Account(first, 0, false, {}).reported(), 0);
  EXPECT_EQ(ledger.Account(third, 0, true, {}).reported(), 20);
  EXPECT_EQ(ledger.Account(third, 0, true, {}).partial_merged(), 20);
}

TEST(TokenLedger, TokensOfALostRoundAreContributedAgain) {
  TokenLedger before(1);
  const IncarnationKey first{"east", 1};
  const IncarnationKey second{"east", 2};
  before.Open(first, /*process=*/7);
  before.Report(first, 50);
  before.Open(second, /*process=*/7);
  before.TakeOver(first, second, {OpenTokens{.tokens = 20}});
  // Another process does not affect the account.
  for (const bool same : {true, false}) {
    TokenLedger after(1);
    after.Restore(before.Record(first));
    AccountRecord successor = before.Record(second);
    if (!same) successor.process = 8;
    after.Restore(successor);
    EXPECT_EQ(after.Account(first, 0, false, {}).expired(), 20);
    EXPECT_EQ(after.Account(second, 0, true, {}).reported(), 30);
    after.Report(second, 60);
    const std::map<IncarnationKey, OpenTokens> open = {
        {second, {.tokens = 50}}};
    EXPECT_EQ(after.Account(first, 0, false, open).expired(), same ? 10 : 20);
    EXPECT_EQ(after.Account(second, 0, true, open).reported(), 50);
  }
}

TEST(TokenLedger, AThirdIncarnationTakesOverFromTheFirstToo) {
  TokenLedger ledger(1);
  const IncarnationKey first{"east", 1};
  const IncarnationKey second{"east", 2};
  const IncarnationKey other{"east", 3};
  const IncarnationKey third{"east", 4};
  ledger.Open(first, /*process=*/7);
  ledger.Report(first, 50);
  ledger.Open(second, /*process=*/7);
  ledger.TakeOver(first, second, {OpenTokens{.tokens = 20}});
  ledger.Open(other, /*process=*/8);
  ledger.Open(third, /*process=*/7);
  EXPECT_THAT(ledger.OfSameProcess(third), ElementsAre(first, second));
  // The round with the 20 is lost; all 50 are in another round.
  ledger.TakeOver(first, third, {OpenTokens()});
  ledger.TakeOver(second, third, {OpenTokens{.tokens = 50}});
  const std::map<IncarnationKey, OpenTokens> open = {{second, {.tokens = 50}}};
  EXPECT_EQ(ledger.Account(first, 0, false, open).reported(), 0);
  EXPECT_EQ(ledger.Account(second, 0, false, open).reported(), 50);
  EXPECT_EQ(ledger.Account(third, 0, true, open).reported(), 0);
  ledger.Report(third, 55);
  EXPECT_EQ(ledger.Account(third, 0, true, open).reported(), 5);
}

// Makes an island of `incarnations`, which crash again and again. Every third
// is a new process, and some contribute what earlier ones have trained.
TokenLedger FlappingIsland(uint64_t incarnations) {
  TokenLedger ledger(1);
  std::mt19937 random(1);
  for (uint64_t i = 1; i <= incarnations; ++i) {
    const IncarnationKey key{"east", i};
    ledger.Open(key, /*process=*/1 + i / 3);
    ledger.Report(key, 100 + random() % 100);
    ledger.Settle(key, 0, Fate::kMerged, random() % 150, random() % 50);
  }
  return ledger;
}

v1::TokenLedger SumOf(const TokenLedger& ledger, uint64_t live) {
  return ledger.Sum(
      0, [=](const IncarnationKey& key) { return key.incarnation == live; },
      [](const std::string&) {
        return std::map<IncarnationKey, OpenTokens>();
      });
}

TEST(TokenLedger, TheSumIsThatOfAllAccounts) {
  constexpr uint64_t kIncarnations = 60;
  TokenLedger ledger = FlappingIsland(kIncarnations);
  ledger.Open({"west", 1});
  ledger.Report({"west", 1}, 10);
  v1::TokenLedger want = ledger.Account({"west", 1}, 0, false, {});
  for (uint64_t i = 1; i <= kIncarnations; ++i) {
    AddTo(ledger.Account({"east", i}, 0, i == kIncarnations, {}), want);
  }
  const v1::TokenLedger sum = SumOf(ledger, kIncarnations);
  EXPECT_EQ(sum.SerializeAsString(), want.SerializeAsString());
  EXPECT_EQ(sum.reported(), SumOfFates(sum));
}

// If the time grew with the square of the incarnations, this would not end.
TEST(TokenLedger, AnIslandMayFlapForMonths) {
  const v1::TokenLedger sum = SumOf(FlappingIsland(200'000), 200'000);
  EXPECT_EQ(sum.reported(), SumOfFates(sum));
}

TEST(TokenLedger, RestoredTokensPassThroughTheQuarantine) {
  TokenLedger ledger(1);
  const IncarnationKey dead{"east", 1};
  const IncarnationKey restored{"east", 2};
  ledger.Report(dead, 50);
  ledger.Settle(restored, 0, Fate::kQuarantined, 30, 20);
  EXPECT_EQ(ledger.Account(dead, 0, false, {}).expired(), 30);
  ledger.Unquarantine(restored, 0, 30, 20);
  ledger.Settle(restored, 0, Fate::kRefused, 30, 20);
  EXPECT_EQ(ledger.Account(dead, 0, false, {}).expired(), 30);
  EXPECT_EQ(ledger.Account(restored, 0, false, {}).refused(), 30);
  EXPECT_EQ(ledger.Account(restored, 0, false, {}).reported(), 30);
}

// Compares a ledger that is folded again and again with one that a restart
// makes of its records.
TEST(TokenLedger, FoldingChangesNoSum) {
  struct Settled {
    IncarnationKey key;
    Fate fate;
    uint64_t tokens;
    uint64_t restored;
  };
  std::mt19937 random(3);
  for (uint64_t processes = 1; processes <= 12; ++processes) {
    TokenLedger folded(1);
    std::map<IncarnationKey, AccountRecord> records;
    // One for each incarnation.
    std::vector<Settled> settled;
    std::vector<uint64_t> tokens(processes);
    for (uint64_t i = 1; i <= 60; ++i) {
      const IncarnationKey key{"east", i};
      const uint64_t process = random() % processes;
      folded.Open(key, 1 + process);
      for (const IncarnationKey& old : folded.OfSameProcess(key)) {
        // The open round with these tokens may be lost.
        const uint64_t lost = random() % 8 == 0 ? 30 : 0;
        folded.TakeOver(old, key, {OpenTokens{.tokens = lost}});
        records[old] = folded.Record(old);
      }
      folded.Report(key, tokens[process] += random() % 200);
      records[key] = folded.Record(key);
      const uint64_t contributed = 1 + random() % 150;
      settled.push_back({key, i % 10 == 3 ? Fate::kQuarantined : Fate::kMerged,
                         contributed, random() % contributed});
      folded.Settle(key, 0, settled.back().fate, contributed,
                    settled.back().restored);
      if (i % 10 == 9) {
        Settled& held = settled[i - 7];
        held.fate = Fate::kRefused;
        folded.Unquarantine(held.key, 0, held.tokens, held.restored);
        folded.Settle(held.key, 0, held.fate, held.tokens, held.restored);
      }
      const auto is_known = [=](const std::string&) { return i < 60; };
      folded.Fold(is_known, {});
      TokenLedger restarted(1);
      for (const auto& [_, record] : records) restarted.Restore(record);
      for (const Settled& sum : settled) {
        restarted.Settle(sum.key, 0, sum.fate, sum.tokens, sum.restored);
      }
      for (const bool is_folded : {false, true}) {
        if (is_folded) restarted.Fold(is_known, {});
        // None is live.
        ASSERT_EQ(SumOf(folded, 100).SerializeAsString(),
                  SumOf(restarted, 100).SerializeAsString())
            << processes << " " << i << " " << is_folded;
      }
    }
    EXPECT_EQ(folded.Account({"east", 60}, 0, false, {}).reported(), 0);
  }
}

TEST(TokenLedger, OnlyWhatIsOverIsFolded) {
  constexpr uint64_t kIncarnations = TokenLedger::kUnfolded + 4;
  const auto known = [](const std::string&) { return true; };
  TokenLedger ledger(1);
  for (uint64_t i = 1; i <= kIncarnations; ++i) {
    ledger.Open({"east", i}, /*process=*/i);
    ledger.Report({"east", i}, 100);
  }
  ledger.Settle({"east", 3}, 0, Fate::kQuarantined, 60);
  const auto reported = [&](uint64_t incarnation) {
    return ledger.Account({"east", incarnation}, 0, false, {}).reported();
  };
  ledger.Fold(known, {{"east", 2}});
  EXPECT_EQ(reported(1), 100);
  EXPECT_EQ(reported(2), 100);
  ledger.Fold(known, {});
  EXPECT_EQ(reported(1), 0);
  EXPECT_EQ(reported(2), 200);
  EXPECT_EQ(reported(3), 100);
  ledger.Unquarantine({"east", 3}, 0, 60);
  ledger.Settle({"east", 3}, 0, Fate::kMerged, 60);
  ledger.Fold(known, {});
  EXPECT_EQ(reported(4), 400);
  EXPECT_EQ(reported(5), 100);
  // A process that was away for long has not trained its tokens again.
  ledger.Open({"east", kIncarnations + 1}, /*process=*/1);
  ledger.Report({"east", kIncarnations + 1}, 130);
  EXPECT_EQ(reported(kIncarnations + 1), 30);
}

TEST(TokenLedger, AForgottenIslandIsFoldedOnceAllIsOver) {
  const auto forgotten = [](const std::string&) { return false; };
  const IncarnationKey dead{"east", 1};
  const IncarnationKey restored{"east", 2};
  TokenLedger ledger(1);
  ledger.Open(dead, /*process=*/1);
  ledger.Report(dead, 100);
  ledger.Open(restored, /*process=*/2);
  ledger.Settle(restored, 0, Fate::kQuarantined, 60, 60);
  ledger.Fold(forgotten, {});
  EXPECT_EQ(SumOf(ledger, 0).reported(), 100);
  ledger.Unquarantine(restored, 0, 60, 60);
  ledger.Settle(restored, 0, Fate::kMerged, 60, 60);
  ledger.Fold(forgotten, {});
  EXPECT_EQ(SumOf(ledger, 0).reported(), 100);
  EXPECT_EQ(ledger.Account(restored, 0, false, {}).reported(), 0);
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
      const uint64_t pending =
          ledger.Account(key, fragment, true, {}).pending();
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
          if (ledger.Account(key, fragment, true, {}).quarantined() > 0) {
            ledger.Unquarantine(key, fragment, 3);
            ledger.Settle(key, fragment, Fate::kRefused, 3);
          }
          break;
        default:
          ++incarnation;
          ledger.Open({"east", incarnation});
          ledger.TakeOver(key, {"east", incarnation},
                          {OpenTokens(), OpenTokens()});
      }
      for (uint64_t each = 1; each <= incarnation; ++each) {
        for (const uint32_t id : {0, 1}) {
          const v1::TokenLedger account =
              ledger.Account({"east", each}, id, each == incarnation, {});
          ASSERT_EQ(account.reported(), SumOfFates(account));
        }
      }
    }
    // A process that came back each time has lost nothing and reported nothing
    // twice.
    const v1::TokenLedger sum = SumOf(ledger, incarnation);
    EXPECT_EQ(sum.reported(), process);
    EXPECT_EQ(sum.expired(), 0);
  }
}

// Tokens may move from an earlier incarnation when the later one has already
// reported more.
TEST(TokenLedger, TakingOverKeepsReportedTokens) {
  TokenLedger ledger(1);
  ledger.Open({"a", 1}, 5);
  ledger.Report({"a", 1}, 1000);
  ledger.Open({"a", 2}, 5);
  ledger.TakeOver({"a", 1}, {"a", 2}, {{}});
  ledger.Report({"a", 2}, 1500);
  ledger.TakeOver({"a", 1}, {"a", 2}, {{}});
  ledger.Report({"a", 2}, 1500);
  EXPECT_EQ(ledger.Record({"a", 2}).process_tokens, 1500);
  EXPECT_EQ(ledger.Account({"a", 2}, 0, true, {}).reported(), 1500);
}

TEST(TokenLedger, UnknownProcessesAreNotTheSame) {
  TokenLedger ledger(1);
  ledger.Restore({.key = {"a", 1}, .reported = {100}});
  ledger.Restore({.key = {"a", 2}, .reported = {100}});
  EXPECT_TRUE(ledger.OfSameProcess({"a", 2}).empty());
}

}  // namespace
}  // namespace causeway
