// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Tests all effects of each event, line by line: what is made durable, what
// people are told, which uploads are discarded, and whether islands hear of a
// change.
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/rules/coordinator.h"
#include "server/rules/testing/coordinator_driver.h"

namespace causeway {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

v1::ContributionHeader Contribution(const v1::IslandIdentity& identity,
                                    uint64_t base_version) {
  return CoordinatorDriver::Contribution(identity, base_version);
}

std::string At(absl::Time time) {
  return absl::StrCat(absl::ToDoubleSeconds(time - absl::UnixEpoch()), "s");
}
std::string NameOf(const v1::IslandIdentity& identity) {
  return absl::StrCat(identity.island_id(), "/", identity.incarnation());
}
std::string NameOf(const Member& member) {
  return absl::StrCat(member.island_id, "/", member.incarnation);
}

// Returns one line for each effect.
std::vector<std::string> LinesOf(const Effects& effects) {
  std::vector<std::string> lines;
  const auto add = [&](const auto&... parts) {
    lines.push_back(absl::StrCat(parts...));
  };
  for (const Member& member : effects.joined) {
    add("joined ", NameOf(member), " shard ", member.shard, " first ",
        absl::StrJoin(member.first_contribution_version, ","));
  }
  for (const Member& member : effects.ended) {
    add("ended ", NameOf(member), " ",
        v1::IslandStatus::State_Name(member.state), " at ", At(member.ended_at),
        ": ", member.reason);
  }
  for (const Member& member : effects.changed) {
    add("changed ", NameOf(member), member.draining ? " draining" : "");
  }
  for (const AccountRecord& account : effects.accounts) {
    add("account ", account.key.island_id, "/", account.key.incarnation,
        " process ", account.process, " has ", account.process_tokens,
        " reported ", absl::StrJoin(account.reported, ","));
  }
  for (const v1::ContributionHeader& header : effects.late) {
    add("late ", NameOf(header.identity()), " f", header.fragment(), " v",
        header.base_version());
  }
  for (const QuarantineEntry& entry : effects.quarantine) {
    add("quarantine ", entry.id, " ", NameOf(entry.header.identity()), " ",
        v1::QuarantinedContribution::State_Name(entry.state),
        entry.admissible ? "" : " inadmissible",
        entry.in_round ? " in a round" : "", " norm ", entry.norm, " at ",
        At(entry.quarantined_at), ": ", entry.reason);
  }
  if (effects.flags.has_value()) {
    add("flags", effects.flags->started ? " started" : "",
        effects.flags->paused ? " paused" : "", ": ",
        effects.flags->pause_reason);
  }
  for (const CoordinatorEvent& event : effects.events) {
    add(event.kind, " [", event.island_id, "] ", event.text);
  }
  for (const ContributionKey& key : effects.discarded) {
    add("discard ", key.island_id, "/", key.incarnation, " f", key.fragment,
        " v", key.base_version);
  }
  if (effects.view_changed) add("view");
  return lines;
}

// Returns the effects since the last call.
std::vector<std::string> Take(CoordinatorDriver& run) {
  std::vector<std::string> lines = LinesOf(run.effects());
  run.effects() = {};
  return lines;
}

TEST(CoordinatorEffects, OfJoins) {
  CoordinatorDriver run({.min_islands = 2, .fragments = 2});
  const v1::IslandIdentity a = run.Join("a", 5);
  EXPECT_THAT(
      Take(run),
      ElementsAre(
          "joined a/1 shard 0 first 0,0",
          "account a/1 process 5 has 0 reported 0,0",
          "island_joined [a] island a joined (incarnation 1, shard 0) at "
          "step 0",
          "view"));
  run.Join("b", 6);
  EXPECT_THAT(
      Take(run),
      ElementsAre(
          "joined b/1 shard 1 first 0,0",
          "account b/1 process 6 has 0 reported 0,0", "flags started: ",
          "island_joined [b] island b joined (incarnation 1, shard 1) at "
          "step 0",
          "run_started [] training starts with 2 islands", "view"));
  run.Join("b", 6);
  EXPECT_THAT(Take(run), IsEmpty()) << "a retry";

  ASSERT_OK(run.Heartbeat(a, 5));
  EXPECT_THAT(Take(run), IsEmpty());
  ASSERT_OK_AND_ASSIGN(const v1::JoinResponse response, run.TryJoin("c", 7));
  v1::JoinResponse expected;
  expected.mutable_identity()->set_run_id(CoordinatorDriver::kRunId);
  expected.mutable_identity()->set_island_id("c");
  expected.mutable_identity()->set_incarnation(1);
  *expected.mutable_config() = run.core().options().config;
  *expected.mutable_plan() = run.core().options().plan;
  for (const uint32_t fragment : {0, 1}) {
    *expected.add_heads() = run.core().heads()[fragment].head;
    expected.add_first_contribution_version(1);
  }
  expected.set_run_step(5);
  expected.set_shards(2);
  expected.set_run_state(v1::RUNNING);
  EXPECT_EQ(response.DebugString(), expected.DebugString());
  // The joiner keeps the position, even if it is heard of no more.
  ASSERT_OK(run.Leave(a));
  EXPECT_EQ(run.core().RunStep(), 5);
  EXPECT_EQ(run.core().View(response.identity()).run_step(), 5);
}

TEST(CoordinatorEffects, OfAFirstIslandThatIsAlone) {
  CoordinatorDriver run({});
  run.Join("a");
  EXPECT_THAT(run.effects().events.back().text,
              "training starts with 1 island");
}

TEST(CoordinatorEffects, OfDepartures) {
  CoordinatorDriver run({.min_islands = 3});
  const v1::IslandIdentity a = run.Join("a");
  const v1::IslandIdentity b = run.Join("b");
  run.Join("c");
  ASSERT_OK(run.Heartbeat(a, 3, 300));
  ASSERT_OK(run.Contribute(Contribution(b, 0)));
  Take(run);
  run.Advance(absl::Seconds(2));
  ASSERT_OK(run.Leave(a));
  EXPECT_THAT(Take(run),
              ElementsAre("ended a/1 LEFT at 2s: finished",
                          "account a/1 process 1 has 300 reported 300",
                          "island_left [a] island a (incarnation 1) left: "
                          "finished",
                          "discard a/1 f0 v0", "view"));
  // What b has handed in stays.
  v1::LeaveRequest leave;
  *leave.mutable_identity() = b;
  ASSERT_OK(run.core().Leave(leave, run.now(), run.effects()));
  EXPECT_THAT(Take(run),
              ElementsAre("ended b/1 LEFT at 2s: left",
                          "account b/1 process 1 has 0 reported 0",
                          "island_left [b] island b (incarnation 1) left: "
                          "left",
                          "view"));
  run.Advance(absl::Seconds(8.5));
  run.Tick();
  EXPECT_THAT(Take(run),
              ElementsAre("ended c/1 EVICTED at 10.5s: no heartbeat for 10.5 s",
                          "account c/1 process 1 has 0 reported 0",
                          "island_evicted [c] island c (incarnation 1) was "
                          "evicted: no heartbeat for 10.5 s",
                          "discard c/1 f0 v0", "view"));
  EXPECT_THAT(run.orders(), SizeIs(1)) << "nobody else is awaited";
}

TEST(CoordinatorEffects, OfSilenceAfterAHeartbeat) {
  CoordinatorDriver run({});
  const v1::IslandIdentity a = run.Join("a");
  run.Advance(absl::Seconds(4));
  ASSERT_OK(run.Heartbeat(a));
  run.Advance(absl::Seconds(11));
  run.Tick();
  EXPECT_EQ(run.effects().ended.back().reason, "no heartbeat for 11.0 s");
}

TEST(CoordinatorEffects, OfAProcessThatReplacesAnother) {
  CoordinatorDriver run({});
  const auto join = [&](uint64_t instance, uint64_t replaces) {
    v1::JoinRequest request;
    request.set_island_id("a");
    request.set_instance_id(instance);
    request.set_replaces_instance_id(replaces);
    request.set_description("host-7");
    return run.core().Join(request, run.now(), run.effects()).status();
  };
  ASSERT_OK(join(5, 0));
  EXPECT_EQ(run.effects().joined.back().description, "host-7");
  Take(run);
  ASSERT_OK(join(5, 5));
  EXPECT_THAT(Take(run), IsEmpty()) << "it is not dead";
  ASSERT_OK(join(6, 5));
  EXPECT_THAT(
      Take(run),
      ElementsAre("joined a/2 shard 0 first 0",
                  "ended a/1 EVICTED at 0s: its process was started again",
                  "account a/1 process 5 has 0 reported 0",
                  "account a/2 process 6 has 0 reported 0",
                  "island_evicted [a] island a (incarnation 1) was evicted: "
                  "its process was started again",
                  "island_joined [a] island a joined (incarnation 2, shard "
                  "0) at step 0",
                  "discard a/1 f0 v0", "view"));
  // An incarnation ends once.
  ASSERT_OK(run.core().Evict("a", "", run.now(), run.effects()));
  Take(run);
  ASSERT_OK(join(7, 6));
  EXPECT_THAT(run.effects().ended, IsEmpty());
}

TEST(CoordinatorEffects, OfAProcessThatComesBack) {
  CoordinatorDriver run({});
  const v1::IslandIdentity a = run.Join("a", 5);
  ASSERT_OK(run.Heartbeat(a, 3, 300));
  ASSERT_OK(run.Leave(a));
  Take(run);
  run.Join("a", 5);
  EXPECT_THAT(run.effects().accounts, SizeIs(2));
  const std::vector<std::string> lines = Take(run);
  EXPECT_EQ(lines[1], "account a/1 process 5 has 300 reported 0");
  EXPECT_EQ(lines[2], "account a/2 process 5 has 300 reported 300");
}

TEST(CoordinatorEffects, OfTroubleBetweenRanks) {
  CoordinatorDriver run({});
  const v1::IslandIdentity a = run.Join("a");
  Take(run);
  v1::IslandProgress progress;
  v1::RankTrouble& trouble = *progress.mutable_rank_trouble();
  trouble.set_kind(v1::RankTrouble::SLOW_LINK);
  trouble.set_text("rank 0 sends slowly");
  ASSERT_OK(run.Heartbeat(a, progress));
  EXPECT_THAT(Take(run),
              ElementsAre("link_slow [a] island a: rank 0 sends slowly"));
  trouble.set_to_rank(2);
  ASSERT_OK(run.Heartbeat(a, progress));
  EXPECT_THAT(Take(run), SizeIs(1)) << "another link";
  progress.clear_rank_trouble();
  ASSERT_OK(run.Heartbeat(a, progress));
  EXPECT_THAT(Take(run), ElementsAre("ranks_even [a] island a: no rank and no "
                                     "link is slow any more"));
}

TEST(CoordinatorEffects, OfContributionsThatAreNotMerged) {
  CoordinatorDriver run({.min_islands = 2, .configure = [](auto& config) {
                           config.mutable_membership()->set_grace_seconds(0);
                         }});
  const v1::IslandIdentity a = run.Join("a");
  const v1::IslandIdentity b = run.Join("b");
  Take(run);
  ASSERT_OK(run.Contribute(Contribution(a, 0)));
  EXPECT_THAT(Take(run), IsEmpty());
  ASSERT_OK_AND_ASSIGN(v1::ContributeResponse response,
                       run.Complete(Contribution(b, 0)));
  EXPECT_EQ(response.verdict(), v1::ContributeResponse::LATE);
  EXPECT_EQ(response.current_version(), 1);
  const auto expected =
      ElementsAre("late b/1 f0 v0",
                  "contribution_late [b] round 1 of fragment 0 closed without "
                  "island b; its progress goes into its next contribution",
                  "discard b/1 f0 v0");
  EXPECT_THAT(Take(run), expected);

  // The same happens to whom the run leaves out on purpose.
  CoordinatorDriver dropping(
      {.min_islands = 2, .configure = [](auto& config) {
         config.mutable_membership()->set_drop_contributions(1);
       }});
  dropping.Join("a");
  const v1::IslandIdentity left_out = dropping.Join("b");
  Take(dropping);
  ASSERT_OK_AND_ASSIGN(response, dropping.Complete(Contribution(left_out, 0)));
  EXPECT_EQ(response.verdict(), v1::ContributeResponse::LATE);
  EXPECT_EQ(response.current_version(), 1);
  EXPECT_THAT(Take(dropping), expected);
  EXPECT_THAT(dropping.core().Awaited(0), ElementsAre("a"));
}

TEST(CoordinatorEffects, OfOuterSteps) {
  CoordinatorDriver run({.min_islands = 2, .rounds = 2});
  const v1::IslandIdentity a = run.Join("a");
  const v1::IslandIdentity b = run.Join("b");
  for (const v1::IslandIdentity& island : {b, a}) {
    ASSERT_OK(run.Heartbeat(island, 10, 1000));
    ASSERT_OK(run.Contribute(Contribution(island, 0)));
  }
  Take(run);
  run.Advance(absl::Seconds(3));
  run.Commit();
  EXPECT_THAT(Take(run),
              ElementsAre("account a/1 process 1 has 1000 reported 1000",
                          "account b/1 process 1 has 1000 reported 1000",
                          "round_merged [] fragment 0 is at version 1: merged "
                          "a, b, norm 1, 1.000 s",
                          "discard a/1 f0 v0", "discard b/1 f0 v0", "view"));
  EXPECT_EQ(run.core().heads()[0].merged_norm, 1);
  EXPECT_EQ(run.core().heads()[0].committed_at, run.now());
  const Member& member = run.core().membership().members().at("a");
  EXPECT_EQ(member.contributions_merged, 1);
  EXPECT_EQ(member.tokens_merged, 1000);

  ASSERT_OK(run.Contribute(Contribution(a, 1)));
  ASSERT_OK(run.Contribute(Contribution(b, 1)));
  EXPECT_THAT(Take(run), IsEmpty());
  // Whoever has left by then is merged all the same.
  ASSERT_OK(run.Leave(b));
  Take(run);
  run.Fail(absl::ResourceExhaustedError("disk full"));
  EXPECT_THAT(Take(run),
              ElementsAre("run_suspended [] fragment 0 stays at version 1: "
                          "RESOURCE_EXHAUSTED: disk full",
                          "view"));
  run.Advance(absl::Seconds(5));
  run.Tick();
  run.Fail(absl::InternalError("another reason"));
  EXPECT_THAT(Take(run), ElementsAre("view"));
  EXPECT_EQ(run.core().message(), "INTERNAL: another reason");
  // A pause is what a person has asked for, and comes first.
  ASSERT_OK(run.core().Pause("maintenance", run.effects()));
  EXPECT_EQ(run.core().run_state(), v1::PAUSED);
  EXPECT_EQ(run.core().message(), "maintenance");
  ASSERT_OK(run.core().Resume(run.now(), run.effects()));
  run.Advance(absl::Seconds(5));
  run.Tick();
  // A run that is paused during its last outer step is finished.
  ASSERT_OK(run.core().Pause("", run.effects()));
  Take(run);
  run.Commit();
  EXPECT_EQ(run.core().run_state(), v1::FINISHED);
  const Member& gone = run.core().membership().members().at("b");
  EXPECT_EQ(gone.contributions_merged, 2);
  EXPECT_EQ(gone.tokens_merged, 2000);
  EXPECT_EQ(run.effects().events.back().text,
            "every fragment has reached its last version");
}

TEST(CoordinatorEffects, OfOperatorsRequests) {
  CoordinatorDriver run({});
  const v1::IslandIdentity a = run.Join("a");
  Take(run);
  ASSERT_OK(run.core().Pause("maintenance", run.effects()));
  EXPECT_THAT(
      Take(run),
      ElementsAre("flags started paused: maintenance",
                  "run_paused [] the run is paused: maintenance", "view"));
  ASSERT_OK(run.core().Pause("again", run.effects()));
  EXPECT_THAT(Take(run), IsEmpty());
  ASSERT_OK(run.Contribute(Contribution(a, 0)));
  EXPECT_THAT(run.orders(), IsEmpty());
  ASSERT_OK(run.core().Resume(run.now(), run.effects()));
  EXPECT_THAT(run.effects().outer_steps, SizeIs(1)) << "without a tick";
  EXPECT_THAT(
      Take(run),
      ElementsAre("flags started: ", "run_resumed [] the run goes on", "view"));
  ASSERT_OK(run.core().Resume(run.now(), run.effects()));
  EXPECT_THAT(Take(run), IsEmpty());
  ASSERT_OK(run.core().Pause("", run.effects()));
  EXPECT_THAT(Take(run),
              ElementsAre("flags started paused: paused by an operator",
                          "run_paused [] the run is paused", "view"));

  ASSERT_OK(run.core().Drain("a", "upgrade", run.effects()));
  EXPECT_THAT(Take(run),
              ElementsAre("changed a/1 draining",
                          "island_draining [a] island a is asked to leave: "
                          "upgrade",
                          "view"));
  ASSERT_OK(run.core().Drain("a", "", run.effects()));
  EXPECT_THAT(Take(run), IsEmpty());
  ASSERT_OK(run.core().Evict("a", "hangs", run.now(), run.effects()));
  EXPECT_THAT(Take(run),
              ElementsAre("ended a/1 EVICTED at 0s: by an operator: hangs",
                          "account a/1 process 1 has 0 reported 0",
                          "island_evicted [a] island a (incarnation 1) was "
                          "evicted: by an operator: hangs",
                          "view"));
  // It is no longer there.
  EXPECT_THAT(run.core().Drain("a", "", run.effects()),
              StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(run.core().Evict("a", "", run.now(), run.effects()),
              StatusIs(absl::StatusCode::kNotFound));
}

// Two islands, of which b has handed in what does not pass.
class QuarantineEffects : public testing::Test {
 protected:
  void SetUp() override {
    a_ = run_.Join("a");
    b_ = run_.Join("b");
    run_.Advance(absl::Seconds(2));
    Take(run_);
  }
  // Puts b's contribution into quarantine, and takes the effects.
  void Hold(double norm) {
    ASSERT_FALSE(run_.Contribute(Contribution(b_, 0), norm).ok());
    Take(run_);
  }
  absl::StatusOr<ContributionKey> Admit() {
    return run_.core().Admit(1, run_.now(), run_.effects());
  }

  const std::string what_ =
      "the contribution of island b (incarnation 1) to fragment 0, 1000 tokens";
  const std::string failed_ =
      "the outer step cannot be done with it (not finite)";
  CoordinatorDriver run_{{.min_islands = 2, .parameter_norm = 1}};
  v1::IslandIdentity a_;
  v1::IslandIdentity b_;
};

TEST_F(QuarantineEffects, OfHoldingAndDropping) {
  ASSERT_FALSE(run_.Contribute(Contribution(b_, 0), kNaN).ok());
  const std::string why = "a value of it is not finite";
  EXPECT_THAT(
      Take(run_),
      ElementsAre(
          absl::StrCat("ended b/1 DIVERGED at 2s: of its contribution to "
                       "fragment 0, ",
                       why),
          "account b/1 process 1 has 0 reported 0",
          absl::StrCat("quarantine 1 b/1 HELD inadmissible norm nan at 2s: ",
                       why),
          absl::StrCat("contribution_quarantined [b] ", what_,
                       ", is in quarantine as number 1: ", why),
          absl::StrCat("island_evicted [b] island b (incarnation 1) was "
                       "evicted: of its contribution to fragment 0, ",
                       why),
          "discard b/1 f0 v0", "view"));
  ASSERT_OK(run_.core().Drop(1, run_.effects()));
  EXPECT_THAT(
      Take(run_),
      ElementsAre(
          absl::StrCat("quarantine 1 b/1 DROPPED inadmissible norm nan at 2s: ",
                       why),
          absl::StrCat("contribution_dropped [b] ", what_,
                       ", is dropped from the quarantine")));
  ASSERT_OK(run_.core().Drop(1, run_.effects()));
  EXPECT_THAT(Take(run_), IsEmpty());
}

TEST_F(QuarantineEffects, OfAdmitting) {
  Hold(100);
  ASSERT_OK(run_.Leave(a_));
  Take(run_);
  ASSERT_OK_AND_ASSIGN(const ContributionKey key, Admit());
  ASSERT_THAT(run_.effects().outer_steps, SizeIs(1)) << "nobody is awaited";
  const OuterStepOrder order = run_.effects().outer_steps[0];
  EXPECT_THAT(order.norms, ElementsAre(100));
  EXPECT_THAT(order.admitted, ElementsAre(1));
  EXPECT_THAT(Take(run_), ElementsAre(absl::StrCat(
                              "contribution_admitted [b] ", what_,
                              ", goes from the quarantine into round 1")));
  EXPECT_THAT(Admit(), IsOkAndHolds(key));
  EXPECT_THAT(Take(run_), IsEmpty()) << "asked for twice";
  // It is not handed in a second time.
  const v1::TokenLedger ledger = run_.core().IslandLedger({"b", 1});
  EXPECT_EQ(ledger.quarantined(), 1000);
  EXPECT_EQ(ledger.reported(), 1000);
  EXPECT_EQ(ledger.pending(), 0);

  OuterStepOutcome outcome;
  outcome.head.set_version(1);
  run_.core().OuterStepCommitted(order, outcome, run_.now(), run_.effects());
  EXPECT_EQ(LinesOf(run_.effects())[1].substr(0, 30),
            "quarantine 1 b/1 ADMITTED norm");
}

TEST_F(QuarantineEffects, OfSettingAsideTheLargest) {
  ASSERT_OK(run_.Contribute(Contribution(a_, 0), 9));
  ASSERT_OK(run_.Contribute(Contribution(b_, 0), 9.5));
  Take(run_);
  run_.Fail(absl::OutOfRangeError("not finite"));
  EXPECT_THAT(
      Take(run_),
      ElementsAre(
          absl::StrCat("ended b/1 DIVERGED at 2s: of its contribution to "
                       "fragment 0, ",
                       failed_),
          "account b/1 process 1 has 0 reported 0",
          absl::StrCat("quarantine 1 b/1 HELD norm 9.5 at 2s: ", failed_),
          absl::StrCat("contribution_quarantined [b] ", what_,
                       ", is in quarantine as number 1: ", failed_),
          absl::StrCat("island_evicted [b] island b (incarnation 1) was "
                       "evicted: of its contribution to fragment 0, ",
                       failed_),
          "discard b/1 f0 v0", "view"));
  EXPECT_THAT(run_.orders(), SizeIs(1));
}

TEST_F(QuarantineEffects, OfSettingAsideTheFirstOfEquals) {
  ASSERT_OK(run_.Contribute(Contribution(a_, 0), 9));
  ASSERT_OK(run_.Contribute(Contribution(b_, 0), 9));
  run_.Fail(absl::OutOfRangeError("not finite"));
  EXPECT_EQ(run_.core().quarantine().at(1).header.identity().island_id(), "a");
}

TEST_F(QuarantineEffects, OfSettingAsideWhatWasAdmitted) {
  Hold(100);
  ASSERT_OK(Admit());
  ASSERT_OK(run_.Contribute(Contribution(a_, 0)));
  Take(run_);
  run_.Fail(absl::OutOfRangeError("not finite"));
  EXPECT_THAT(
      Take(run_),
      ElementsAre(absl::StrCat("quarantine 1 b/1 HELD inadmissible norm 100 at "
                               "2s: ",
                               failed_),
                  "discard b/1 f0 v0", "view"));
  EXPECT_THAT(Admit().status(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                         testing::HasSubstr(failed_)));
  EXPECT_THAT(run_.orders(), SizeIs(1));
}

TEST_F(QuarantineEffects, OfLeavingOutWhoIsGone) {
  ASSERT_OK(run_.Contribute(Contribution(b_, 0), 9.5));
  ASSERT_OK(run_.Leave(b_));
  ASSERT_OK(run_.Contribute(Contribution(a_, 0), 9));
  const v1::IslandIdentity b = run_.Join("b");
  Take(run_);
  run_.Fail(absl::OutOfRangeError("not finite"));
  EXPECT_THAT(
      Take(run_),
      ElementsAre("account b/1 process 1 has 0 reported 0",
                  "account b/2 process 1 has 0 reported 0", "late b/1 f0 v0",
                  absl::StrCat("contribution_late [b] the contribution of "
                               "island b (incarnation 1) is left out of round "
                               "1 of fragment 0: ",
                               failed_),
                  "discard b/1 f0 v0", "view"));
  EXPECT_OK(run_.core().Check(b));
}

}  // namespace
}  // namespace causeway
