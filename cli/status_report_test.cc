// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "cli/status_report.h"

#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/proto_time.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace causeway {
namespace {

using google::protobuf::TextFormat;

constexpr absl::Time kNow = absl::FromUnixSeconds(1700000200);

StatusSnapshot TestSnapshot() {
  StatusSnapshot snapshot;
  EXPECT_TRUE(TextFormat::ParseFromString(
      R"pb(
        run_id: "quick-0000002a"
        config {
          model {
            layers: 4
            hidden_size: 192
            vocab_size: 258
            sequence_length: 128
          }
          training { batch_size: 8 }
        }
        state: RUNNING
        started_at { seconds: 1700000000 }
        parameters: 1840000
        run_step: 240
        total_steps: 400
        rounds: 12
        total_rounds: 20
        live_islands: 2
        tokens_per_second: 4096
        tokens_merged: 1230000
        loss: 2.34567
        bytes_received: 12000000
        bytes_sent: 24000000
        bytes_data_parallel: 1800000000
        memory_bytes: 47185920
        outer_step_seconds: 0.125
        ledger {
          reported: 1000000
          merged: 900000
          partial_merged: 2500
          pending: 97500
        }
        participation { live: 24 contributing: 22 merged: 18 }
        seconds_left: 80
        attention {
          severity: WARNING
          text: "1 contribution waits"
          command: "causeway quarantine list"
          since { seconds: 1700000080 }
        }
      )pb",
      &snapshot.run));
  EXPECT_TRUE(TextFormat::ParseFromString(
      R"pb(
        islands {
          island_id: "north"
          incarnation: 1
          state: LIVE
          heartbeat_age_seconds: 0.4
          progress {
            run_step: 240
            loss: 2.31
            tokens_per_second: 2048
            bytes_up: 6000000
            bytes_down: 12000000
            wait_seconds: 3.25
            activity: "training"
            memory_bytes: 104857600
            overlap_steps: 5
            late_updates: 2
            overrun_steps: 7
          }
          tokens_merged: 615000
        }
        islands {
          island_id: "south"
          incarnation: 3
          state: EVICTED
          progress { run_step: 200 }
          reason: "silent for 10 s"
        }
      )pb",
      &snapshot.islands));
  EXPECT_TRUE(TextFormat::ParseFromString(
      R"pb(
        fragments {
          head { fragment: 0 version: 12 digest: "\xde\xad\xbe\xef\x01" }
          size: 1840000
          final_version: 20
          contributed: "north"
          awaited: "east"
          awaited: "south"
          merged_norm: 1.25
          similarity: 0.8125
          committed_at { seconds: 1700000160 }
          tensors: 39
          participation { live: 3 contributing: 2 merged: 1 }
        }
      )pb",
      &snapshot.fragments));
  return snapshot;
}

std::string Printed(const StatusSnapshot& snapshot) {
  std::ostringstream out;
  PrintStatus(snapshot, kNow, out);
  return out.str();
}

TEST(StatusReportTest, ShowsTheWholeRun) {
  EXPECT_EQ(
      Printed(TestSnapshot()),
      "run         quick-0000002a, running\n"
      "attention   warning for 2 min 0 s: 1 contribution waits\n"
      "            next: `causeway quarantine list`\n"
      "model       1.84M parameters: 4 layers of width 192, vocabulary 258, "
      "sequences of 128\n"
      "progress    step 240 of 400 (60 %), round 12 of 20, about 1 min 20 s "
      "left\n"
      "training    2 islands, 4.10k tokens/s, loss 2.3457, 1.23M tokens "
      "merged\n"
      "ledger      1.00M reported, merged 90.00 %, partial 0.25 %, pending "
      "9.75 "
      "%\n"
      "took part   merged 18 of 24 (75 %) live islands; 22 had begun to "
      "contribute\n"
      "traffic     11.4 MiB received, 22.9 MiB sent; data parallel: 1.68 GiB "
      "(50.0 times that)\n"
      "coordinator up 3 min 20 s, memory 45.0 MiB, outer step 0.12 s\n"
      "\n"
      "ISLAND  INC  STATE    STEP    LOSS  TOKENS/S  MERGED        UP      "
      "DOWN  TAU    LATE  WAITED   MEMORY  HEARD  ACTIVITY\n"
      "north     1  live      240  2.3100     2.05k    615k  5.72 MiB  11.4 "
      "MiB    5  2 (+7)   3.2 s  100 MiB  0.4 s  training\n"
      "south     3  evicted   200       -         -       0       0 B       "
      "0 B    0       -     0 s      0 B      -  silent for 10 s\n"
      "\n"
      "LINK   DIRECTION  ROUND TRIP  MBIT/S  BITS  PACED TO  BUSY  HELD BACK  "
      "SENT AGAIN  TCP AGAIN\n"
      "north  up                  -       -     -         -   0 s        0 s  "
      "       0 B        0 B\n"
      "north  down                -       -     -         -   0 s        0 s  "
      "       0 B        0 B\n"
      "\n"
      "FRAGMENT  VERSION  OF  VALUES  TENSORS  SENT AT  NORM  SIMILARITY  "
      "COMMITTED  DIGEST    TOOK PART         CONTRIBUTED  AWAITED\n"
      "       0       12  20   1.84M       39       +0  1.25       0.812  "
      " 40 s ago  deadbeef  1 of 3 (2 began)  north        east,south\n");
}

TEST(StatusReportTest, SaysWhyARunIsSuspended) {
  StatusSnapshot snapshot = TestSnapshot();
  snapshot.run.set_state(v1::SUSPENDED);
  v1::Attention& problem = *snapshot.run.mutable_attention(0);
  problem.set_severity(v1::CRITICAL);
  problem.set_text("disk full\n");
  problem.clear_command();
  snapshot.run.set_warning("open to all");
  snapshot.run.clear_seconds_left();
  const std::string printed = Printed(snapshot);
  EXPECT_THAT(printed,
              testing::StartsWith("run         quick-0000002a, suspended\n"
                                  "attention   critical for 2 min 0 s: disk "
                                  "full\\x0a\n"
                                  "warning     open to all\n"));
  EXPECT_THAT(printed, testing::Not(testing::HasSubstr(" left\n")));
}

TEST(StatusReportTest, TheLastValidationIsShown) {
  StatusSnapshot snapshot = TestSnapshot();
  v1::ValidationPoint& point = *snapshot.run.mutable_validation();
  point.mutable_validation()->set_version(40);
  point.mutable_validation()->set_loss(1.23456);
  point.mutable_validation()->set_tokens(16384);
  point.set_island_id("north\x1b");
  *point.mutable_time() = ToTimestamp(kNow - absl::Seconds(75));
  EXPECT_THAT(Printed(snapshot),
              testing::HasSubstr("validation  loss 1.2346 at version 40, 1 min "
                                 "15 s ago (island north\\x1b, 16.4k "
                                 "tokens)\n"));
}

TEST(StatusReportTest, ShowsFollowersAndTheirLeader) {
  StatusSnapshot snapshot = TestSnapshot();
  for (const auto state :
       {v1::FollowerStatus::IN_SYNC, v1::FollowerStatus::CATCHING_UP}) {
    v1::FollowerStatus& follower = *snapshot.run.add_followers();
    follower.set_name(absl::StrCat("f", snapshot.run.followers_size()));
    follower.set_state(state);
  }
  snapshot.run.mutable_followers(0)->set_region("b");
  snapshot.run.mutable_followers(0)->set_changes_behind(1);
  snapshot.run.mutable_followers(1)->set_changes_behind(12);
  snapshot.run.mutable_followers(1)->set_seconds_behind(3);
  EXPECT_THAT(
      Printed(snapshot),
      testing::HasSubstr("\nfollowers   f1 in sync, region b, lacks 1 change; "
                         "f2 catching up, lacks 12 changes, 3 s\n"));
  snapshot.run.set_is_copy(true);
  snapshot.run.set_follows("a:7070");
  snapshot.run.set_copy_bytes_sent(2048);
  for (v1::IslandStatus& island : *snapshot.islands.mutable_islands()) {
    island.set_is_unheard(true);
  }
  v1::IslandStatus& north = *snapshot.islands.mutable_islands(0);
  EXPECT_THAT(Printed(snapshot),
              testing::HasSubstr("\ntraffic     11.4 MiB received, "));
  EXPECT_THAT(
      Printed(snapshot),
      testing::HasSubstr("\ncoordinator follows a:7070\n"
                         "copy        2.00 KiB sent to islands since its "
                         "start\n"));
  // A follower does not hear the islands.
  EXPECT_THAT(Printed(snapshot), testing::Not(testing::HasSubstr("LINK")));
  EXPECT_THAT(Printed(snapshot),
              testing::HasSubstr(
                  "\n"
                  "ISLAND  INC  STATE    STEP    LOSS  TOKENS/S  MERGED  UP  "
                  "DOWN  TAU    LATE  WAITED  MEMORY  HEARD  ACTIVITY\n"
                  "north     1  live      240  2.3100     2.05k    615k   -  "
                  "   -    -  2 (+7)       -       -      -  training\n"));
  north.clear_progress();
  EXPECT_THAT(Printed(snapshot),
              testing::HasSubstr("north     1  live        -     -"));
  *snapshot.run.mutable_alone_since() = ToTimestamp(kNow - absl::Seconds(12));
  EXPECT_THAT(Printed(snapshot),
              testing::HasSubstr("\ncoordinator follows no one since 12 s ago; "
                                 "the last was a:7070\n"));
  EXPECT_THAT(Printed(snapshot), testing::HasSubstr("when last heard of\n"));
}

TEST(StatusReportTest, AnEmptyRunHasNoNumbersToDivideBy) {
  const std::string printed = Printed(StatusSnapshot());
  EXPECT_THAT(printed, testing::HasSubstr("step 0 of 0 (0 %)"));
  EXPECT_THAT(printed, testing::Not(testing::HasSubstr("nan")));
}

TEST(StatusReportTest, JsonHoldsEverythingUnderItsProtoNames) {
  const nlohmann::json json = nlohmann::json::parse(StatusJson(TestSnapshot()));
  EXPECT_EQ(json["run"]["run_id"], "quick-0000002a");
  EXPECT_EQ(json["run"]["tokens_merged"], "1230000");
  EXPECT_EQ(json["run"]["loss"], 2.34567);
  ASSERT_EQ(json["islands"].size(), 2);
  EXPECT_EQ(json["islands"][1]["island_id"], "south");
  EXPECT_EQ(json["islands"][1]["contributions_merged"], "0");
  ASSERT_EQ(json["fragments"].size(), 1);
  EXPECT_EQ(json["fragments"][0]["head"]["version"], "12");
  EXPECT_EQ(nlohmann::json::parse(StatusJson(StatusSnapshot()))["islands"],
            nlohmann::json::array());
}

TEST(StatusReportTest, EventsAreOneLine) {
  v1::Event event;
  event.set_id(7);
  event.mutable_time()->set_seconds(1700000000);
  event.set_kind("round_merged");
  event.set_severity(v1::DETAIL);
  event.set_text("fragment 0 is at version 1");
  std::ostringstream out;
  PrintEvent(event, absl::UTCTimeZone(), out);
  EXPECT_EQ(out.str(),
            "    7  2023-11-14 22:13:20  detail    round_merged         -"
            "             fragment 0 is at version 1\n");
  // The fields may have any text from a peer.
  event.set_text("slow\n    8  2023-11-14 22:13:21  run_paused\x1b[1A");
  out.str("");
  PrintEvent(event, absl::UTCTimeZone(), out);
  EXPECT_EQ(
      out.str(),
      "    7  2023-11-14 22:13:20  detail    round_merged         -"
      "             slow\\x0a    8  2023-11-14 22:13:21  run_paused\\x1b[1A\n");
}

// Tests the lines and cells that most runs lack.
TEST(StatusReportTest, ShowsWhatIsRareToo) {
  StatusSnapshot snapshot = TestSnapshot();
  ASSERT_TRUE(TextFormat::MergeFromString(
      R"pb(
        state: WAITING_FOR_ISLANDS
        live_islands: 1
        loss: 0
        ledger { expired: 10000 quarantined: 20000 refused: 30000 }
        connections {
          open: 3
          limit: 280
          refused: 4
          displaced: 5
          cut: 6
          unused: 7
        }
      )pb",
      &snapshot.run));
  snapshot.run.clear_seconds_left();
  snapshot.islands.mutable_islands(0)->set_draining(true);
  snapshot.islands.mutable_islands(1)->set_draining(true);
  v1::FragmentStatus& fragment = *snapshot.fragments.mutable_fragments(0);
  fragment.mutable_head()->set_version(0);
  fragment.set_send_offset_steps(25);
  fragment.clear_similarity();
  fragment.clear_contributed();
  fragment.clear_awaited();
  for (const char* const part :
       {"quick-0000002a, waiting for islands\n", "round 12 of 20\n",
        "training    1 island, 4.10k tokens/s, 1.23M",
        "pending 9.75 %, expired 1.00 %, quarantined 2.00 %, refused 3.00 %\n",
        "connections 3 of 280; 4 refused, 5 displaced, 6 cut off, 7 without a "
        "call\n",
        "north     1  draining", "south     3  evicted",
        "       0        0  20   1.84M       39      +25     -           -  "
        " 40 s ago  deadbeef  -          -            -\n"}) {
    EXPECT_THAT(Printed(snapshot), testing::HasSubstr(part));
  }
}

// Each count alone makes the line appear.
TEST(StatusReportTest, AConnectionThatWasNotServedIsShown) {
  for (const char* const use :
       {"refused: 1", "displaced: 1", "cut: 1", "unused: 1"}) {
    StatusSnapshot snapshot = TestSnapshot();
    ASSERT_TRUE(
        TextFormat::ParseFromString(use, snapshot.run.mutable_connections()));
    EXPECT_THAT(Printed(snapshot), testing::HasSubstr("\nconnections 0 of 0; "))
        << use;
  }
}

TEST(StatusReportTest, AnEventNamesItsIsland) {
  v1::Event event;
  event.set_id(12345);
  event.mutable_time()->set_seconds(1700000000);
  event.set_kind("island_left");
  event.set_severity(v1::NOTICE);
  event.set_island_id("north");
  event.set_text("it left");
  std::ostringstream out;
  PrintEvent(event, absl::FixedTimeZone(3600), out);
  EXPECT_EQ(out.str(),
            "12345  2023-11-14 23:13:20  notice    island_left          north"
            "         it left\n");
}

TEST(LinkReportTest, ShowsBothDirectionsOfLiveIslands) {
  v1::ListIslandsResponse islands;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(
      R"pb(
        islands {
          island_id: "north"
          state: LIVE
          progress {
            uplink {
              bytes_per_second: 2.5e6
              busy_seconds: 12
              paced_seconds: 3
              pace_bytes_per_second: 3e6
              bytes_sent_again: 1048576
            }
            downlink { tcp_bytes_retransmitted: 2048 }
            round_trip_seconds: 0.1504
            uplink_bits: 1.5
          }
        }
        islands { island_id: "south" state: LEFT }
      )pb",
      &islands));
  std::ostringstream out;
  PrintLinks(islands, out);
  EXPECT_EQ(
      out.str(),
      "\nLINK   DIRECTION  ROUND TRIP  MBIT/S  BITS  PACED TO  BUSY  HELD BACK "
      " "
      "SENT AGAIN  TCP AGAIN\n"
      "north  up           150.4 ms    20.0   1.5      24.0  12 s        3 s  "
      "  1.00 MiB        0 B\n"
      "north  down         150.4 ms       -     -         -   0 s        0 s  "
      "       0 B   2.00 KiB\n");
}

TEST(LinkReportTest, IsEmptyWithoutLiveIslands) {
  std::ostringstream out;
  PrintLinks({}, out);
  EXPECT_EQ(out.str(), "");
}

}  // namespace
}  // namespace causeway
