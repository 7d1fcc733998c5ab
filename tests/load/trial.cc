// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/load/trial.h"

#include <sys/resource.h>

#include <memory>
#include <thread>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/substitute.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/config/run_config.h"
#include "common/status_macros.h"
#include "common/tensors/model_layout.h"
#include "outer_optimizer/fragment_plan.h"
#include "server/footprint.h"
#include "server/storage/state_directory.h"
#include "tests/end_to_end/synthetic_run.h"
#include "tests/load/joiner.h"
#include "tests/load/watched_coordinator.h"

namespace causeway {
namespace {

// No island is evicted for being slow on a busy machine, or for an unusual
// contribution, and every round includes all islands.
constexpr char kConfig[] = R"(
  name: "load"
  model {
    layers: $0
    hidden_size: $1
    intermediate_size: $2
    heads: 1
    vocab_size: 258
    sequence_length: 8
  }
  training { total_steps: $3 batch_size: 1 }
  synchronization { inner_steps_per_round: 1 }
  membership {
    min_islands: $4
    max_islands: $5
    quorum: $4
    grace_seconds: 600
    lease_seconds: 600
    heartbeat_seconds: 1
    outlier_factor: 0
  }
)";

absl::StatusOr<v1::RunConfig> ConfigOf(int layers, int hidden_size, int rounds,
                                       int min_islands, int max_islands) {
  return ParseRunConfig(
      absl::Substitute(kConfig, layers, hidden_size, 8 * hidden_size / 3,
                       rounds, min_islands, max_islands),
      "load");
}

uint64_t ParametersOf(const v1::RunConfig& config) {
  return static_cast<uint64_t>(MakeModelLayout(config.model()).size);
}

// Returns the most bytes of uploads, and of their decompressed codes.
absl::StatusOr<uint64_t> MostStaged(const v1::RunConfig& config) {
  ASSIGN_OR_RETURN(const v1::FragmentPlan plan,
                   MakeFragmentPlan(MakeModelLayout(config.model()), config));
  const StagingBytes staging = StagingBytesOf(config, plan);
  return staging.uploads + staging.codes;
}

// Checks that every round has merged every island.
absl::Status CheckMerged(const std::string& directory, int islands,
                         int rounds) {
  ASSIGN_OR_RETURN(
      const std::unique_ptr<StateDirectory> state,
      StateDirectory::OpenReadOnly(absl::StrCat(directory, "/state")));
  for (int version = 1; version <= rounds; ++version) {
    ASSIGN_OR_RETURN(const CommitRecord commit,
                     state->log().FindCommit(0, version));
    if (commit.participation.merged() == static_cast<uint64_t>(islands)) {
      continue;
    }
    return absl::InternalError(
        absl::Substitute("version $0 has contributions of $1 islands, want $2",
                         version, commit.participation.merged(), islands));
  }
  return absl::OkStatus();
}

// Returns the processor time of this process, which runs the islands.
double OwnCpuSeconds() {
  rusage use = {};
  getrusage(RUSAGE_SELF, &use);
  return absl::ToDoubleSeconds(absl::DurationFromTimeval(use.ru_utime) +
                               absl::DurationFromTimeval(use.ru_stime));
}

// Marks where rounds begin, on one island's training thread.
class RoundClock {
 public:
  explicit RoundClock(WatchedCoordinator* coordinator)
      : coordinator_(coordinator) {}

  absl::Time begin() const { return begin_; }
  const std::vector<RoundLoad>& rounds() const { return rounds_; }

  void Begin() {
    begin_ = since_ = absl::Now();
    cpu_ = coordinator_->CpuSeconds();
    islands_cpu_ = OwnCpuSeconds();
    coordinator_->TakePeak();
  }
  void End() {
    const absl::Time now = absl::Now();
    const double cpu = coordinator_->CpuSeconds();
    const double islands_cpu = OwnCpuSeconds();
    rounds_.push_back({.seconds = absl::ToDoubleSeconds(now - since_),
                       .cpu_seconds = cpu - cpu_,
                       .islands_cpu_seconds = islands_cpu - islands_cpu_,
                       .peak_bytes = coordinator_->TakePeak()});
    since_ = now;
    cpu_ = cpu;
    islands_cpu_ = islands_cpu;
  }

 private:
  WatchedCoordinator* const coordinator_;
  absl::Time begin_;
  absl::Time since_;
  double cpu_ = 0;
  double islands_cpu_ = 0;
  std::vector<RoundLoad> rounds_;
};

absl::StatusOr<JoinersLoad> LetJoin(WatchedCoordinator& coordinator,
                                    int joiners, double limit) {
  // Instance numbers start so high that they never equal those of this run's
  // islands.
  static uint64_t instance = 1'000'000;
  std::vector<absl::StatusOr<uint64_t>> results(joiners);
  JoinersLoad load{.joiners = joiners,
                   .before_bytes = coordinator.AnonymousBytes()};
  coordinator.TakePeak();
  const double cpu = coordinator.CpuSeconds();
  const absl::Time begin = absl::Now();
  std::vector<std::thread> threads;
  for (int i = 0; i < joiners; ++i) {
    const JoinerOptions options{.address = coordinator.address(),
                                .name = absl::StrCat("joiner-", i),
                                .instance_id = ++instance,
                                .limit = limit};
    threads.emplace_back(
        [options, result = &results[i]] { *result = JoinAndLeave(options); });
  }
  for (std::thread& thread : threads) thread.join();
  load.seconds = absl::ToDoubleSeconds(absl::Now() - begin);
  load.cpu_seconds = coordinator.CpuSeconds() - cpu;
  load.peak_bytes = coordinator.TakePeak();
  for (const absl::StatusOr<uint64_t>& result : results) {
    RETURN_IF_ERROR(result.status());
    load.bytes += *result;
  }
  return load;
}

}  // namespace

absl::StatusOr<LoadResult> RunRounds(const LoadOptions& options) {
  ASSIGN_OR_RETURN(const v1::RunConfig config,
                   ConfigOf(options.layers, options.hidden_size, options.rounds,
                            options.islands, options.islands));
  LoadResult result{.parameters = ParametersOf(config)};
  ASSIGN_OR_RETURN(result.staging_bytes, MostStaged(config));
  ASSIGN_OR_RETURN(
      const std::unique_ptr<WatchedCoordinator> coordinator,
      WatchedCoordinator::Start(options.programs, options.directory, config));
  result.idle_bytes = coordinator->AnonymousBytes();
  RoundClock clock(coordinator.get());
  const absl::Time start = absl::Now();
  const double start_cpu = coordinator->CpuSeconds();
  std::vector<std::unique_ptr<IslandUnderTest>> islands;
  for (int i = 0; i < options.islands; ++i) {
    IslandUnderTest::Options island{
        .name = absl::StrCat("island-", i),
        .address = coordinator->address(),
        .target = 1.0f + static_cast<float>(i),
        .instance_id = static_cast<uint64_t>(i) * 1000 + 1};
    if (i == 0) {
      island.before_step = [&](uint64_t step) {
        if (step > 1) {
          clock.End();
          return absl::OkStatus();
        }
        result.join_cpu_seconds = coordinator->CpuSeconds() - start_cpu;
        result.joined_bytes = coordinator->AnonymousBytes();
        clock.Begin();
        return absl::OkStatus();
      };
    }
    islands.push_back(std::make_unique<IslandUnderTest>(std::move(island)));
  }
  for (const std::unique_ptr<IslandUnderTest>& island : islands) {
    RETURN_IF_ERROR(island->Join());
    // The last round ends with the first island that ends.
    if (island == islands.front()) clock.End();
  }
  result.join_seconds = absl::ToDoubleSeconds(clock.begin() - start);
  result.rounds = clock.rounds();
  RETURN_IF_ERROR(coordinator->Stop());
  RETURN_IF_ERROR(
      CheckMerged(options.directory, options.islands, options.rounds));
  return result;
}

absl::StatusOr<JoinersResult> RunJoiners(const JoinersOptions& options) {
  // The run has more rounds than take place.
  ASSIGN_OR_RETURN(const v1::RunConfig config,
                   ConfigOf(options.layers, options.hidden_size, /*rounds=*/9,
                            /*min_islands=*/1, options.joiners + 1));
  ASSIGN_OR_RETURN(
      const std::unique_ptr<WatchedCoordinator> coordinator,
      WatchedCoordinator::Start(options.programs, options.directory, config));
  absl::Notification merged;
  absl::Notification over;
  IslandUnderTest resident({.name = "resident",
                            .address = coordinator->address(),
                            .target = 1,
                            .instance_id = 1,
                            .before_step = [&](uint64_t step) {
                              if (step == 1) return absl::OkStatus();
                              if (!merged.HasBeenNotified()) merged.Notify();
                              over.WaitForNotification();
                              return absl::CancelledError("seen enough");
                            }});
  const absl::Cleanup let_go = [&] {
    if (!over.HasBeenNotified()) over.Notify();
  };
  if (!merged.WaitForNotificationWithTimeout(absl::Minutes(5))) {
    return absl::DeadlineExceededError("the first round did not close");
  }
  JoinersResult result{.parameters = ParametersOf(config)};
  ASSIGN_OR_RETURN(result.alone, LetJoin(*coordinator, 1, options.limit));
  ASSIGN_OR_RETURN(result.together,
                   LetJoin(*coordinator, options.joiners, options.limit));
  return result;
}

}  // namespace causeway
