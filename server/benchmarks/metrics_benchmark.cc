// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Measures the cost of a scrape: asking a coordinator with many live islands
// for its status, and writing it as metrics. The argument is the number of
// islands. docs/metrics.md has the figures, of --benchmark_filter=256.
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "benchmark/benchmark.h"
#include "common/clock.h"
#include "common/config/run_config.h"
#include "common/metrics/metric_families.h"
#include "common/metrics/process_metrics.h"
#include "common/testing/temporary_directory.h"
#include "glog/logging.h"
#include "server/edge/server.h"
#include "server/engine.h"
#include "server/status_metrics.h"

namespace causeway {
namespace {

constexpr char kConfig[] = R"pb(
  name: "scraped"
  model {
    layers: 4
    hidden_size: 32
    intermediate_size: 64
    heads: 2
    sequence_length: 32
  }
  training { total_steps: 1000 batch_size: 4 micro_batch_size: 2 }
  synchronization { inner_steps_per_round: 20 fragments: 4 }
  membership {
    min_islands: 1
    max_islands: 1024
    lease_seconds: 3600
    heartbeat_seconds: 1
  }
)pb";

// A coordinator with islands that have sent a heartbeat.
class Scraped {
 public:
  explicit Scraped(int islands) {
    auto config = ParseRunConfig(kConfig, "config");
    CHECK(config.ok()) << config.status();
    auto engine = Engine::Start({.state_dir = directory_.path(),
                                 .config = *config,
                                 .now = SteadyWallClock()});
    CHECK(engine.ok()) << engine.status();
    engine_ = *std::move(engine);
    auto server = CoordinatorServer::Start(
        engine_.get(), {.address = "127.0.0.1:0", .now = SteadyWallClock()});
    CHECK(server.ok()) << server.status();
    server_ = *std::move(server);
    for (int i = 0; i < islands; ++i) Join(i);
  }

  std::string Scrape() const {
    const StatusSource& status = server_->status();
    MetricFamilies families;
    AddStatus(status.GetRun(), status.ListIslands(true),
              engine_->ListFragments(), absl::Now(), families);
    AddProcessMetrics(families);
    return families.Text();
  }

 private:
  void Join(int number) {
    v1::JoinRequest join;
    join.set_island_id(absl::StrCat("island-", number));
    join.set_instance_id(number + 1);
    const auto joined = engine_->Join(join);
    CHECK(joined.ok()) << joined.status();
    v1::SessionRequest heartbeat;
    *heartbeat.mutable_identity() = joined->identity();
    v1::IslandProgress& progress = *heartbeat.mutable_progress();
    progress.set_run_step(123);
    progress.set_ready(true);
    progress.set_tokens(12'345);
    progress.set_loss(2.345678901);
    progress.set_tokens_per_second(1234.5678);
    progress.set_bytes_up(123'456'789);
    progress.set_bytes_down(123'456'789);
    progress.set_wait_seconds(1.2345678);
    progress.set_round_trip_seconds(0.0123456);
    progress.set_step_seconds(0.123456);
    for (v1::LinkUse* const link :
         {progress.mutable_uplink(), progress.mutable_downlink()}) {
      link->set_bytes_per_second(1.2345678e6);
      link->set_busy_seconds(12.345678);
      link->set_pace_bytes_per_second(1.25e6);
    }
    CHECK(engine_->Heartbeat(heartbeat).ok());
  }

  const TemporaryDirectory directory_ =
      *TemporaryDirectory::Make("causeway-metrics");
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<CoordinatorServer> server_;
};

void BM_Scrape(benchmark::State& run) {
  const Scraped scraped(static_cast<int>(run.range(0)));
  size_t bytes = 0;
  for (auto _ : run) bytes = scraped.Scrape().size();
  run.counters["bytes"] = static_cast<double>(bytes);
}
BENCHMARK(BM_Scrape)->Arg(2)->Arg(256)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace causeway
