// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Tests all effects of each event, line by line: what is made durable, which
// events people see, which uploads are discarded, and whether islands get a new
// view.
#include <cstdint>
#include <string>
#include <vector>

#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/rules/coordinator.h"
#include "server/rules/testing/coordinator_driver.h"
#include "server/rules/testing/effects_lines.h"

namespace causeway {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

TEST(CoordinatorEffects, OfJoins) {
  CoordinatorDriver run({.min_islands = 2, .fragments = 2});
  const v1::IslandIdentity a = run.Join("a", 5);
  EXPECT_THAT(
      TakeLines(run),
      ElementsAre(
          "joined a/1 place 0 not ready", "changed a/1 first 0,0",
          "account a/1 process 5 has 0 reported 0,0",
          "island_joined [a] island a joined (incarnation 1, shard 0) at "
          "step 0",
          "view"));
  run.Join("b", 6);
  EXPECT_THAT(
      TakeLines(run),
      ElementsAre(
          "joined b/1 place 1 not ready", "changed b/1 first 0,0",
          "account b/1 process 6 has 0 reported 0,0", "flags started: ",
          "island_joined [b] island b joined (incarnation 1, shard 1) at "
          "step 0",
          "run_started [] training starts with 2 islands", "view"));
  run.Join("b", 6);
  EXPECT_THAT(TakeLines(run), IsEmpty()) << "a retry";

  ASSERT_OK(run.Heartbeat(a, 5));
  EXPECT_THAT(TakeLines(run), IsEmpty());
  ASSERT_OK_AND_ASSIGN(const v1::JoinResponse response, run.TryJoin("c", 7));
  v1::JoinResponse expected;
  expected.mutable_identity()->set_run_id(CoordinatorDriver::kRunId);
  expected.mutable_identity()->set_island_id("c");
  expected.mutable_identity()->set_incarnation(1);
  expected.mutable_identity()->set_epoch(1);
  *expected.mutable_config() = run.core().options().config;
  *expected.mutable_plan() = run.core().options().plan;
  for (const uint32_t fragment : {0, 1}) {
    *expected.add_heads() = run.core().heads()[fragment].head;
    expected.add_first_contribution_version(Member::kNotExpected);
  }
  expected.set_run_step(5);
  expected.set_shards(2);
  expected.set_data_order(1);
  expected.set_run_state(v1::RUNNING);
  EXPECT_EQ(response.DebugString(), expected.DebugString());
  // The joiner keeps the position, even if it is never heard of again.
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
  TakeLines(run);
  run.Advance(absl::Seconds(2));
  ASSERT_OK(run.Leave(a));
  EXPECT_THAT(TakeLines(run),
              ElementsAre("ended a/1 LEFT at 2s: finished",
                          "account a/1 process 1 has 300 reported 300",
                          "island_left [a] island a (incarnation 1) left: "
                          "finished",
                          "discard a/1 f0 v0", "view"));
  // b's contributions stay.
  v1::LeaveRequest leave;
  *leave.mutable_identity() = b;
  ASSERT_OK(run.core().Leave(leave, run.now(), run.effects()));
  EXPECT_THAT(TakeLines(run),
              ElementsAre("ended b/1 LEFT at 2s: left",
                          "account b/1 process 1 has 0 reported 0",
                          "island_left [b] island b (incarnation 1) left: "
                          "left",
                          "view"));
  run.Advance(absl::Seconds(8.5));
  run.Tick();
  EXPECT_THAT(TakeLines(run),
              ElementsAre("ended c/1 EVICTED at 10.5s: no heartbeat for 10.5 s",
                          "account c/1 process 1 has 0 reported 0",
                          "island_evicted [c] island c (incarnation 1) was "
                          "evicted: no heartbeat for 10.5 s",
                          "discard c/1 f0 v0", "view"));
  EXPECT_THAT(run.closed_rounds(), SizeIs(1)) << "nobody else is awaited";
}

// No contribution has shown the divergence.
TEST(CoordinatorEffects, OfAnIslandThatSaysThatItHasDiverged) {
  CoordinatorDriver run({});
  v1::LeaveRequest leave;
  *leave.mutable_identity() = run.Join("a");
  leave.mutable_progress()->set_loss(std::nan(""));
  leave.set_reason("the loss is not finite");
  TakeLines(run);
  ASSERT_OK(run.core().Leave(leave, run.now(), run.effects()));
  EXPECT_THAT(TakeLines(run),
              Contains("ended a/1 DIVERGED at 0s: the loss is not finite"));
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
  TakeLines(run);
  ASSERT_OK(join(5, 5));
  EXPECT_THAT(TakeLines(run), IsEmpty()) << "it is not dead";
  ASSERT_OK(join(6, 5));
  EXPECT_THAT(
      TakeLines(run),
      ElementsAre("joined a/2 place 0 not ready",
                  "ended a/1 EVICTED at 0s: its process was restarted",
                  "account a/1 process 5 has 0 reported 0",
                  "account a/2 process 6 has 0 reported 0",
                  "island_evicted [a] island a (incarnation 1) was evicted: "
                  "its process was restarted",
                  "island_joined [a] island a joined (incarnation 2, shard "
                  "0) at step 0",
                  "discard a/1 f0 v0", "view"));
  // An incarnation ends once.
  ASSERT_OK(run.core().Evict("a", "", run.now(), run.effects()));
  TakeLines(run);
  ASSERT_OK(join(7, 6));
  EXPECT_THAT(run.effects().ended, IsEmpty());
}

TEST(CoordinatorEffects, OfAProcessThatComesBack) {
  CoordinatorDriver run({});
  const v1::IslandIdentity a = run.Join("a", 5);
  ASSERT_OK(run.Heartbeat(a, 3, 300));
  ASSERT_OK(run.Leave(a));
  TakeLines(run);
  run.Join("a", 5);
  EXPECT_THAT(run.effects().accounts, SizeIs(2));
  const std::vector<std::string> lines = TakeLines(run);
  EXPECT_EQ(lines[2], "account a/1 process 5 has 300 reported 0");
  EXPECT_EQ(lines[3], "account a/2 process 5 has 300 reported 300");
}

TEST(CoordinatorEffects, OfTroubleBetweenRanks) {
  CoordinatorDriver run({});
  const v1::IslandIdentity a = run.Join("a");
  TakeLines(run);
  v1::IslandProgress progress;
  v1::RankTrouble& trouble = *progress.mutable_rank_trouble();
  trouble.set_kind(v1::RankTrouble::SLOW_LINK);
  trouble.set_text("rank 0 sends slowly");
  ASSERT_OK(run.Heartbeat(a, progress));
  EXPECT_THAT(TakeLines(run),
              ElementsAre("link_slow [a] island a: rank 0 sends slowly"));
  trouble.set_to_rank(2);
  ASSERT_OK(run.Heartbeat(a, progress));
  EXPECT_THAT(TakeLines(run), SizeIs(1)) << "another link";
  progress.clear_rank_trouble();
  ASSERT_OK(run.Heartbeat(a, progress));
  EXPECT_THAT(TakeLines(run),
              ElementsAre("ranks_even [a] island a: no rank and no "
                          "link is slow any more"));
}

TEST(CoordinatorEffects, OfContributionsThatAreNotMerged) {
  CoordinatorDriver run({.min_islands = 2, .configure = [](auto& config) {
                           config.mutable_membership()->set_grace_seconds(0);
                         }});
  const v1::IslandIdentity a = run.Join("a");
  const v1::IslandIdentity b = run.Join("b");
  TakeLines(run);
  ASSERT_OK(run.Contribute(Contribution(a, 0)));
  EXPECT_THAT(TakeLines(run), IsEmpty());
  ASSERT_OK_AND_ASSIGN(v1::ContributeResponse response,
                       run.Complete(Contribution(b, 0)));
  EXPECT_EQ(response.verdict(), v1::ContributeResponse::LATE);
  const auto expected =
      ElementsAre("late b/1 f0 v0",
                  "contribution_late [b] round 1 of fragment 0 closed without "
                  "island b; its progress goes into its next contribution",
                  "discard b/1 f0 v0");
  EXPECT_THAT(TakeLines(run), expected);

  // The same happens to an island that the run leaves out on purpose.
  CoordinatorDriver dropping(
      {.min_islands = 2, .configure = [](auto& config) {
         config.mutable_membership()->set_drop_contributions(1);
       }});
  dropping.Join("a");
  const v1::IslandIdentity left_out = dropping.Join("b");
  TakeLines(dropping);
  ASSERT_OK_AND_ASSIGN(response, dropping.Complete(Contribution(left_out, 0)));
  EXPECT_EQ(response.verdict(), v1::ContributeResponse::LATE);
  EXPECT_THAT(TakeLines(dropping), expected);
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
  TakeLines(run);
  run.Advance(absl::Seconds(3));
  run.Commit();
  EXPECT_THAT(TakeLines(run),
              ElementsAre("account a/1 process 1 has 1000 reported 1000",
                          "account b/1 process 1 has 1000 reported 1000",
                          "round_merged [] fragment 0 is at version 1: merged "
                          "a, b, norm 1, similarity 0.500, 1.000 s",
                          "discard a/1 f0 v0", "discard b/1 f0 v0", "view"));
  EXPECT_EQ(run.core().heads()[0].merged_norm, 1);
  EXPECT_EQ(run.core().heads()[0].similarity, 0.5);
  EXPECT_EQ(run.core().heads()[0].committed_at, run.now());
  const Member& member = run.core().membership().members().at("a");
  EXPECT_EQ(member.contributions_merged, 1);
  EXPECT_EQ(member.tokens_merged, 1000);

  ASSERT_OK(run.Contribute(Contribution(a, 1)));
  ASSERT_OK(run.Contribute(Contribution(b, 1)));
  EXPECT_THAT(TakeLines(run), IsEmpty());
  // An island that has left by then is merged, too.
  ASSERT_OK(run.Leave(b));
  TakeLines(run);
  run.Fail(absl::ResourceExhaustedError("disk full"));
  EXPECT_THAT(TakeLines(run),
              ElementsAre("run_suspended [] fragment 0 stays at version 1: "
                          "RESOURCE_EXHAUSTED: disk full",
                          "view"));
  run.Advance(absl::Seconds(5));
  run.Tick();
  run.Fail(absl::InternalError("another reason"));
  EXPECT_THAT(TakeLines(run), ElementsAre("view"));
  EXPECT_EQ(run.core().message(), "INTERNAL: another reason");
  // A pause comes first, because a person has asked for it.
  ASSERT_OK(run.core().Pause("maintenance", run.now(), run.effects()));
  EXPECT_EQ(run.core().run_state(), v1::PAUSED);
  EXPECT_EQ(run.core().message(), "maintenance");
  ASSERT_OK(run.core().Resume(run.now(), run.effects()));
  run.Advance(absl::Seconds(5));
  run.Tick();
  // A run that is paused during its last outer step is finished.
  ASSERT_OK(run.core().Pause("", run.now(), run.effects()));
  TakeLines(run);
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
  TakeLines(run);
  ASSERT_OK(run.core().Pause("maintenance", run.now(), run.effects()));
  EXPECT_THAT(
      TakeLines(run),
      ElementsAre("flags started paused: maintenance",
                  "run_paused [] the run is paused: maintenance", "view"));
  for (const char* reason : {"maintenance", ""}) {
    ASSERT_OK(run.core().Pause(reason, run.now(), run.effects()));
    EXPECT_THAT(TakeLines(run), IsEmpty());
  }
  ASSERT_OK(run.core().Pause("repair", run.now(), run.effects()));
  EXPECT_THAT(TakeLines(run),
              ElementsAre("flags started paused: repair",
                          "run_paused [] the run is paused: repair", "view"));
  ASSERT_OK(run.Contribute(Contribution(a, 0)));
  EXPECT_THAT(run.closed_rounds(), IsEmpty());
  ASSERT_OK(run.core().Resume(run.now(), run.effects()));
  EXPECT_THAT(run.effects().outer_steps, SizeIs(1)) << "without a tick";
  EXPECT_THAT(TakeLines(run),
              ElementsAre("flags started: ", "run_resumed [] the run continues",
                          "view"));
  ASSERT_OK(run.core().Resume(run.now(), run.effects()));
  EXPECT_THAT(TakeLines(run), IsEmpty());
  ASSERT_OK(run.core().Pause("", run.now(), run.effects()));
  EXPECT_THAT(TakeLines(run),
              ElementsAre("flags started paused: paused by an operator",
                          "run_paused [] the run is paused", "view"));

  ASSERT_OK(run.core().Drain("a", "upgrade", run.effects()));
  EXPECT_THAT(TakeLines(run),
              ElementsAre("changed a/1 draining first 0",
                          "island_draining [a] island a is asked to leave: "
                          "upgrade",
                          "view"));
  ASSERT_OK(run.core().Drain("a", "", run.effects()));
  EXPECT_THAT(TakeLines(run), IsEmpty());
  ASSERT_OK(run.core().Evict("a", "hangs", run.now(), run.effects()));
  EXPECT_THAT(TakeLines(run),
              ElementsAre("ended a/1 EVICTED at 0s: by an operator: hangs",
                          "account a/1 process 1 has 0 reported 0",
                          "island_evicted [a] island a (incarnation 1) was "
                          "evicted: by an operator: hangs",
                          "view"));
  // It is no longer there.
  EXPECT_THAT(run.core().Drain("a", "", run.effects()), IsAlreadyExists());
  EXPECT_THAT(run.core().Evict("a", "", run.now(), run.effects()),
              IsAlreadyExists());
}

}  // namespace
}  // namespace causeway
