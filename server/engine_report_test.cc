// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Tests every field of an engine's reports about one run, also after a restart,
// and that operators' reasons are reported.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/os/file.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "server/engine.h"
#include "server/testing/engine_driver.h"

namespace causeway {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

template <typename Message>
Message Parse(const std::string& text) {
  Message message;
  CHECK(google::protobuf::TextFormat::ParseFromString(text, &message)) << text;
  return message;
}

// Four islands: b's contribution is in quarantine, c was merged and has left, a
// is merged and in the open round of the same fragment, and d has done nothing.
class EngineReportTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK(run_.Start(config_));
    a_ = Join("a");
    const v1::IslandIdentity b = Join("b");
    const v1::IslandIdentity c = Join("c");
    Join("d");
    ASSERT_OK_AND_ASSIGN(const std::vector<float> anchor,
                         run_.Fetch(a_, kFragment, 0));
    anchor_ = anchor;
    run_.AdvanceSeconds(2);
    Report(c, 6, 600, 3);
    Report(a_, 8, 900, 2);
    const TestContribution outlier =
        run_.MakeContribution(b, kFragment, 0, anchor, Shifted(anchor, 1e6));
    ASSERT_FALSE(run_.Contribute(outlier).ok());
    TestContribution partial = run_.MakeContribution(
        c, kFragment, 0, anchor, Shifted(anchor, 0.02f), /*tokens=*/500);
    partial.header.set_partial(true);
    ASSERT_OK(run_.Contribute(partial));
    ASSERT_OK(run_.Leave(c));
    TestContribution restored =
        run_.MakeContribution(a_, kFragment, 0, anchor, Shifted(anchor, 0.01f));
    restored.header.set_restored_tokens(400);
    ASSERT_OK(run_.Contribute(restored));
    received_ =
        outlier.bytes.size() + partial.bytes.size() + restored.bytes.size();
    ASSERT_OK(run_.engine().Evict(
        Parse<v1::EvictIslandRequest>("island_id: 'd' reason: 'hangs'")));
    ASSERT_TRUE(run_.AwaitVersion(kFragment, 1));
    ASSERT_OK(run_.engine().Drain(
        Parse<v1::DrainIslandRequest>("island_id: 'a' reason: 'upgrade'")));
    ASSERT_OK(run_.engine().Pause(
        Parse<v1::PauseRunRequest>("reason: 'maintenance'")));
    // The run's health is looked at often; a pause counts from the first look.
    run_.engine().GetRun();
    run_.AdvanceSeconds(3);
  }

  v1::IslandIdentity Join(const std::string& island) {
    v1::JoinRequest request;
    request.set_island_id(island);
    request.set_instance_id(1);
    request.set_description("host of " + island);
    const auto response = run_.engine().Join(request);
    CHECK(response.ok()) << response.status();
    v1::SessionRequest ready;
    *ready.mutable_identity() = response->identity();
    ready.mutable_progress()->set_ready(true);
    CHECK(run_.engine().Heartbeat(ready).ok());
    return response->identity();
  }
  void Report(const v1::IslandIdentity& island, uint64_t run_step,
              uint64_t tokens, double loss) {
    v1::SessionRequest request;
    *request.mutable_identity() = island;
    v1::IslandProgress& progress = *request.mutable_progress();
    progress.set_run_step(run_step);
    progress.set_tokens(tokens);
    progress.set_tokens_per_second(100);
    progress.set_step_seconds(loss);
    progress.set_loss(loss);
    ASSERT_OK(run_.engine().Heartbeat(request));
  }

  static constexpr uint32_t kFragment = 1;
  const v1::RunConfig config_ = TestRunConfig(
      "training { total_steps: 40 } membership { min_islands: 4 max_islands: 4 "
      "lease_seconds: 3600 } data { shards: 4 } "
      "synchronization { overlap_steps: 1 inner_step_shares: EVERYBODY } "
      "outer_optimizer { learning_rate: 0.8 momentum: 0.2 }");
  EngineDriver run_;
  v1::IslandIdentity a_;
  // The values of version 0 of kFragment, and the bytes of all contributions.
  std::vector<float> anchor_;
  uint64_t received_ = 0;
};

TEST_F(EngineReportTest, OfTheRun) {
  run_.engine().bytes_sent() += 30;
  v1::RunStatus run = run_.engine().GetRun();
  EXPECT_GT(run.memory_bytes(), 1 << 20);
  run.clear_memory_bytes();
  run.clear_storage();
  // The clock has stood still meanwhile.
  EXPECT_EQ(run.outer_steps().counts(0), 1);
  EXPECT_EQ(run.commits().counts(0), 1);
  run.clear_outer_steps();
  run.clear_commits();
  // The quarantine, the island that diverged, and the operator who holds the
  // run (server/rules/run_health_test.cc).
  EXPECT_EQ(run.attention_size(), 3);
  run.clear_attention();
  v1::RunStatus expected = Parse<v1::RunStatus>(R"pb(
    run_id: "test-00000007"
    state: PAUSED
    message: "maintenance"
    started_at { seconds: 1 }
    # The first round of fragment 0 is sent at step 10, and is still open.
    run_step: 9
    total_steps: 40
    rounds: 1
    total_rounds: 8
    live_islands: 1
    tokens_per_second: 100
    loss: 2
    bytes_sent: 30
    # Of a, 900 tokens in each fragment and 400 of its checkpoint; 1000 of b;
    # of c, 600 in each fragment.
    ledger {
      reported: 4400
      merged: 1000
      partial_merged: 500
      expired: 700
      quarantined: 1000
      pending: 1200
    }
    # The islands that have contributed were live in the round.
    participation { live: 3 contributing: 3 merged: 2 }
    quarantined: 1
    islands_needed: 1
    last_round_at { seconds: 3 }
    epoch: 1
    time { seconds: 6 }
  )pb");
  *expected.mutable_config() = config_;
  const v1::ListFragmentsResponse fragments = run_.engine().ListFragments();
  const uint64_t parameters = fragments.fragments(0).size() + anchor_.size();
  expected.set_parameters(parameters);
  expected.set_tokens_merged(1500 * anchor_.size() / parameters);
  expected.set_bytes_received(received_);
  // Two islands send and receive 2 bytes a value in each of 10 steps.
  expected.set_bytes_data_parallel(2 * 10 * 2 * 2 * anchor_.size());
  EXPECT_EQ(run.DebugString(), expected.DebugString());
}

TEST_F(EngineReportTest, OfIslands) {
  const v1::ListIslandsResponse islands = run_.engine().ListIslands(true);
  ASSERT_EQ(islands.islands_size(), 4);
  EXPECT_EQ(islands.islands(0).DebugString(),
            Parse<v1::IslandStatus>(R"pb(
              island_id: "a"
              incarnation: 1
              state: LIVE
              description: "host of a"
              joined_at { seconds: 1 }
              heartbeat_age_seconds: 3
              progress {
                run_step: 8
                ready: true
                tokens: 900
                tokens_per_second: 100
                step_seconds: 2
                loss: 2
              }
              contributions_merged: 1
              tokens_merged: 500
              ledger { reported: 2200 merged: 1000 pending: 1200 }
              draining: true
              inner_steps_per_round: 10
            )pb")
                .DebugString());
  EXPECT_EQ(islands.islands(2).island_id(), "c");
  EXPECT_EQ(islands.islands(2).shard(), 2);
  EXPECT_EQ(islands.islands(2).heartbeat_age_seconds(), 3);
  EXPECT_EQ(islands.islands(1).state(), v1::IslandStatus::DIVERGED);
  EXPECT_EQ(islands.islands(3).reason(), "by an operator: hangs");
}

TEST_F(EngineReportTest, OfFragments) {
  ASSERT_OK(run_.engine().Resume());
  // The next round is the first that waits for it.
  Join("e");
  const auto contribute = [&](uint64_t version, uint64_t tokens) {
    ASSERT_OK_AND_ASSIGN(const std::vector<float> anchor,
                         run_.Fetch(a_, kFragment, version));
    ASSERT_OK(run_.Contribute(run_.MakeContribution(
        a_, kFragment, version, anchor, Shifted(anchor, 0.01f), tokens)));
  };
  // The contributions of a and c differ by a factor.
  EXPECT_NEAR(run_.engine().ListFragments().fragments(kFragment).similarity(),
              1, 1e-6);
  contribute(1, 1000);
  ASSERT_TRUE(run_.AwaitVersion(kFragment, 2));
  contribute(2, 200);

  v1::FragmentStatus fragment =
      run_.engine().ListFragments().fragments(kFragment);
  EXPECT_EQ(fragment.head().DebugString(), run_.Head(kFragment).DebugString());
  // The pseudo-gradient is minus the change of the only merged island.
  double squares = 0;
  for (uint64_t i = 0; i < anchor_.size(); ++i) {
    squares += std::pow(0.01 * static_cast<double>(i % 7 + 1), 2);
  }
  EXPECT_NEAR(fragment.merged_norm(), std::sqrt(squares), 1e-4);
  EXPECT_EQ(fragment.size(), anchor_.size());
  EXPECT_GT(fragment.tensors(), 0);
  fragment.clear_head();
  fragment.clear_merged_norm();
  fragment.clear_size();
  fragment.clear_tensors();
  EXPECT_EQ(fragment.DebugString(),
            Parse<v1::FragmentStatus>(R"pb(
              final_version: 4
              send_offset_steps: 5
              contributed: "a"
              awaited: "e"
              participation { live: 2 contributing: 1 merged: 1 }
              ledger {
                reported: 3800
                merged: 2000
                partial_merged: 500
                expired: 100
                quarantined: 1000
                pending: 200
              }
              committed_at { seconds: 6 }
              last_round {
                fragment: 1
                version: 2
                sent_at { seconds: 6 }
                merged_at { seconds: 6 }
              }
              sent_at { seconds: 6 }
            )pb")
                .DebugString());
  // Version 0 is as old as the run.
  EXPECT_EQ(run_.engine().ListFragments().fragments(0).committed_at().seconds(),
            1);
}

TEST_F(EngineReportTest, OfEvents) {
  ASSERT_OK_AND_ASSIGN(const std::vector<v1::Event> events,
                       run_.engine().log().EventsAfter(0, 1000));
  std::vector<std::string> lines;
  uint64_t id = 0;
  for (const v1::Event& event : events) {
    EXPECT_EQ(event.id(), ++id);
    lines.push_back(absl::StrCat(event.time().seconds(), " ", event.kind(), " ",
                                 event.island_id()));
  }
  EXPECT_THAT(
      lines,
      ElementsAre("1 coordinator_started ", "1 island_joined a",
                  "1 island_joined b", "1 island_joined c", "1 island_joined d",
                  "1 run_started ", "3 contribution_quarantined b",
                  "3 island_evicted b", "3 island_left c", "3 island_evicted d",
                  "3 round_merged ", "3 island_draining a", "3 run_paused "));
  EXPECT_EQ(events[0].text(), "new run test-00000007");
  EXPECT_EQ(events[11].text(), "island a is asked to leave: upgrade");
}

TEST_F(EngineReportTest, OfTheQuarantine) {
  v1::QuarantinedContribution held =
      run_.engine().ListQuarantine(false).contributions(0);
  EXPECT_GT(held.norm(), 1e6);
  // The norm of the fragment's parameters is the usual norm.
  double squares = 0;
  for (const float value : anchor_) squares += double{value} * value;
  EXPECT_THAT(
      held.reason(),
      HasSubstr(absl::StrFormat(
          "times that of the parameters, %.4g",
          std::max(std::sqrt(squares),
                   0.1 * std::sqrt(static_cast<double>(anchor_.size()))))));
  held.clear_norm();
  held.clear_reason();
  EXPECT_EQ(held.DebugString(), Parse<v1::QuarantinedContribution>(R"pb(
                                  id: 1
                                  state: HELD
                                  island_id: "b"
                                  incarnation: 1
                                  fragment: 1
                                  tokens: 1000
                                  inner_steps: 10
                                  quarantined_at { seconds: 3 }
                                  admissible: true
                                )pb")
                                    .DebugString());
  // Listeners are notified of every event, although no island's view changes.
  std::atomic<int> told = 0;
  const uint64_t listener = run_.engine().news().Add([&told] { ++told; });
  ASSERT_OK(run_.engine().Drop(1));
  EXPECT_EQ(told, 1);
  run_.engine().news().Remove(listener);
  ASSERT_OK(run_.engine().Resume());
  EXPECT_EQ(told, 1);
  EXPECT_EQ(run_.engine().ListQuarantine(false).contributions_size(), 0);
  EXPECT_EQ(run_.engine().ListQuarantine(true).contributions(0).state(),
            v1::QuarantinedContribution::DROPPED);
}

// A restart forgets only what counts from the start of the process, and what
// islands report again.
TEST_F(EngineReportTest, IsTheSameAfterARestart) {
  const auto run = [&] {
    v1::RunStatus run = run_.engine().GetRun();
    run.clear_started_at();
    run.clear_memory_bytes();
    run.clear_bytes_received();
    run.clear_bytes_data_parallel();
    run.clear_run_step();
    run.clear_loss();
    run.clear_tokens_per_second();
    run.clear_storage();
    run.clear_outer_steps();
    run.clear_commits();
    run.clear_time();
    return run.DebugString();
  };
  const auto islands = [&] {
    v1::ListIslandsResponse response = run_.engine().ListIslands(true);
    for (v1::IslandStatus& island : *response.mutable_islands()) {
      EXPECT_LE(island.heartbeat_age_seconds(), 5);
      island.clear_heartbeat_age_seconds();
      island.clear_progress();
      island.clear_is_unheard();
      island.clear_inner_steps_per_round();
    }
    return response.DebugString();
  };
  const auto list_fragments = [&] {
    v1::ListFragmentsResponse response = run_.engine().ListFragments();
    for (v1::FragmentStatus& fragment : *response.mutable_fragments()) {
      fragment.clear_last_round();
      fragment.clear_similarity();
    }
    return response.DebugString();
  };
  // The open rounds are lost, but have no contributions. The tokens that a has
  // reported are made durable at its merges.
  const std::string run_before = run();
  const std::string islands_before = islands();
  const std::string fragments = list_fragments();
  const std::string held = run_.engine().ListQuarantine(true).DebugString();
  run_.AdvanceSeconds(100);
  ASSERT_OK(run_.Start(config_));
  EXPECT_EQ(run(), run_before);
  EXPECT_EQ(islands(), islands_before);
  EXPECT_EQ(list_fragments(), fragments);
  EXPECT_EQ(run_.engine().ListQuarantine(true).DebugString(), held);
  EXPECT_EQ(run_.engine().GetRun().started_at().seconds(), 106);
  ASSERT_OK_AND_ASSIGN(const std::vector<v1::Event> events,
                       run_.engine().log().EventsAfter(0, 1000));
  EXPECT_EQ(events.back().text(), "continuing run test-00000007");
}

TEST_F(EngineReportTest, NothingOfADecidedContributionIsKept) {
  const std::string file = run_.state_dir() + "/quarantine/1";
  ASSERT_OK(ReadFile(file));
  ASSERT_OK(run_.engine().Drop(1));
  // This is as after a crash between the decision and the removal.
  ASSERT_OK(WriteFileAtomically(file, {absl::string_view("bytes")}));
  ASSERT_OK(run_.Start(config_));
  EXPECT_THAT(ReadFile(file), IsNotFound());
  // Bytes that can never be merged are not written.
  ASSERT_OK(run_.engine().Resume());
  ASSERT_OK_AND_ASSIGN(std::vector<float> diverged,
                       run_.Fetch(a_, kFragment, 1));
  const std::vector<float> anchor = diverged;
  diverged[3] = NAN;
  ASSERT_THAT(run_.Contribute(
                  run_.MakeContribution(a_, kFragment, 1, anchor, diverged)),
              IsOutOfRange());
  const v1::QuarantinedContribution held =
      run_.engine().ListQuarantine(false).contributions(0);
  EXPECT_EQ(held.id(), 2);
  EXPECT_EQ(held.base_version(), 1);
  EXPECT_FALSE(held.admissible());
  EXPECT_THAT(ListDirectory(run_.state_dir() + "/quarantine"),
              IsOkAndHolds(testing::IsEmpty()));
}

}  // namespace
}  // namespace causeway
