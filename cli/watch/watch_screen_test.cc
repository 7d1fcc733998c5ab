// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "cli/watch/watch_screen.h"

#include <cmath>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/human.h"
#include "common/proto_time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

const absl::Time kNow = absl::FromUnixSeconds(1'700'000'000);

WatchedRun TestRun(int islands) {
  WatchedRun watched;
  v1::RunStatus& run = watched.status.run;
  run.set_run_id("quick-0000002a");
  run.set_state(v1::RUNNING);
  run.mutable_config()->mutable_training()->set_batch_size(8);
  run.mutable_config()->mutable_model()->set_sequence_length(128);
  run.set_run_step(240);
  run.set_total_steps(400);
  run.set_rounds(12);
  run.set_total_rounds(20);
  run.set_live_islands(static_cast<uint32_t>(islands));
  run.set_tokens_per_second(4096);
  run.set_loss(2.3456);
  run.set_seconds_left(80);
  for (int i = 0; i < islands; ++i) {
    v1::IslandStatus& island = *watched.status.islands.add_islands();
    island.set_island_id(absl::StrCat("island-", i));
    island.set_state(v1::IslandStatus::LIVE);
    island.mutable_progress()->set_run_step(240);
    island.mutable_progress()->set_loss(2.3);
    island.mutable_progress()->set_tokens_per_second(2048);
    island.mutable_progress()->set_activity("training");
  }
  for (uint32_t i = 0; i < 3; ++i) {
    v1::FragmentStatus& fragment = *watched.status.fragments.add_fragments();
    fragment.mutable_head()->set_fragment(i);
    fragment.mutable_head()->set_version(4);
    fragment.set_final_version(7);
    *fragment.mutable_committed_at() = ToTimestamp(kNow - absl::Seconds(i));
    fragment.mutable_participation()->set_live(2);
    fragment.mutable_participation()->set_contributing(2);
    fragment.mutable_participation()->set_merged(2);
  }
  for (uint64_t version = 1; version <= 12; ++version) {
    v1::TrainingPoint& point = *watched.history.add_training();
    point.set_version(version);
    point.set_run_step(20 * version);
    point.set_loss(2 + 3 * std::exp(-0.3 * static_cast<double>(version)));
    if (version % 3 != 0) continue;
    v1::ValidationPoint& measured = *watched.history.add_validations();
    measured.mutable_validation()->set_version(version);
    measured.mutable_validation()->set_loss(point.loss() + 0.1);
  }
  for (uint64_t id = 1; id <= 20; ++id) {
    v1::Event& event = watched.events.emplace_back();
    event.set_id(id);
    event.set_kind("island_joined");
    event.set_text(absl::StrCat("event ", id));
    *event.mutable_time() = ToTimestamp(kNow);
  }
  return watched;
}

// Returns the screen, and expects that it fits.
std::string Drawn(const WatchedRun& run, const ScreenFormat& format,
                  const std::string& trouble = "") {
  const auto lines =
      DrawWatchScreen(run, trouble, kNow, absl::UTCTimeZone(), format);
  EXPECT_LE(lines.size(), format.rows);
  return absl::StrJoin(lines, "\n",
                       [&](std::string* out, const ScreenLine& line) {
                         const std::string text = line.Text(format);
                         EXPECT_LE(Characters(text), format.columns) << text;
                         absl::StrAppend(out, text);
                       });
}

TEST(WatchScreenTest, FillsEachSizeAndNoMore) {
  for (const int islands : {0, 1, 2, 40}) {
    for (int rows = 1; rows < 70; rows += 3) {
      for (const int columns : {1, 20, 80, 81, 120, 300}) {
        SCOPED_TRACE(absl::StrCat(islands, " ", rows, " ", columns));
        Drawn(TestRun(islands), {.rows = rows, .columns = columns});
      }
    }
  }
}

TEST(WatchScreenTest, SmallTerminalsHaveTheRunItsCurvesIslandsAndEvents) {
  const std::string text = Drawn(TestRun(2), {.unicode = true});
  EXPECT_THAT(
      text,
      AllOf(HasSubstr("quick-0000002a  running"), HasSubstr("22:13:20"),
            HasSubstr("step 240 of 400 (60 %)"), HasSubstr("1 min 20 s left"),
            HasSubstr("training 2.0820"), HasSubstr("step 400"),
            HasSubstr("island-1"), HasSubstr("event 20")));
  if (testing::Test::HasFailure()) std::cerr << text;
}

TEST(WatchScreenTest, AnActivityThatHasNoRoomBesideHasALineOfItsOwn) {
  WatchedRun run = TestRun(2);
  const std::string slow =
      "training; rank 3 needs 1.9 times as long as the others";
  run.status.islands.mutable_islands(0)->mutable_progress()->set_activity(slow);
  EXPECT_THAT(Drawn(run, {}), HasSubstr(absl::StrCat("\n    ", slow, "\n")));
  EXPECT_THAT(Drawn(run, {.columns = 200}),
              AllOf(HasSubstr(slow), Not(HasSubstr("\n    training"))));
}

// The names may have 64 characters.
TEST(WatchScreenTest, LongNamesLeaveRoomForTheRest) {
  WatchedRun run = TestRun(2);
  run.status.islands.mutable_islands(0)->set_island_id(
      absl::StrCat("north-0", std::string(50, 'x'), "-site-1"));
  const std::string text = Drawn(run, {});
  EXPECT_THAT(text, HasSubstr("north-0xxxx..xxxxxx-site-1  live"));
  EXPECT_THAT(text, HasSubstr("island-1                    live"));
  EXPECT_THAT(Drawn(run, {.columns = 300}),
              HasSubstr(absl::StrCat(std::string(50, 'x'), "-site-1  live")));
}

TEST(WatchScreenTest, WhatAnIslandHasNotReportedIsUnknown) {
  WatchedRun run = TestRun(1);
  EXPECT_THAT(Drawn(run, {.columns = 200}),
              HasSubstr("0 s     0 B    0 s  training"));
  run.status.islands.mutable_islands(0)->set_is_unheard(true);
  EXPECT_THAT(Drawn(run, {.columns = 200}),
              HasSubstr("-       -      -  training"));
}

TEST(WatchScreenTest, ManyIslandsAreCounted) {
  EXPECT_THAT(Drawn(TestRun(40), {}), HasSubstr("more; `causeway islands`"));
  EXPECT_THAT(Drawn(TestRun(40), {.rows = 200}),
              AllOf(HasSubstr("island-39"), Not(HasSubstr("more;"))));
}

TEST(WatchScreenTest, TroubleComesFirst) {
  EXPECT_TRUE(absl::StartsWith(Drawn(TestRun(1), {.rows = 1}, "no answer\n"),
                               "no answer\\x0a"));
}

TEST(WatchScreenTest, ProblemsComeBeforeTheProgress) {
  WatchedRun run = TestRun(0);
  for (int i = 0; i < 40; ++i) {
    v1::Attention& problem = *run.status.run.add_attention();
    problem.set_severity(i == 0 ? v1::CRITICAL : v1::WARNING);
    problem.set_text(i == 0 ? "no round is merged" : "an island is gone");
    problem.set_command("causeway fragments");
    *problem.mutable_since() = ToTimestamp(kNow - absl::Seconds(90));
  }
  const std::string wide = Drawn(run, {});
  EXPECT_THAT(wide,
              AllOf(HasSubstr("quick-0000002a  standing still"),
                    HasSubstr("\ncritical for 1 min 30 s: no round is merged  "
                              "next: `causeway fragments`\nwarning for")));
  EXPECT_LT(wide.find("an island is gone"), wide.find("step 240 of 400"));
  EXPECT_THAT(
      Drawn(run, {.columns = 60}),
      HasSubstr("no round is merged\n    next: `causeway fragments`\n"));
  const auto lines = DrawWatchScreen(run, "", kNow, absl::UTCTimeZone(), {});
  EXPECT_THAT(lines[0].Text({.colours = true}),
              HasSubstr("\x1b[1;31mstanding still\x1b[0m"));
}

TEST(WatchScreenTest, ARunThatIsNotKnownYetHasNothingToShow) {
  EXPECT_EQ(Drawn({}, {}, "no answer"), "no answer");
}

TEST(WatchScreenTest, TextsOfIslandsCannotSteerTheTerminal) {
  WatchedRun run = TestRun(1);
  run.status.islands.mutable_islands(0)->mutable_progress()->set_activity(
      "\x1b[2J\xe2\x80\xae");
  run.status.islands.mutable_islands(0)->set_island_id("a\nb");
  run.status.run.add_attention()->set_text("\x1b]0;title\a");
  run.status.fragments.mutable_fragments(0)->add_awaited("\x1b[31m");
  run.events.back().set_text("\r\n\x9b");
  run.events.back().set_island_id("\b\b");
  const std::string text = Drawn(run, {.rows = 60, .columns = 200});
  EXPECT_THAT(text, HasSubstr("\\x1b[2J\\u202e"));
  for (const char c : text) {
    EXPECT_TRUE(c == '\n' || static_cast<unsigned char>(c) >= 0x20) << int{c};
  }
}

TEST(WatchScreenTest, ColoursAreThoseOfTheTerminal) {
  EXPECT_THAT(Drawn(TestRun(1), {}), Not(HasSubstr("\x1b")));
  const auto lines =
      DrawWatchScreen(TestRun(1), "", kNow, absl::UTCTimeZone(), {});
  EXPECT_THAT(lines[0].Text({.colours = true}),
              HasSubstr("\x1b[32mrunning\x1b[0m"));
}

}  // namespace
}  // namespace causeway
