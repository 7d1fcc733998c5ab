// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// A real Prometheus scrapes a real run: a coordinator and two workers, as
// processes. Every query of the dashboard gets data from it, and the alerts
// fire when these processes are killed, and only then.
#include <signal.h>
#include <unistd.h>

#include <map>
#include <memory>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "common/testing/http_client.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/end_to_end/free_port.h"
#include "tests/end_to_end/process.h"
#include "tests/end_to_end/process_test_fixture.h"

namespace causeway {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr char kConfig[] = R"pb(
  name: "scraped"
  training {
    total_steps: 100000
    batch_size: 4
    micro_batch_size: 2
    learning_rate: 5e-3
    warmup_steps: 10
  }
  outer_optimizer { momentum: 0.5 }
  synchronization { inner_steps_per_round: 20 fragments: 3 overlap_steps: 3 }
  membership { min_islands: 2 lease_seconds: 20 heartbeat_seconds: 0.1 }
  validation { every_rounds: 3 max_sequences: 4 }
)pb";

// Panels that are rightly empty in this run: it has no TLS, and one rank for
// each island.
const std::set<std::string>& EmptyPanels() {
  static const auto* const panels =
      new std::set<std::string>{"Communication of ranks that was hidden",
                                "Slow ranks", "Certificate is good for"};
  return *panels;
}

// Only elected coordinators have it; //tests/takeover starts some.
constexpr char kElected[] = "causeway_etcd_up";

// Queries that are rightly empty: nothing is paced, and there is neither TLS
// nor an election.
bool IsEmptyQuery(const std::string& query) {
  return absl::StrContains(query, "link_pace_bytes_per_second") ||
         absl::StrContains(query, "certificate_") ||
         absl::StrContains(query, kElected);
}

bool HasProgram(const std::string& name) {
  return access(absl::StrCat("/usr/bin/", name).c_str(), X_OK) == 0;
}

std::string Encoded(const std::string& text) {
  std::string encoded;
  for (const char c : text) {
    absl::StrAppend(&encoded, "%", absl::BytesToHexString({&c, 1}));
  }
  return encoded;
}

// The number of alerts by name.
using Alerts = std::map<std::string, int>;

class PrometheusTest : public ProcessTestFixture {
 protected:
  void SetUp() override {
    if (!HasProgram("prometheus") || !HasProgram("promtool")) {
      GTEST_SKIP() << "Debian's package prometheus is not installed";
    }
  }

  // Starts a daemon that serves metrics. Returns their port.
  int StartDaemon(const std::string& name, std::vector<std::string> command) {
    command.push_back("--metrics_listen=127.0.0.1:0");
    daemons_.push_back(Start(name, std::move(command)));
    EXPECT_TRUE(daemons_.back()->AwaitOutput("/metrics\n"))
        << daemons_.back()->Output();
    const std::string log = daemons_.back()->Output();
    std::smatch port;
    EXPECT_TRUE(std::regex_search(
        log, port, std::regex("metrics at http://127.0.0.1:([0-9]+)/metrics")));
    return std::stoi(port[1]);
  }

  // Starts the coordinator and two islands.
  void StartRun(const std::string& config = kConfig) {
    WriteRun(config);
    coordinator_ = StartDaemon("coordinator", CoordinatorCommand(0));
    ASSERT_TRUE(daemons_.back()->AwaitOutput("waiting for islands"));
    for (const char* const island : {"a", "b"}) {
      workers_.push_back(StartDaemon(island, WorkerCommand(island, Port())));
    }
  }

  // Starts Prometheus with the configuration of deploy/, but for the targets,
  // and scrapes each second. Alerts that wait for minutes wait for a second.
  void StartPrometheus() {
    const std::string folder = ProgramPath("deploy/prometheus/");
    Write("causeway.rules.yml",
          absl::StrReplaceAll(FileText(folder + "causeway.rules.yml"),
                              {{"for: 1m\n", "for: 1s\n"},
                               {"for: 2m\n", "for: 1s\n"},
                               {"for: 10m\n", "for: 1s\n"}}));
    const std::string config = absl::StrReplaceAll(
        FileText(folder + "prometheus.yml"),
        {{"15s", "1s"},
         {"127.0.0.1:9470", absl::StrCat("127.0.0.1:", coordinator_)},
         {"\"127.0.0.1:9471\"",
          absl::StrCat("\"127.0.0.1:", workers_[0],
                       "\", \"127.0.0.1:", workers_[1], "\"")}});
    port_ = FreePort();
    daemons_.push_back(
        Start("prometheus",
              {"/usr/bin/prometheus",
               absl::StrCat("--config.file=", Write("prometheus.yml", config)),
               absl::StrCat("--storage.tsdb.path=", Path("tsdb")),
               absl::StrCat("--web.listen-address=127.0.0.1:", port_)}));
    ASSERT_TRUE(daemons_.back()->AwaitOutput("ready to receive web requests"));
  }

  // Returns Prometheus's answer; null if it fails.
  json Ask(const std::string& path) {
    const HttpReply reply = HttpGet(port_, path);
    const json answer = json::parse(reply.body, nullptr, false);
    if (reply.status != 200 || answer.is_discarded()) return nullptr;
    return answer["data"];
  }

  // Returns the series that a query gives now; null if it fails.
  json Query(const std::string& query) {
    const json data = Ask(absl::StrCat("/api/v1/query?query=", Encoded(query)));
    return data.is_null() ? data : data["result"];
  }

  bool AwaitData(const std::string& query) {
    return Await(
        [&] {
          const json series = Query(query);
          return !series.is_null() && !series.empty();
        },
        absl::Minutes(1), absl::Milliseconds(200));
  }

  Alerts Firing() {
    Alerts firing;
    const json data = Ask("/api/v1/alerts");
    for (const json& alert : data["alerts"]) {
      if (alert["state"] != "firing") continue;
      ++firing[alert["labels"]["alertname"].get<std::string>()];
    }
    // The machine's other work decides whether an island is slow.
    firing.erase("CausewayIslandSlow");
    return firing;
  }

  std::string Status(int exit_code, std::vector<std::string> flags = {}) {
    flags.insert(flags.begin(), {"status", "--coordinator", Address()});
    return RunTool(flags, exit_code);
  }

  // Waits until these alerts fire, and no others.
  void AwaitAlerts(const Alerts& wanted) {
    Alerts firing;
    Await([&] { return (firing = Firing()) == wanted; }, absl::Minutes(1),
          absl::Milliseconds(200));
    ASSERT_EQ(firing, wanted);
  }

  // Expects that Prometheus has series with the labels, states and jobs of the
  // series in the alerts' cases.
  void CheckCases() {
    static const std::regex kSeries("series: '(\\w+)\\{(.*)\\}'");
    static const std::regex kLabel("(\\w+)=\"([^\"]*)\"");
    const std::string cases =
        FileText(ProgramPath("deploy/prometheus/causeway.rules_test.yml"));
    std::map<std::string, json> scraped;
    for (std::sregex_iterator each(cases.begin(), cases.end(), kSeries), end;
         each != end; ++each) {
      const std::string metric = (*each)[1];
      const std::string text = (*each)[2];
      std::set<std::string> names = {"__name__"};
      std::string selector;
      for (std::sregex_iterator label(text.begin(), text.end(), kLabel);
           label != end; ++label) {
        const std::string name = (*label)[1];
        names.insert(name);
        if (name == "job" || name == "state" || name == "direction") {
          absl::StrAppend(&selector, label->str(), ",");
        }
      }
      const std::string query = absl::StrCat(metric, "{", selector, "}");
      if (IsEmptyQuery(query)) continue;
      if (!scraped.contains(query)) scraped[query] = Query(query);
      ASSERT_FALSE(scraped[query].empty()) << query;
      for (const json& series : scraped[query]) {
        std::set<std::string> found;
        for (const auto& [name, value] : series["metric"].items()) {
          found.insert(name);
        }
        EXPECT_EQ(found, names) << metric;
      }
    }
    EXPECT_GT(scraped.size(), 10);
  }

  // Expects that promtool finds nothing wrong with the metrics at `port`.
  // Returns the metrics' names.
  std::set<std::string> CheckMetrics(int port) {
    const HttpReply reply = HttpGet(port, "/metrics");
    EXPECT_EQ(reply.status, 200);
    const std::string file = Write("metrics", reply.body);
    Process tool({"/bin/sh", "-c",
                  absl::StrCat("promtool check metrics < '", file, "'")},
                 Path("promtool.log"));
    EXPECT_EQ(tool.Wait(), 0) << tool.Output();
    EXPECT_EQ(tool.Output(), "");
    std::remove(Path("promtool.log").c_str());
    std::set<std::string> names;
    for (const absl::string_view line : absl::StrSplit(reply.body, '\n')) {
      if (absl::StartsWith(line, "# TYPE ")) {
        names.insert(std::vector<std::string>(absl::StrSplit(line, ' '))[2]);
      }
    }
    return names;
  }

  // Expects that all metrics in a query of ours are among `known`.
  static void CheckNames(const std::string& query,
                         const std::set<std::string>& known) {
    static const std::regex kName("\\b(causeway|process)_[a-z_]+");
    for (std::sregex_iterator match(query.begin(), query.end(), kName), end;
         match != end; ++match) {
      const std::string name =
          absl::StrReplaceAll(match->str(), {{"_bucket", ""}});
      EXPECT_TRUE(known.contains(name) || name == kElected)
          << name << " in " << query;
    }
  }

  int port_ = 0;
  int coordinator_ = 0;
  std::vector<int> workers_;
  std::vector<std::unique_ptr<Process>> daemons_;
};

TEST_F(PrometheusTest, ScrapesARunAndFeedsTheDashboard) {
  StartRun();
  EXPECT_EQ(HttpGet(coordinator_, "/readyz").status, 200);
  ASSERT_TRUE(daemons_[1]->AwaitOutput("step 100/"));
  EXPECT_EQ(HttpGet(workers_[0], "/readyz").status, 200);
  StartPrometheus();
  // Both have been scraped twice, so that there are rates.
  ASSERT_TRUE(AwaitData("rate(causeway_rounds_merged_total[5s]) > 0"));
  ASSERT_TRUE(AwaitData("rate(causeway_worker_tokens_total[5s]) > 0"));
  ASSERT_TRUE(AwaitData("causeway_validation_loss"));
  EXPECT_TRUE(AwaitData("sum(up) == 3"));
  EXPECT_EQ(Query("causeway_worker_joined == 1").size(), 2);
  EXPECT_EQ(Query("causeway_build_info == 1").size(), 3);
  // The metrics are those of the Status service.
  EXPECT_EQ(Query("causeway_islands_live == 2").size(), 1);
  EXPECT_EQ(Query("causeway_fragment_version > 0").size(), 3);

  std::set<std::string> known = CheckMetrics(coordinator_);
  known.merge(CheckMetrics(workers_[0]));

  const json dashboard =
      json::parse(FileText(ProgramPath("deploy/grafana/causeway.json")));
  int queries = 0;
  for (const json& panel : dashboard["panels"]) {
    if (!panel.contains("targets")) continue;
    const std::string title = panel["title"];
    for (const json& target : panel["targets"]) {
      const std::string query =
          absl::StrReplaceAll(target["expr"].get<std::string>(),
                              {{"$run", ".*"}, {"$__rate_interval", "1m"}});
      CheckNames(query, known);
      const json series = Query(query);
      ++queries;
      ASSERT_FALSE(series.is_null()) << "not a query: " << query;
      EXPECT_EQ(series.empty(),
                EmptyPanels().contains(title) || IsEmptyQuery(query))
          << title << ": " << query;
    }
  }
  EXPECT_GT(queries, 40);

  const json groups = Ask("/api/v1/rules")["groups"];
  ASSERT_EQ(groups.size(), 1);
  for (const json& rule : groups[0]["rules"]) {
    EXPECT_EQ(rule["health"], "ok") << rule;
    CheckNames(rule["query"], known);
  }
  CheckCases();
  // This is H even if no island trains a share of it.
  EXPECT_EQ(Query("causeway_island_inner_steps_per_round == 20").size(), 2);
  EXPECT_EQ(Query("causeway_seconds_left > 0").size(), 1);
  EXPECT_EQ(Query("causeway_attention == 0").size(), 2);
  Alerts firing = Firing();
  firing.erase("CausewayDiskNearlyFull");
  EXPECT_THAT(firing, testing::IsEmpty());
}

TEST_F(PrometheusTest, AlertsOnKilledProcessesLastUntilTheyAreBack) {
  StartRun(
      absl::StrReplaceAll(kConfig, {{"lease_seconds: 20", "lease_seconds: 3"},
                                    {"overlap_steps: 3", "overlap_steps: 0"}}));
  ASSERT_TRUE(daemons_[1]->AwaitOutput("step 100/"));
  StartPrometheus();
  ASSERT_TRUE(AwaitData("causeway_last_round_timestamp_seconds"));
  ASSERT_TRUE(AwaitData("causeway_islands_live == 2"));
  EXPECT_THAT(Status(0, {"--check"}), HasSubstr(", running\n"));

  // One island is enough for this run, but the other is missed.
  daemons_[1]->Signal(SIGKILL);
  ASSERT_NO_FATAL_FAILURE(AwaitAlerts(Alerts{{"CausewayIslandGone", 1}}));
  EXPECT_THAT(Status(3, {"--check"}), HasSubstr("island a is gone"));
  daemons_[2]->Signal(SIGKILL);
  ASSERT_NO_FATAL_FAILURE(AwaitAlerts(
      Alerts{{"CausewayIslandGone", 2}, {"CausewayIslandsMissing", 1}}));
  EXPECT_THAT(Status(4, {"--check"}),
              AllOf(HasSubstr(", waiting for islands for "),
                    HasSubstr("waiting for 1 of 1 island; the last to leave "
                              "was b (no heartbeat for"),
                    HasSubstr("next: `causeway evict a`")));
  EXPECT_THAT(Status(0), Not(HasSubstr(" left\n")));

  daemons_[0]->Signal(SIGKILL);
  ASSERT_NO_FATAL_FAILURE(AwaitAlerts(Alerts{{"CausewayCoordinatorDown", 1}}));
  // It comes back without its islands.
  daemons_[0] =
      Start("coordinator-again",
            CoordinatorCommand(
                Port(), "state",
                {absl::StrCat("--metrics_listen=127.0.0.1:", coordinator_)}));
  ASSERT_NO_FATAL_FAILURE(AwaitAlerts(
      Alerts{{"CausewayIslandGone", 2}, {"CausewayIslandsMissing", 1}}));
  RunTool({"evict", "a", "--coordinator", Address()});
  ASSERT_NO_FATAL_FAILURE(AwaitAlerts(
      Alerts{{"CausewayIslandGone", 1}, {"CausewayIslandsMissing", 1}}));
  daemons_[2] = Start("b-again", WorkerCommand("b", Port()));
  ASSERT_NO_FATAL_FAILURE(AwaitAlerts(Alerts{}));
}

// Island b is stopped for longer than rounds may stand still, which is 30 s and
// a few short rounds, while its lease goes on.
TEST_F(PrometheusTest, TellsThatRoundsStandStillUntilTheyGoOn) {
  StartRun(absl::StrReplaceAll(
      kConfig,
      {{"lease_seconds: 20", "quorum: 2 lease_seconds: 600 grace_seconds: 1"},
       {"overlap_steps: 3", "overlap_steps: 0"}}));
  ASSERT_TRUE(daemons_[1]->AwaitOutput("step 100/"));
  StartPrometheus();
  ASSERT_TRUE(AwaitData("causeway_seconds_left > 0"));
  EXPECT_THAT(Status(0), HasSubstr(" left\n"));

  daemons_[2]->Signal(SIGSTOP);
  ASSERT_NO_FATAL_FAILURE(AwaitAlerts(Alerts{{"CausewayRoundsStandStill", 1}}));
  EXPECT_EQ(Query("causeway_attention{severity=\"critical\"} == 1").size(), 1);
  EXPECT_EQ(Query("causeway_islands_ready == 2").size(), 1);
  EXPECT_TRUE(Query("causeway_seconds_left").empty());
  EXPECT_THAT(Status(4, {"--check"}),
              AllOf(HasSubstr(", standing still\n"),
                    HasSubstr("no round is merged; usually one takes "),
                    HasSubstr("next: `causeway fragments`")));
  EXPECT_THAT(Status(0), Not(HasSubstr(" left\n")));

  daemons_[2]->Signal(SIGCONT);
  ASSERT_NO_FATAL_FAILURE(AwaitAlerts(Alerts{}));
  EXPECT_THAT(Status(0, {"--check"}), HasSubstr(", running\n"));
}

// Both islands diverge before they contribute, whenever they start again.
TEST_F(PrometheusTest, TellsThatARunHasDiverged) {
  StartRun(absl::StrReplaceAll(kConfig, {{"5e-3", "10 weight_decay: 10"}}));
  ASSERT_TRUE(daemons_[1]->AwaitOutput("starting again from the run's"));
  StartPrometheus();
  EXPECT_NE(daemons_[1]->Wait(), 0);
  EXPECT_NE(daemons_[2]->Wait(), 0);
  ASSERT_NO_FATAL_FAILURE(AwaitAlerts(Alerts{{"CausewayIslandDiverged", 2},
                                             {"CausewayIslandsMissing", 1},
                                             {"CausewayRunDiverged", 1}}));
  EXPECT_THAT(
      Status(4, {"--check"}),
      AllOf(HasSubstr("waiting for 1 of 1 island; the last to leave was "),
            HasSubstr("island a has diverged and not rejoined (step"),
            HasSubstr("island b has diverged and not rejoined (step")));
}

}  // namespace
}  // namespace causeway
