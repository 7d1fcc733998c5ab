// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/wan/scenario.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/os/file.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/end_to_end/process.h"

namespace causeway {
namespace {

using testing::StartsWith;

constexpr char kScenario[] = R"pb(
  name: "test"
  run {
    name: "test"
    model {
      layers: 2
      hidden_size: 8
      intermediate_size: 8
      heads: 1
      sequence_length: 8
    }
    training { total_steps: 100 batch_size: 1 }
    synchronization { inner_steps_per_round: 10 }
    membership { min_islands: 2 }
  }
  islands { name: "north" }
  islands { name: "south" }
  networks {
    name: "slow"
    link {
      both { rate_mbit_s: 10 delay_ms: 25 }
      down { rate_mbit_s: 20 }
    }
    exceptions {
      island: "south"
      link { both { loss: 0.5 } }
    }
  }
  settings { name: "plain" }
  settings {
    name: "streaming"
    run { synchronization { fragments: 3 overlap_steps: 2 } }
  }
  events {
    at_seconds: 20
    island: "south"
    link { both { partitioned: true } }
    for_seconds: 15
  }
  events {
    at_seconds: 30
    link { up { rate_mbit_s: 1 } }
  }
)pb";

wan::Scenario Scenario() {
  auto scenario = ParseScenario(kScenario, "test.textproto");
  EXPECT_OK(scenario.status());
  return *std::move(scenario);
}

LinkSettings At(const wan::Scenario& scenario, absl::string_view island,
                double seconds) {
  return LinkAt(scenario, scenario.networks(0), island, absl::Seconds(seconds));
}

TEST(ScenarioTest, ADirectionOverridesBoth) {
  const LinkSettings link = At(Scenario(), "north", 0);
  EXPECT_EQ(link.up.bits_per_second, 10e6);
  EXPECT_EQ(link.down.bits_per_second, 20e6);
  EXPECT_EQ(link.up.delay, absl::Milliseconds(25));
  EXPECT_EQ(link.down.delay, absl::Milliseconds(25));
  EXPECT_EQ(link.up.loss, 0);
  // The queue holds 100 ms at the rate.
  EXPECT_EQ(link.up.queue_bytes, 125'000);
  EXPECT_EQ(link.down.queue_bytes, 250'000);
}

TEST(ScenarioTest, AnExceptionChangesOneIslandsLink) {
  const LinkSettings link = At(Scenario(), "south", 0);
  EXPECT_EQ(link.up.loss, 0.5);
  EXPECT_EQ(link.down.loss, 0.5);
  EXPECT_EQ(link.up.bits_per_second, 10e6);
}

TEST(ScenarioTest, EventsHoldFromTheirBeginningUntilTheirEnd) {
  const wan::Scenario scenario = Scenario();
  EXPECT_FALSE(At(scenario, "south", 19.99).up.partitioned);
  EXPECT_TRUE(At(scenario, "south", 20).up.partitioned);
  EXPECT_TRUE(At(scenario, "south", 34.99).down.partitioned);
  EXPECT_FALSE(At(scenario, "south", 35).up.partitioned);
  EXPECT_FALSE(At(scenario, "north", 25).up.partitioned);
  // The events overlap, and the second has no end.
  EXPECT_EQ(At(scenario, "south", 32).up.bits_per_second, 1e6);
  EXPECT_EQ(At(scenario, "north", 1e6).up.bits_per_second, 1e6);
  EXPECT_EQ(At(scenario, "north", 1e6).down.bits_per_second, 20e6);
}

TEST(ScenarioTest, KnowsWhetherAnIslandWasCutOff) {
  const wan::Scenario scenario = Scenario();
  const auto cut_off = [&](absl::string_view island, double from, double to) {
    return PartitionedBetween(scenario, scenario.networks(0), island,
                              absl::Seconds(from), absl::Seconds(to));
  };
  EXPECT_FALSE(cut_off("south", 0, 19));
  EXPECT_TRUE(cut_off("south", 0, 20));
  EXPECT_TRUE(cut_off("south", 25, 26));
  EXPECT_TRUE(cut_off("south", 10, 50));
  EXPECT_FALSE(cut_off("south", 35, 50));
  EXPECT_FALSE(cut_off("north", 0, 100));
}

TEST(ScenarioTest, ASettingChangesWhatItNames) {
  const wan::Scenario scenario = Scenario();
  const v1::RunConfig run = RunOf(scenario, scenario.settings(1));
  EXPECT_EQ(run.synchronization().fragments(), 3);
  EXPECT_EQ(run.synchronization().overlap_steps(), 2);
  EXPECT_EQ(run.synchronization().inner_steps_per_round(), 10);
  EXPECT_EQ(run.model().layers(), 2);
}

TEST(ScenarioTest, TheBaselineSynchronizesAtTheEndOnly) {
  wan::Scenario scenario = Scenario();
  scenario.mutable_run()->mutable_synchronization()->set_fragments(3);
  const v1::RunConfig run = RunOf(scenario, BaselineSetting(scenario));
  EXPECT_EQ(run.synchronization().inner_steps_per_round(), 100);
  EXPECT_EQ(run.synchronization().fragments(), 1);
}

TEST(ScenarioTest, SaysWhatIsWrong) {
  for (const auto& [right, wrong, message] :
       {std::tuple("rate_mbit_s: 10 ", "rate_mbit_s: 0 ",
                   "network \"slow\".link.both.rate_mbit_s is 0"),
        std::tuple("loss: 0.5", "loss: 1.5", ".loss is 1.5"),
        std::tuple("delay_ms: 25", "delay_ms: -1", ".delay_ms is -1"),
        std::tuple("loss: 0.5", "partitioned: true",
                   "is partitioned from the beginning"),
        std::tuple("island: \"south\"", "island: \"west\"",
                   "names island \"west\""),
        std::tuple("islands { name: \"south\" }", "islands { name: \"north\" }",
                   "islands.name is \"north\""),
        std::tuple("overlap_steps: 2", "overlap_steps: 10",
                   "the run of setting \"streaming\""),
        std::tuple("total_steps: 100", "total_steps: 19",
                   "setting \"plain\" makes less than two rounds"),
        std::tuple("name: \"streaming\"", "name: \"plain\"",
                   "settings.name is \"plain\""),
        std::tuple("at_seconds: 20", "at_seconds: -1", "events.at_seconds")}) {
    EXPECT_THAT(ParseScenario(absl::StrReplaceAll(kScenario, {{right, wrong}}),
                              "test.textproto"),
                IsInvalidArgument(StartsWith("test.textproto: "), message))
        << wrong;
  }
  EXPECT_THAT(ParseScenario("name: \"a\"\nrepeat: 2", "test.textproto"),
              IsInvalidArgument(StartsWith("test.textproto:2:")));
}

// A mistake in one would otherwise show only after hours.
TEST(ScenariosTest, AreRight) {
  const std::string directory = ProgramPath("tests/wan/scenarios");
  ASSERT_OK_AND_ASSIGN(const std::vector<std::string> names,
                       ListDirectory(directory));
  EXPECT_GE(names.size(), 4);
  for (const std::string& name : names) {
    EXPECT_OK(LoadScenario(absl::StrCat(directory, "/", name)).status());
  }
}

}  // namespace
}  // namespace causeway
