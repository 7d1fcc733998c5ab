// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Tests what a coordinator knows when it takes up a run: from its fragments'
// heads, its members and its history.
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/rules/coordinator.h"
#include "server/rules/testing/coordinator_driver.h"

namespace causeway {
namespace {

using testing::HasSubstr;
using Verdict = v1::ContributeResponse;
using Settled = CoordinatorHistory::Settled;

// Returns heads of fragments at this version.
std::vector<Coordinator::CommittedFragment> HeadsAt(uint64_t version,
                                                    uint32_t fragments = 1) {
  std::vector<Coordinator::CommittedFragment> heads(fragments);
  for (uint32_t fragment = 0; fragment < fragments; ++fragment) {
    heads[fragment].head.set_fragment(fragment);
    heads[fragment].head.set_version(version);
    heads[fragment].parameter_norm = 1e9;
  }
  return heads;
}

Member LiveMember(const std::string& island, uint64_t first_version) {
  return {.island_id = island,
          .incarnation = 1,
          .instance_id = 1,
          .first_contribution_version = {first_version}};
}

v1::IslandIdentity IdentityOf(const std::string& island) {
  v1::IslandIdentity identity;
  identity.set_run_id(CoordinatorDriver::kRunId);
  identity.set_island_id(island);
  identity.set_incarnation(1);
  return identity;
}

TEST(CoordinatorRestart, ARunThatHasAVersionHasStarted) {
  CoordinatorDriver run({.min_islands = 2}, HeadsAt(1));
  EXPECT_EQ(run.core().run_state(), v1::RUNNING);
  CoordinatorDriver begun({.min_islands = 2}, HeadsAt(0));
  EXPECT_EQ(begun.core().run_state(), v1::WAITING_FOR_ISLANDS);
  // The flag may be lost with the process that would have written it.
  CoordinatorDriver joined({.min_islands = 2}, HeadsAt(0),
                           {LiveMember("a", 0), LiveMember("b", 0)});
  EXPECT_EQ(joined.core().run_state(), v1::RUNNING);
}

TEST(CoordinatorRestart, EachFragmentIsComparedWithItsOwnParameters) {
  auto heads = HeadsAt(0, 2);
  heads[0].parameter_norm = 3;
  heads[1].parameter_norm = 300;
  CoordinatorDriver run({.fragments = 2}, heads);
  const v1::IslandIdentity a = run.Join("a");
  EXPECT_THAT(run.Contribute(Contribution(a, 0, 1), 2000),
              IsOkAndHolds(Verdict::ACCEPTED));
  EXPECT_THAT(run.Contribute(Contribution(a, 0, 0), 2000), IsOutOfRange());
}

// Returns the factor by which the island's window may exceed the usual length
// at version 9, if these sums of its contributions are settled.
std::string AllowedWindow(std::vector<Settled> settled,
                          uint64_t first_version = 0) {
  CoordinatorHistory history;
  history.settled = std::move(settled);
  history.merged_norms = {
      {std::vector<NormGuard::Sample>(4, {1, CoordinatorDriver::kRoundSteps})}};
  CoordinatorDriver run({.rounds = 20}, HeadsAt(9),
                        {LiveMember("a", first_version)}, history);
  v1::ContributionHeader header = Contribution(IdentityOf("a"), 9);
  header.set_inner_steps(200);
  const std::string refusal = run.Contribute(header, 1e6).status().ToString();
  const size_t at = refusal.find("a window of ");
  return at == std::string::npos ? refusal : refusal.substr(at);
}

TEST(CoordinatorRestart, AWindowBeginsWhereTheIslandWasMergedLast) {
  using Fate = TokenLedger::Fate;
  const auto sum = [](Fate fate, uint64_t base_version,
                      const std::string& island = "a") {
    return Settled{.key = {island, 1},
                   .fate = fate,
                   .tokens = 100,
                   .base_version = base_version};
  };
  EXPECT_THAT(AllowedWindow({sum(Fate::kMerged, 6)}), HasSubstr("3.0 times"));
  EXPECT_THAT(AllowedWindow({sum(Fate::kPartial, 6)}), HasSubstr("3.0 times"));
  EXPECT_THAT(AllowedWindow({sum(Fate::kMerged, 6), sum(Fate::kPartial, 2)}),
              HasSubstr("3.0 times"));
  EXPECT_THAT(AllowedWindow({sum(Fate::kPartial, 2), sum(Fate::kMerged, 6)}),
              HasSubstr("3.0 times"));
  // Unmerged contributions and other islands do not count.
  EXPECT_THAT(AllowedWindow({}, 4), HasSubstr("6.0 times"));
  EXPECT_THAT(AllowedWindow({sum(Fate::kQuarantined, 0)}, 4),
              HasSubstr("6.0 times"));
  EXPECT_THAT(AllowedWindow({sum(Fate::kRefused, 0)}, 4),
              HasSubstr("6.0 times"));
  EXPECT_THAT(AllowedWindow({sum(Fate::kMerged, 6, "b")}, 4),
              HasSubstr("6.0 times"));
}

// Rounds of fewer contributions than there are islands count together, before
// and after a restart.
TEST(CoordinatorRestart, TheUsualNormIsOverAsManyContributionsAsIslands) {
  constexpr int kIslands = 40;
  CoordinatorDriver::Options options{
      .min_islands = kIslands,
      .max_islands = kIslands,
      .quorum = kIslands / 2,
      .rounds = 9,
      .configure = [](auto& config) {
        config.mutable_membership()->set_grace_seconds(0);
      }};
  CoordinatorDriver run(options);
  std::vector<v1::IslandIdentity> islands;
  for (int i = 0; i < kIslands; ++i) {
    islands.push_back(run.Join(absl::StrFormat("island-%02d", i)));
  }
  CoordinatorHistory history;
  history.merged_norms.resize(1);
  for (const double norm : {30, 1}) {
    for (int i = 0; i < kIslands / 2; ++i) {
      ASSERT_OK(run.Contribute(Contribution(islands[i], run.version()), norm));
    }
    run.Commit();
    history.merged_norms[0].emplace_back(
        kIslands / 2, NormGuard::Sample{norm, CoordinatorDriver::kRoundSteps});
  }
  history.last_rounds = {run.core().last_round(0)};
  ASSERT_EQ(history.last_rounds[0].live(), kIslands);
  std::vector<Member> members;
  for (const auto& [name, member] : run.core().membership().members()) {
    members.push_back(member);
  }
  CoordinatorDriver restarted(options, run.core().heads(), members, history);
  EXPECT_THAT(run.Contribute(Contribution(islands[0], 2), 200),
              IsOkAndHolds(Verdict::ACCEPTED));
  EXPECT_THAT(restarted.Contribute(Contribution(islands[0], 2), 200),
              IsOkAndHolds(Verdict::ACCEPTED));
}

TEST(CoordinatorRestart, RestoredTokensAreNotTheIslandsOwn) {
  CoordinatorHistory history;
  history.accounts = {{.key = {"a", 1},
                       .process = 1,
                       .process_tokens = 1000,
                       .reported = {1000}}};
  history.settled = {{.key = {"a", 1}, .tokens = 1000, .restored = 400}};
  CoordinatorDriver run({}, HeadsAt(1), {}, history);
  const v1::TokenLedger ledger = run.core().FragmentLedger(0);
  EXPECT_EQ(ledger.reported(), 1400);
  EXPECT_EQ(ledger.merged(), 1000);
  EXPECT_EQ(ledger.expired(), 400);
}

// A configuration may have changed since the contribution was quarantined.
TEST(CoordinatorRestart, AContributionThatDoesNotFitIsNotAdmitted) {
  CoordinatorHistory history;
  history.quarantine = {{.id = 3,
                         .header = Contribution(IdentityOf("a"), 0),
                         .admissible = true}};
  history.quarantine[0].header.mutable_object()->set_format(v1::BF16);
  history.settled = {{.key = {"a", 1},
                      .fate = TokenLedger::Fate::kQuarantined,
                      .tokens = 1000}};
  CoordinatorDriver run({}, HeadsAt(0), {}, history);
  EXPECT_THAT(run.core().Admit(3, run.now(), run.effects()).status(),
              IsFailedPrecondition("if the configuration has changed since the "
                                   "island joined, start the island again"));
  EXPECT_OK(run.core().Drop(3, run.effects()));
  // Numbers are not used again.
  const v1::IslandIdentity b = run.Join("b");
  ASSERT_FALSE(run.Contribute(Contribution(b, 0), 1e30).ok());
  EXPECT_EQ(run.core().quarantine().entries().rbegin()->first, 4);
}

TEST(CoordinatorRestart, AShardThatIsGoneIsReplaced) {
  Member member = LiveMember("a", 0);
  member.state = v1::IslandStatus::LEFT;
  member.place = 5;
  CoordinatorDriver run({}, HeadsAt(0), {member});
  ASSERT_OK_AND_ASSIGN(const v1::JoinResponse joined, run.TryJoin("a", 2));
  EXPECT_EQ(joined.shard(), 1) << "the run has two shards";
  EXPECT_EQ(joined.shards(), 2);
}

}  // namespace
}  // namespace causeway
