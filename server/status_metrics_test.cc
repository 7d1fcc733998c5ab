// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/status_metrics.h"

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/proto_time.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr absl::Time kNow = absl::FromUnixSeconds(1'700'000'000);

template <typename Message>
Message Parse(const std::string& text) {
  Message message;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &message));
  return message;
}

std::string Text(const v1::RunStatus& run,
                 const v1::ListIslandsResponse& islands,
                 const v1::ListFragmentsResponse& fragments) {
  MetricFamilies families;
  AddStatus(run, islands, fragments, kNow, families);
  return families.Text();
}

// Returns the number of samples of a metric.
int CountSamples(const std::string& text, const std::string& name) {
  int count = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    if (absl::StartsWith(line, absl::StrCat(name, "{"))) ++count;
  }
  return count;
}

TEST(StatusMetricsTest, ShowsTheRun) {
  const std::string text = Text(
      Parse<v1::RunStatus>(R"pb(
        config {
          name: "r"
          membership { min_islands: 3 lease_seconds: 10 }
        }
        state: SUSPENDED
        rounds: 7
        live_islands: 3
        islands_needed: 2
        last_round_at { seconds: 1700000050 }
        seconds_left: 15
        attention { severity: CRITICAL }
        attention { severity: WARNING }
        attention { severity: WARNING }
        loss: 2.5
        bytes_received: 11
        bytes_sent: 12
        ledger { reported: 100 merged: 60 pending: 40 }
        participation { live: 9 contributing: 8 merged: 7 }
        quarantined: 1
        epoch: 3
        followers { name: "a" state: IN_SYNC }
        followers {
          name: "b"
          state: BEHIND
          changes_behind: 21
          seconds_behind: 6.5
          bytes_sent: 22
        }
        connections { open: 5 cut: 2 }
        validation { validation { version: 4 loss: 2.25 } }
        outer_steps {
          upper_bounds_seconds: 1
          counts: 1
          counts: 1
          sum_seconds: 3
        }
        storage { staging_bytes: 13 disk_free_bytes: 0 disk_total_bytes: 14 }
        certificate_expires_at { seconds: 1700000060 }
        certificate_notice_at { seconds: 1700000055 }
      )pb"),
      {}, {});
  for (const char* const sample :
       {"run_state{run=\"r\",state=\"suspended\"} 1",
        "run_state{run=\"r\",state=\"running\"} 0",
        "rounds_merged_total{run=\"r\"} 7",
        "islands_live{run=\"r\"} 3",
        "islands_needed{run=\"r\"} 2",
        "last_round_timestamp_seconds{run=\"r\"} 1700000050",
        "seconds_left{run=\"r\"} 15",
        "attention{run=\"r\",severity=\"critical\"} 1",
        "attention{run=\"r\",severity=\"warning\"} 2",
        "lease_seconds{run=\"r\"} 10",
        "training_loss{run=\"r\"} 2.5",
        "validation_loss{run=\"r\"} 2.25",
        "validation_version{run=\"r\"} 4",
        "transfer_bytes_total{run=\"r\",direction=\"up\"} 11",
        "transfer_bytes_total{run=\"r\",direction=\"down\"} 12",
        "ledger_tokens{run=\"r\",fate=\"merged\"} 60",
        "ledger_tokens{run=\"r\",fate=\"pending\"} 40",
        "round_islands_total{run=\"r\",part=\"contributing\"} 8",
        "quarantined_contributions{run=\"r\"} 1",
        "connections{run=\"r\"} 5",
        "connections_ended_total{run=\"r\",reason=\"cut\"} 2",
        "outer_step_seconds_count{run=\"r\"} 2",
        "outer_step_seconds_sum{run=\"r\"} 3",
        "outer_step_seconds_bucket{run=\"r\",le=\"1\"} 1",
        "commit_seconds_count{run=\"r\"} 0",
        "staging_bytes{run=\"r\"} 13",
        "disk_free_bytes{run=\"r\"} 0",
        "disk_total_bytes{run=\"r\"} 14",
        "certificate_expiry_timestamp_seconds{run=\"r\"} 1700000060",
        "certificate_notice_timestamp_seconds{run=\"r\"} 1700000055",
        "insecure{run=\"r\"} 0",
        "epoch{run=\"r\"} 3",
        "followers_in_sync{run=\"r\"} 1",
        "followers_wanted{run=\"r\"} 0",
        "follower_state{run=\"r\",follower=\"b\",state=\"behind\"} 1",
        "follower_state{run=\"r\",follower=\"a\",state=\"behind\"} 0",
        "follower_changes_behind{run=\"r\",follower=\"b\"} 21",
        "follower_seconds_behind{run=\"r\",follower=\"b\"} 6.5",
        "follower_sent_bytes_total{run=\"r\",follower=\"b\"} 22",
        "islands_not_shown{run=\"r\"} 0"}) {
    EXPECT_THAT(text, HasSubstr(absl::StrCat("\ncauseway_", sample, "\n")));
  }
}

TEST(StatusMetricsTest, LeavesOutUnknownValues) {
  const std::string text = Text({}, {}, {});
  for (const char* const name :
       {"training_loss", "validation_loss", "disk_free_bytes",
        "last_round_timestamp_seconds", "seconds_left",
        "certificate_expiry_timestamp_seconds",
        "certificate_notice_timestamp_seconds"}) {
    EXPECT_EQ(CountSamples(text, absl::StrCat("causeway_", name)), 0);
  }
}

TEST(StatusMetricsTest, ShowsIslandsAndFragments) {
  v1::RunStatus run;
  run.mutable_config()->set_name("r");
  const std::string text = Text(run, Parse<v1::ListIslandsResponse>(R"pb(
                                  islands {
                                    island_id: "east"
                                    incarnation: 2
                                    state: LIVE
                                    heartbeat_age_seconds: 0.5
                                    progress {
                                      run_step: 40
                                      tokens: 1000
                                      wait_seconds: 1.5
                                      wait { reason: LAST_ROUNDS seconds: 4 }
                                      bytes_up: 7
                                      uplink { bytes_per_second: 1e6 }
                                      downlink { busy_seconds: 3 }
                                      ranks { tokens: 1 }
                                      ranks { tokens: 1 }
                                      rank_trouble { kind: SLOW_RANK }
                                      late_updates: 3
                                      uplink_bits: 1.5
                                    }
                                    uplink_bits_in_time: 1.75
                                    ledger { expired: 5 }
                                    inner_steps_per_round: 20
                                    data_differs: true
                                  }
                                )pb"),
                                Parse<v1::ListFragmentsResponse>(R"pb(
                                  fragments {
                                    head { fragment: 1 version: 3 }
                                    contributed: "east"
                                    awaited: "west"
                                    awaited: "south"
                                    committed_at { seconds: 1699999990 }
                                  }
                                )pb"));
  const std::string island = "run=\"r\",island=\"east\"";
  for (const std::string& sample :
       {absl::StrCat("state{", island, ",state=\"live\"} 1"),
        absl::StrCat("incarnation{", island, "} 2"),
        absl::StrCat("heartbeat_age_seconds{", island, "} 0.5"),
        absl::StrCat("run_step{", island, "} 40"),
        absl::StrCat("tokens_total{", island, "} 1000"),
        absl::StrCat("wait_seconds_total{", island, "} 1.5"),
        absl::StrCat("current_wait_seconds{", island,
                     ",reason=\"last_rounds\"} 4"),
        absl::StrCat("transfer_bytes_total{", island, ",direction=\"up\"} 7"),
        absl::StrCat("link_bytes_per_second{", island,
                     ",direction=\"up\"} 1000000"),
        absl::StrCat("link_busy_seconds_total{", island,
                     ",direction=\"down\"} 3"),
        absl::StrCat("ranks{", island, "} 2"),
        absl::StrCat("rank_trouble{", island, ",kind=\"slow_rank\"} 1"),
        absl::StrCat("late_updates_total{", island, "} 3"),
        absl::StrCat("uplink_bits{", island, "} 1.5"),
        absl::StrCat("uplink_bits_in_time{", island, "} 1.75"),
        absl::StrCat("ledger_tokens{", island, ",fate=\"expired\"} 5"),
        absl::StrCat("inner_steps_per_round{", island, "} 20"),
        absl::StrCat("data_differs{", island, "} 1")}) {
    EXPECT_THAT(text, HasSubstr(absl::StrCat("\ncauseway_island_", sample)));
  }
  for (const char* const sample :
       {"version{run=\"r\",fragment=\"1\"} 3",
        "contributed_islands{run=\"r\",fragment=\"1\"} 1",
        "awaited_islands{run=\"r\",fragment=\"1\"} 2",
        "committed_timestamp_seconds{run=\"r\",fragment=\"1\"} 1699999990"}) {
    EXPECT_THAT(text, HasSubstr(absl::StrCat("\ncauseway_fragment_", sample)));
  }
}

TEST(StatusMetricsTest, AnUnheardIslandHasNoReport) {
  v1::ListIslandsResponse islands;
  v1::IslandStatus& island = *islands.add_islands();
  island.set_state(v1::IslandStatus::LIVE);
  island.set_is_unheard(true);
  const std::string text = Text({}, islands, {});
  EXPECT_EQ(CountSamples(text, "causeway_island_incarnation"), 1);
  EXPECT_EQ(CountSamples(text, "causeway_island_tokens_total"), 0);
}

void AddIsland(const std::string& name, v1::IslandStatus::State state,
               absl::Duration joined_ago, absl::Duration heartbeat_age,
               v1::ListIslandsResponse& islands) {
  v1::IslandStatus& island = *islands.add_islands();
  island.set_island_id(name);
  island.set_state(state);
  *island.mutable_joined_at() = ToTimestamp(kNow - joined_ago);
  island.set_heartbeat_age_seconds(absl::ToDoubleSeconds(heartbeat_age));
}

TEST(StatusMetricsTest, IslandsThatAreGoneForLongDisappear) {
  v1::ListIslandsResponse islands;
  const absl::Duration day = absl::Hours(24);
  AddIsland("live", v1::IslandStatus::LIVE, day, absl::Hours(2), islands);
  AddIsland("new", v1::IslandStatus::LIVE, day, {}, islands);
  AddIsland("lately", v1::IslandStatus::EVICTED, day, absl::Minutes(59),
            islands);
  AddIsland("silent", v1::IslandStatus::EVICTED, absl::Minutes(1), {}, islands);
  AddIsland("long", v1::IslandStatus::LEFT, day, absl::Minutes(61), islands);
  AddIsland("reloaded", v1::IslandStatus::LEFT, day, {}, islands);
  // A missed island stays, also after a restart of the coordinator.
  AddIsland("missed", v1::IslandStatus::EVICTED, day, {}, islands);
  AddIsland("diverged", v1::IslandStatus::DIVERGED, day, day, islands);
  AddIsland("sold", v1::IslandStatus::EVICTED, day, day, islands);
  islands.mutable_islands(islands.islands_size() - 1)
      ->set_reason("by an operator: sold");
  const std::string text = Text({}, islands, {});
  for (const char* const name : {"live", "new", "lately", "silent"}) {
    EXPECT_THAT(text, HasSubstr(absl::StrCat("island=\"", name, "\"")));
  }
  for (const char* const name : {"missed", "diverged"}) {
    EXPECT_THAT(text, HasSubstr(absl::StrCat("\ncauseway_island_missed{run=\"\""
                                             ",island=\"",
                                             name, "\"} 1\n")));
  }
  EXPECT_THAT(
      text,
      HasSubstr("\ncauseway_island_missed{run=\"\",island=\"live\"} 0\n"));
  for (const char* const name : {"long", "reloaded", "sold"}) {
    EXPECT_THAT(text, Not(HasSubstr(absl::StrCat("island=\"", name, "\""))));
  }
  EXPECT_THAT(text, HasSubstr("\ncauseway_islands_not_shown{run=\"\"} 3\n"));
}

TEST(StatusMetricsTest, TheNumberOfIslandsIsBounded) {
  v1::ListIslandsResponse islands;
  for (size_t i = 0; i < kMostIslands; ++i) {
    AddIsland(absl::StrCat("gone-", i), v1::IslandStatus::LEFT, absl::Hours(1),
              absl::Seconds(i + 1), islands);
  }
  AddIsland("zone", v1::IslandStatus::LIVE, absl::Hours(1), absl::Minutes(50),
            islands);
  const std::string text = Text({}, islands, {});
  EXPECT_EQ(CountSamples(text, "causeway_island_incarnation"), kMostIslands);
  EXPECT_EQ(CountSamples(text, "causeway_island_current_wait_seconds"), 0);
  EXPECT_THAT(text, HasSubstr("island=\"zone\""));
  EXPECT_THAT(text, HasSubstr("island=\"gone-0\""));
  // It was heard from before all others.
  EXPECT_THAT(text, Not(HasSubstr("island=\"gone-1023\"")));
}

}  // namespace
}  // namespace causeway
