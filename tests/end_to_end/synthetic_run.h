// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// A run in one process: a real coordinator on a real port, and real islands on
// threads of their own. Instead of a language model they have a trainer whose
// every step is known in closed form, so that tests can predict the result.
#ifndef TESTS_END_TO_END_SYNTHETIC_RUN_H_
#define TESTS_END_TO_END_SYNTHETIC_RUN_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "grpcpp/security/credentials.h"
#include "proto/run_config.pb.h"
#include "proto/status.pb.h"
#include "server/edge/server.h"
#include "server/engine.h"
#include "worker/inner_trainer.h"
#include "worker/island_runner.h"
#include "worker/replica/fragment_replica.h"
#include "worker/replica/testing/host_replica.h"

namespace causeway {

// Returns the smallest model with three blocks, H = 10, 30 steps, two islands.
v1::RunConfig SyntheticConfig();

// Plain gradient descent on 0.5 |theta - target|^2: one step takes every
// parameter a tenth of the way to `target`.
class QuadraticTrainer : public InnerTrainer {
 public:
  static constexpr float kRate = 0.1f;
  static constexpr uint64_t kTokensPerStep = 100;

  // `before_step` may wait, or return an error, which ends the island.
  QuadraticTrainer(std::vector<float> parameters, float target,
                   std::function<absl::Status(uint64_t)> before_step);

  absl::Span<float> parameters() { return absl::MakeSpan(parameters_); }
  absl::StatusOr<std::vector<std::unique_ptr<FragmentReplica>>> MakeReplica(
      const v1::JoinResponse& joined) override;
  absl::StatusOr<InnerStepResult> Step(uint64_t run_step) override;

 private:
  std::vector<float> parameters_;
  const float target_;
  const std::function<absl::Status(uint64_t)> before_step_;
  std::unique_ptr<HostReplica> replica_;
};

class CoordinatorUnderTest {
 public:
  // `address` is host:port; port 0 takes a free one.
  static absl::StatusOr<std::unique_ptr<CoordinatorUnderTest>> Start(
      const v1::RunConfig& config, const std::string& state_dir,
      const std::string& address = "127.0.0.1:0");
  std::string address() const;
  Engine& engine() { return *engine_; }
  // Returns the whole model, gathered from the committed fragments.
  absl::StatusOr<std::vector<float>> Parameters();
  // Waits until `reached` holds for the report of the first island in order of
  // name. Returns the report.
  v1::IslandProgress AwaitProgress(
      const std::function<bool(const v1::IslandProgress&)>& reached);

 private:
  v1::RunConfig config_;
  std::string state_dir_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<CoordinatorServer> server_;
};

class IslandUnderTest {
 public:
  struct Options {
    std::string name;
    std::string address;
    float target = 0;
    uint64_t instance_id = 0;
    std::shared_ptr<grpc::ChannelCredentials> credentials =
        grpc::InsecureChannelCredentials();
    // True if `credentials` are for TLS.
    bool tls = false;
    // See Island's option.
    std::optional<uint32_t> overlap_steps = std::nullopt;
    // The rate to which uploads are paced; 0 does not pace them.
    double uplink_bytes_per_second = 0;
    std::function<absl::Status(uint64_t)> before_step = [](uint64_t) {
      return absl::OkStatus();
    };
    // Returns whether the step with this number leaves values that are not
    // finite.
    std::function<bool(uint64_t)> poison = [](uint64_t) { return false; };
  };
  explicit IslandUnderTest(Options options);
  ~IslandUnderTest();

  // Waits for the island's end. Returns the result of Run.
  absl::Status Join();
  void Stop() { runner_->Stop(); }
  void RequestLeave(const std::string& reason) {
    runner_->RequestLeave(reason);
  }
  // The trainer's parameters, after Join.
  const std::vector<float>& parameters() const { return final_parameters_; }

 private:
  std::unique_ptr<IslandRunner> runner_;
  std::vector<float> final_parameters_;
  absl::Status status_;
  std::thread thread_;
};

// Returns an empty directory that belongs to the test.
std::string NewStateDir();

struct SyntheticResult {
  // The coordinator's last parameters.
  std::vector<float> global;
  // Each island's last parameters.
  std::vector<std::vector<float>> locals;
  // The coordinator's view of the islands at the end.
  v1::ListIslandsResponse islands;
};

// Runs these islands, which need no address, to the end of the run. Failures
// are failures of the test.
SyntheticResult RunIslands(const v1::RunConfig& config,
                           const std::string& state_dir,
                           std::vector<IslandUnderTest::Options> islands);

// Runs two islands, "east" and "west", that descend to 1 and to -3.
SyntheticResult RunTwoIslands(const v1::RunConfig& config);

}  // namespace causeway

#endif  // TESTS_END_TO_END_SYNTHETIC_RUN_H_
