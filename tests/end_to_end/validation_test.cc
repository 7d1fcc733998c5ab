// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The measurement of the merged model during a run: real processes, and the
// command-line tool beside them.
#include <signal.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "server/storage/state_directory.h"
#include "tests/end_to_end/process_test_fixture.h"

namespace causeway {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

// Three fragments, whose updates arrive during training.
constexpr char kConfig[] = R"pb(
  name: "validation"
  training {
    total_steps: 1204
    batch_size: 4
    micro_batch_size: 2
    learning_rate: 5e-3
    warmup_steps: 10
  }
  outer_optimizer { momentum: 0.5 }
  synchronization { inner_steps_per_round: 20 fragments: 3 overlap_steps: 3 }
  membership { min_islands: 2 lease_seconds: 20 heartbeat_seconds: 0.1 }
  validation { every_rounds: 3 max_sequences: 40 }
)pb";

class ValidationTest : public ProcessTestFixture {
 protected:
  std::unique_ptr<Process> Coordinator(int port = 0,
                                       const std::string& config = kConfig) {
    WriteRun(config);
    // Each life of the coordinator has a log of its own.
    return StartServing(absl::StrCat("coordinator-", ++lives_),
                        CoordinatorCommand(port));
  }

  std::unique_ptr<Process> Worker(const std::string& island, int ranks,
                                  const std::string& data = kText) {
    return Start(island, WorkerCommand(island, Port(),
                                       {absl::StrCat("--data=", data),
                                        absl::StrCat("--ranks=", ranks)}));
  }

  // Returns what `causeway evaluate` says of the state directory's model, on as
  // many sequences as the run takes.
  nlohmann::json Evaluate() {
    const std::string output = RunTool({"evaluate", Path("state"), "--data",
                                        kText, "--max_sequences=40", "--json"});
    EXPECT_FALSE(absl::StrContains(output, "warning")) << output;
    return nlohmann::json::parse(output.substr(output.find('{')));
  }

  std::vector<v1::ValidationPoint> Points() {
    const auto state = StateDirectory::OpenReadOnly(Path("state"));
    EXPECT_OK(state);
    const auto history = (*state)->ReadHistory({});
    EXPECT_OK(history);
    return {history->validations().begin(), history->validations().end()};
  }

  // Returns how often the coordinator's log has the loss of a version.
  static int Measurements(const Process& coordinator) {
    const std::string log = coordinator.Output();
    const std::vector<absl::string_view> parts =
        absl::StrSplit(log, " of the model has");
    return static_cast<int>(parts.size()) - 1;
  }

  int lives_ = 0;
};

// The run has versions 1 to 61 of the model, of which every third and the last
// are measured.
TEST_F(ValidationTest, IslandsMeasureWhatEvaluateMeasures) {
  auto coordinator = Coordinator();
  auto east = Worker("east", 2);
  auto west = Worker("west", 1);
  // A killed coordinator keeps what it has recorded: everything before its last
  // line.
  ASSERT_TRUE(Await([&] { return Measurements(*coordinator) >= 3; }))
      << coordinator->Output();
  const int port = Port();
  coordinator->End(SIGKILL);
  const std::vector<v1::ValidationPoint> before = Points();
  ASSERT_GE(before.size(), 2);
  coordinator = Coordinator(port);
  ASSERT_TRUE(coordinator->AwaitOutput(" of the model has"));
  EXPECT_THAT(RunTool({"status", "--coordinator", Address()}),
              HasSubstr("validation  loss "));
  ExpectOk(*east, *west, *coordinator);

  const std::vector<v1::ValidationPoint> points = Points();
  ASSERT_GE(points.size(), before.size() + 1);
  for (size_t i = 0; i < before.size(); ++i) {
    EXPECT_EQ(points[i].SerializeAsString(), before[i].SerializeAsString());
  }
  for (const v1::ValidationPoint& point : points) {
    const uint64_t version = point.validation().version();
    EXPECT_TRUE(version % 3 == 0 || version == 61) << version;
    EXPECT_EQ(point.validation().tokens(), 40 * 32);
    EXPECT_GT(point.validation().seconds(), 0);
  }
  const v1::ValidationPoint& last = points.back();
  EXPECT_EQ(last.validation().version(), 61);
  EXPECT_NEAR(last.validation().loss(), Evaluate()["loss"], 1e-5);
  EXPECT_LT(last.validation().loss(), points[0].validation().loss());
  EXPECT_THAT(coordinator->Output(),
              HasSubstr("version 61 of the model has a validation loss of "));
}

// The first island has been given another file.
TEST_F(ValidationTest, IslandsThatReadOtherDataAreShownAndDoNotMeasure) {
  const std::string config = absl::StrReplaceAll(
      kConfig, {{"total_steps: 1204", "total_steps: 1000000"},
                {"every_rounds: 3", "every_rounds: 1"}});
  auto coordinator = Coordinator(0, config);
  const auto islands = [&] {
    const nlohmann::json listed = nlohmann::json::parse(
        RunTool({"islands", "--coordinator", Address(), "--json"}));
    std::map<std::string, bool> differs;
    for (const auto& island : listed["islands"]) {
      differs[island["island_id"]] = island.value("data_differs", false);
    }
    return differs;
  };
  constexpr char kWarning[] =
      "the coordinator says: this island reads other data than the run's";
  auto odd = Worker("odd", 1, "/usr/share/common-licenses/Apache-2.0");
  auto east = Worker("east", 1);
  // Either of the two may have been the first to report.
  ASSERT_TRUE(coordinator->AwaitOutput("reads other data than the run's"));
  auto west = Worker("west", 1);
  ASSERT_TRUE(odd->AwaitOutput(kWarning)) << odd->Output();
  ASSERT_TRUE(coordinator->AwaitOutput("(island east, "));
  EXPECT_THAT(islands(), ElementsAre(Pair("east", false), Pair("odd", true),
                                     Pair("west", false)));
  EXPECT_THAT(RunTool({"islands", "--coordinator", Address()}),
              HasSubstr("live, other data"));

  EXPECT_THAT(RunTool({"data", "accept", "odd", "--coordinator", Address()}),
              HasSubstr("the data that island odd reads are the run's"));
  ASSERT_TRUE(west->AwaitOutput(kWarning)) << west->Output();
  EXPECT_THAT(islands(), ElementsAre(Pair("east", true), Pair("odd", false),
                                     Pair("west", true)));
  ASSERT_TRUE(coordinator->AwaitOutput("(island odd, "));
  const int port = Port();
  coordinator->End(SIGKILL);
  coordinator = Start("restarted", CoordinatorCommand(port));
  for (const char* const island : {"east", "west"}) {
    ASSERT_TRUE(coordinator->AwaitOutput(
        absl::StrCat("island ", island, " reads other data")));
  }
  ASSERT_TRUE(coordinator->AwaitOutput("(island odd, "));
  EXPECT_THAT(islands(), ElementsAre(Pair("east", true), Pair("odd", false),
                                     Pair("west", true)));
  for (auto* const process : {&odd, &east, &west, &coordinator}) {
    (*process)->Signal(SIGKILL);
    (*process)->Wait();
  }
}

// Nothing is merged in a pause, so the state directory has the model that was
// measured last.
TEST_F(ValidationTest, AVersionInTheMiddleIsMeasuredAsItWasMerged) {
  auto coordinator = Coordinator(
      0, absl::StrReplaceAll(kConfig,
                             {{"total_steps: 1204", "total_steps: 1000000"},
                              {"fragments: 3", "fragments: 1"},
                              {"overlap_steps: 3", "overlap_steps: 0"},
                              {"every_rounds: 3", "every_rounds: 1"}}));
  auto east = Worker("east", 1);
  auto west = Worker("west", 2);
  // Rounds can be shorter than a heartbeat, which reports the newest only.
  ASSERT_TRUE(coordinator->AwaitOutput(" of the model has"));
  RunTool({"pause", "--coordinator", Address()});
  nlohmann::json evaluated = Evaluate();
  uint64_t version = 0;
  // A merge may have been under way.
  while (version != evaluated["versions"][0]) {
    version = evaluated["versions"][0];
    ASSERT_TRUE(coordinator->AwaitOutput(
        absl::StrCat("version ", version, " of the model has")));
    evaluated = Evaluate();
  }
  const std::vector<v1::ValidationPoint> points = Points();
  EXPECT_EQ(points.back().validation().version(), version);
  EXPECT_NEAR(points.back().validation().loss(), evaluated["loss"], 1e-5);
  for (Process* const process : {east.get(), west.get(), coordinator.get()}) {
    process->End(SIGKILL);
  }
}

}  // namespace
}  // namespace causeway
