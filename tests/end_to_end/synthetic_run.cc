// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/end_to_end/synthetic_run.h"

#include <functional>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/clock.h"
#include "common/config/run_config.h"
#include "common/os/thread_pool.h"
#include "common/status_macros.h"
#include "common/tensors/model_layout.h"
#include "common/testing/status_matchers.h"
#include "glog/logging.h"
#include "gtest/gtest.h"
#include "outer_optimizer/fragment_plan.h"
#include "server/buffer_pool.h"
#include "server/fragment_merge.h"
#include "server/storage/state_directory.h"
#include "worker/sync/grpc_coordinator_client.h"

namespace causeway {
namespace {

// Hands the trainer's last parameters to the test when it is destroyed.
class ObservedTrainer : public QuadraticTrainer {
 public:
  ObservedTrainer(std::vector<float> parameters,
                  const IslandUnderTest::Options& options,
                  std::vector<float>* last)
      : QuadraticTrainer(std::move(parameters), options.target,
                         options.before_step),
        poison_(options.poison),
        last_(last) {}
  ~ObservedTrainer() override {
    last_->assign(parameters().begin(), parameters().end());
  }
  absl::StatusOr<InnerStepResult> Step(uint64_t run_step) override {
    ASSIGN_OR_RETURN(InnerStepResult result, QuadraticTrainer::Step(run_step));
    if (poison_(run_step)) {
      for (float& value : parameters()) {
        value = std::numeric_limits<float>::quiet_NaN();
      }
    }
    return result;
  }

 private:
  const std::function<bool(uint64_t)> poison_;
  std::vector<float>* const last_;
};

}  // namespace

v1::RunConfig SyntheticConfig() {
  absl::StatusOr<v1::RunConfig> config =
      ParseRunConfig(R"pb(
                       name: "synthetic"
                       model {
                         layers: 3
                         hidden_size: 4
                         intermediate_size: 6
                         heads: 2
                         vocab_size: 258
                         sequence_length: 8
                       }
                       training { total_steps: 30 batch_size: 13 }
                       outer_optimizer { learning_rate: 0.5 momentum: 0.5 }
                       synchronization {
                         inner_steps_per_round: 10
                         uplink_format: FP32
                         downlink_format: FP32
                       }
                       membership {
                         min_islands: 2
                         lease_seconds: 60
                         heartbeat_seconds: 0.1
                         grace_seconds: 30
                         # Targets are further away than training ever goes.
                         outlier_factor: 0
                       }
                     )pb",
                     "synthetic");
  CHECK(config.ok()) << config.status();
  return *std::move(config);
}

QuadraticTrainer::QuadraticTrainer(
    std::vector<float> parameters, float target,
    std::function<absl::Status(uint64_t)> before_step)
    : parameters_(std::move(parameters)),
      target_(target),
      before_step_(std::move(before_step)) {}

absl::StatusOr<std::vector<std::unique_ptr<FragmentReplica>>>
QuadraticTrainer::MakeReplica(const v1::JoinResponse& joined) {
  ASSIGN_OR_RETURN(const FragmentMap map,
                   FragmentMap::Create(MakeModelLayout(joined.config().model()),
                                       joined.plan()));
  ASSIGN_OR_RETURN(
      replica_, HostReplica::Create(
                    map, MakeReplicaOptions(joined.config().synchronization()),
                    absl::MakeSpan(parameters_)));
  return replica_->Fragments();
}

absl::StatusOr<InnerStepResult> QuadraticTrainer::Step(uint64_t run_step) {
  RETURN_IF_ERROR(before_step_(run_step));
  // The compiler cannot know that no parameter is target_.
  const float target = target_;
  for (float& value : parameters_) value -= kRate * (value - target);
  return InnerStepResult{.loss = 1, .tokens = kTokensPerStep};
}

absl::StatusOr<std::unique_ptr<CoordinatorUnderTest>>
CoordinatorUnderTest::Start(const v1::RunConfig& config,
                            const std::string& state_dir,
                            const std::string& address) {
  auto coordinator = std::make_unique<CoordinatorUnderTest>();
  coordinator->config_ = config;
  coordinator->state_dir_ = state_dir;
  ASSIGN_OR_RETURN(coordinator->engine_,
                   Engine::Start({.state_dir = state_dir,
                                  .config = config,
                                  .random = 7,
                                  .now = [] { return absl::Now(); }}));
  ASSIGN_OR_RETURN(
      coordinator->server_,
      CoordinatorServer::Start(coordinator->engine_.get(),
                               {.address = address, .now = SteadyWallClock()}));
  return coordinator;
}

std::string CoordinatorUnderTest::address() const {
  return absl::StrCat("127.0.0.1:", server_->port());
}

absl::StatusOr<std::vector<float>> CoordinatorUnderTest::Parameters() {
  ASSIGN_OR_RETURN(const std::unique_ptr<StateDirectory> state,
                   StateDirectory::OpenReadOnly(state_dir_));
  ASSIGN_OR_RETURN(const RunRecord run, state->log().LoadRun());
  ASSIGN_OR_RETURN(
      const FragmentMap map,
      FragmentMap::Create(MakeModelLayout(config_.model()), run.plan));
  std::vector<float> parameters(map.model_size());
  ThreadPool pool(1);
  BufferPool memory(0);
  for (uint32_t fragment = 0; fragment < map.fragments(); ++fragment) {
    ASSIGN_OR_RETURN(const RestoredFragment restored,
                     RestoreHead(*state, run, fragment, memory, pool));
    map.Scatter(fragment, restored.head.contents().theta,
                absl::MakeSpan(parameters));
  }
  return parameters;
}

v1::IslandProgress CoordinatorUnderTest::AwaitProgress(
    const std::function<bool(const v1::IslandProgress&)>& reached) {
  while (true) {
    const v1::ListIslandsResponse islands = engine_->ListIslands(true);
    if (islands.islands_size() > 0 && reached(islands.islands(0).progress())) {
      return islands.islands(0).progress();
    }
    absl::SleepFor(absl::Milliseconds(10));
  }
}

IslandUnderTest::IslandUnderTest(Options options) {
  Island::Options island{.overlap_steps = options.overlap_steps,
                         .seed = options.instance_id,
                         .now = [] { return absl::Now(); }};
  island.join.set_island_id(options.name);
  island.join.set_instance_id(options.instance_id);
  island.join.set_description("test");
  island.make_trainer = [this, options](const v1::JoinResponse&,
                                        std::vector<float> parameters)
      -> absl::StatusOr<std::unique_ptr<InnerTrainer>> {
    return std::make_unique<ObservedTrainer>(std::move(parameters), options,
                                             &final_parameters_);
  };
  runner_ = std::make_unique<IslandRunner>(IslandRunner::Options{
      .connect =
          [options] {
            return NewGrpcCoordinatorClient(
                {.address = options.address,
                 .credentials = options.credentials,
                 .tls = options.tls,
                 .uplink_bytes_per_second = options.uplink_bytes_per_second,
                 .now = [] { return absl::Now(); }});
          },
      // The coordinator takes each start for another process.
      .island =
          [island]() mutable {
            Island::Options next = island;
            island.join.set_instance_id(island.join.instance_id() + 1000);
            return next;
          }});
  thread_ = std::thread([this] { status_ = runner_->Run(); });
}

IslandUnderTest::~IslandUnderTest() {
  runner_->Stop();
  if (thread_.joinable()) thread_.join();
}

absl::Status IslandUnderTest::Join() {
  if (thread_.joinable()) thread_.join();
  return status_;
}

std::string NewStateDir() {
  static int count = 0;
  return absl::StrCat(testing::TempDir(), "/state-", ++count, "-",
                      absl::ToUnixMicros(absl::Now()));
}

SyntheticResult RunIslands(const v1::RunConfig& config,
                           const std::string& state_dir,
                           std::vector<IslandUnderTest::Options> islands) {
  SyntheticResult result;
  auto coordinator = CoordinatorUnderTest::Start(config, state_dir);
  EXPECT_OK(coordinator);
  if (!coordinator.ok()) return result;
  std::vector<std::unique_ptr<IslandUnderTest>> running;
  for (IslandUnderTest::Options& options : islands) {
    options.address = (*coordinator)->address();
    running.push_back(std::make_unique<IslandUnderTest>(std::move(options)));
  }
  for (const std::unique_ptr<IslandUnderTest>& island : running) {
    EXPECT_OK(island->Join());
    result.locals.push_back(island->parameters());
  }
  EXPECT_EQ((*coordinator)->engine().run_state(), v1::FINISHED);
  result.islands = (*coordinator)->engine().ListIslands(true);
  absl::StatusOr<std::vector<float>> global = (*coordinator)->Parameters();
  EXPECT_OK(global);
  if (global.ok()) result.global = *std::move(global);
  return result;
}

SyntheticResult RunTwoIslands(const v1::RunConfig& config) {
  return RunIslands(config, NewStateDir(),
                    {{.name = "east", .target = 1, .instance_id = 1},
                     {.name = "west", .target = -3, .instance_id = 2}});
}

}  // namespace causeway
