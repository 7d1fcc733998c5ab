// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// A run that continues under attack. The coordinator is a process of its own,
// whose memory is watched; honest islands run in this process. Each round is
// one step, and needs every island.
//
// To measure, set SIEGE_SECONDS (of an attack, and of the calm before it),
// SIEGE_TURNS (attacks) and SIEGE_STEP_MS (an island's step) in the
// environment. docs/benchmarks_faults.md has the command.
#ifndef TESTS_HOSTILE_SIEGE_H_
#define TESTS_HOSTILE_SIEGE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/testing/temporary_directory.h"
#include "common/transport/testing/certificates.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "proto/status.pb.h"
#include "tests/end_to_end/synthetic_run.h"
#include "tests/hostile/raw_http2.h"
#include "tests/load/watched_coordinator.h"

namespace causeway {

using RawConnections = std::vector<std::unique_ptr<RawHttp2>>;

class Siege : public testing::Test {
 protected:
  struct Options {
    // If true, connections use mutual TLS.
    bool tls = false;
    // The coordinator's soft and hard limits of open files.
    int soft_files = 1024;
    int hard_files = 4096;
    // Further arguments of the coordinator.
    std::vector<std::string> arguments = {};
  };
  // The number of islands up to which the coordinator admits everyone.
  static constexpr int kMaxIslands = 8;
  // The most memory that an attack may cost the coordinator.
  static constexpr uint64_t kMostBytes = 150 << 20;

  Siege();
  ~Siege() override;

  void Start(const Options& options);
  void Start() { Start(Options()); }
  WatchedCoordinator& coordinator() { return *coordinator_; }
  int port() const;
  // Returns a new connection with the credentials of an island, which has none
  // in plain text.
  std::shared_ptr<grpc::Channel> NewChannel(
      const std::string& island = "attacker");

  // Starts an honest island.
  void AddIsland(const std::string& name);
  // Waits until each island has been in `rounds` more rounds.
  void AwaitRounds(uint64_t rounds);

  // Repeats `attack` for some seconds, while rounds go on, and then checks its
  // cost. The last result of `attack` lives as long as the attack.
  template <typename Attack>
  void Resist(Attack attack) {
    ResistAny([&]() -> std::shared_ptr<void> {
      return std::make_shared<decltype(attack())>(attack());
    });
  }

  // Asks again if the coordinator is overloaded.
  v1::RunStatus Run() const;
  // Waits until `is_so` holds for the status.
  void AwaitStatus(const std::function<bool(const v1::RunStatus&)>& is_so);

 private:
  std::shared_ptr<grpc::ChannelCredentials> Credentials(
      const std::string& island);
  void ResistAny(const std::function<std::shared_ptr<void>()>& attack);
  // Returns the rounds of the slowest island in a second while `act` is called
  // again and again.
  double RoundsPerSecond(const std::function<void()>& act);
  // Returns the rounds of the slowest island.
  uint64_t Rounds();

  TemporaryDirectory directory_;
  // Null in plain text.
  std::unique_ptr<TestAuthority> authority_;
  std::unique_ptr<WatchedCoordinator> coordinator_;
  // The connection that Run uses.
  std::shared_ptr<grpc::Channel> channel_;
  std::vector<std::unique_ptr<IslandUnderTest>> islands_;
  absl::Mutex mu_;
  // The number of rounds, by island.
  std::map<std::string, uint64_t> rounds_ ABSL_GUARDED_BY(mu_);
};

}  // namespace causeway

#endif  // TESTS_HOSTILE_SIEGE_H_
