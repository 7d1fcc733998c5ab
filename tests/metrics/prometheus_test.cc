// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// A real Prometheus scrapes a real run: a coordinator and two workers, as
// processes. Every query of the dashboard gets data from it.
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

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
#include "absl/time/clock.h"
#include "common/testing/http_client.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/end_to_end/process.h"
#include "tests/end_to_end/process_test_fixture.h"

namespace causeway {
namespace {

using nlohmann::json;
using testing::HasSubstr;

constexpr char kConfig[] = R"pb(
  name: "scraped"
  model {
    layers: 2
    hidden_size: 32
    intermediate_size: 64
    heads: 2
    sequence_length: 32
  }
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

// Queries that are rightly empty: nothing is paced.
bool IsEmptyQuery(const std::string& query) {
  return absl::StrContains(query, "link_pace_bytes_per_second");
}

bool HasProgram(const std::string& name) {
  return access(absl::StrCat("/usr/bin/", name).c_str(), X_OK) == 0;
}

// Returns a port that is free now. Prometheus cannot choose one itself.
int FreePort() {
  const int file = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  EXPECT_EQ(bind(file, reinterpret_cast<sockaddr*>(&address), size), 0);
  getsockname(file, reinterpret_cast<sockaddr*>(&address), &size);
  close(file);
  return ntohs(address.sin_port);
}

std::string Encoded(const std::string& text) {
  std::string encoded;
  for (const char c : text) {
    absl::StrAppend(&encoded, "%", absl::BytesToHexString({&c, 1}));
  }
  return encoded;
}

class PrometheusTest : public ProcessTestFixture {
 protected:
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
  void StartRun() {
    Write("run.textproto", kConfig);
    coordinator_ = StartDaemon("coordinator", CoordinatorCommand(0));
    ASSERT_TRUE(daemons_.back()->AwaitOutput("waiting for islands"));
    for (const char* const island : {"a", "b"}) {
      workers_.push_back(StartDaemon(island, WorkerCommand(island, Port())));
    }
  }

  // Starts Prometheus with the configuration of deploy/, but for the targets,
  // and scrapes each second.
  void StartPrometheus() {
    const std::string folder = ProgramPath("deploy/prometheus/");
    Write("causeway.rules.yml", FileText(folder + "causeway.rules.yml"));
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

  // Returns what Prometheus answers; null if it fails.
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

  // Waits until a query gives series.
  bool AwaitData(const std::string& query) {
    const absl::Time deadline = absl::Now() + absl::Seconds(60);
    while (absl::Now() < deadline) {
      const json series = Query(query);
      if (!series.is_null() && !series.empty()) return true;
      absl::SleepFor(absl::Milliseconds(200));
    }
    return false;
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
      EXPECT_TRUE(known.contains(name)) << name << " in " << query;
    }
  }

  int port_ = 0;
  int coordinator_ = 0;
  std::vector<int> workers_;
  std::vector<std::unique_ptr<Process>> daemons_;
};

TEST_F(PrometheusTest, ScrapesARunAndFeedsTheDashboard) {
  if (!HasProgram("prometheus") || !HasProgram("promtool")) {
    GTEST_SKIP() << "Debian's package prometheus is not installed";
  }
  StartRun();
  EXPECT_EQ(HttpGet(coordinator_, "/readyz").status, 200);
  ASSERT_TRUE(daemons_[1]->AwaitOutput("step 100/"));
  EXPECT_EQ(HttpGet(workers_[0], "/readyz").status, 200);
  StartPrometheus();
  // Both have been scraped twice, so that there are rates.
  ASSERT_TRUE(AwaitData("rate(causeway_rounds_merged_total[5s]) > 0"));
  ASSERT_TRUE(AwaitData("rate(causeway_worker_tokens_total[5s]) > 0"));
  ASSERT_TRUE(AwaitData("causeway_validation_loss"));
  EXPECT_EQ(Query("sum(up) == 3").size(), 1);
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
}

}  // namespace
}  // namespace causeway
