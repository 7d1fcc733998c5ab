// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// A run that goes on while somebody attacks: the coordinator is a process of
// its own, whose memory is watched; honest islands are in this one. Each round
// is one step, and takes every island.
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
    // Mutual TLS.
    bool tls = false;
    // The coordinator's soft and hard limit of open files.
    int soft_files = 1024;
    int hard_files = 4096;
  };
  // Islands of which the coordinator takes as many as come.
  static constexpr int kMaxIslands = 8;
  // What an attack may cost the coordinator.
  static constexpr uint64_t kMostBytes = 150 << 20;

  Siege();
  ~Siege() override;

  void Start(const Options& options);
  void Start() { Start(Options()); }
  WatchedCoordinator& coordinator() { return *coordinator_; }
  int port() const;
  // A connection of its own, with an island's credentials.
  std::shared_ptr<grpc::Channel> NewChannel() const;

  // Lets an honest island in.
  void AddIsland(const std::string& name);
  // Waits until each island has been in so many more rounds.
  void AwaitRounds(uint64_t rounds);

  // Runs `attack` again and again for some seconds, while rounds go on, and
  // then checks what it has cost. What it returned last lives until then.
  void Resist(const std::function<RawConnections()>& attack);

  v1::RunStatus Run() const;
  // Waits until the status is so.
  void AwaitStatus(const std::function<bool(const v1::RunStatus&)>& is_so);

 private:
  TemporaryDirectory directory_;
  std::unique_ptr<WatchedCoordinator> coordinator_;
  std::shared_ptr<grpc::ChannelCredentials> credentials_;
  // For Run.
  std::shared_ptr<grpc::Channel> channel_;
  std::vector<std::unique_ptr<IslandUnderTest>> islands_;
  absl::Mutex mu_;
  // By island.
  std::map<std::string, uint64_t> rounds_ ABSL_GUARDED_BY(mu_);
};

}  // namespace causeway

#endif  // TESTS_HOSTILE_SIEGE_H_
