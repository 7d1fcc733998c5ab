// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Tests an island over gRPC: with a real coordinator, and with a fake one.
#include "worker/island.h"

#include <atomic>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/checksum.h"
#include "common/clock.h"
#include "common/tensors/model_layout.h"
#include "common/testing/grpc_server.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "outer_optimizer/fragment_plan.h"
#include "proto/coordinator.grpc.pb.h"
#include "server/edge/testing/served_engine.h"
#include "worker/collective/culprit.h"
#include "worker/collective/rendezvous.h"
#include "worker/sync/grpc_coordinator_client.h"
#include "worker/sync/testing/warnings.h"
#include "worker/testing/drifting_trainer.h"

namespace causeway {
namespace {

using absl::StatusCode;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;
using testing::Optional;
using testing::StartsWith;

Island::Options Options(DriftingTrainer::BeforeStep before_step) {
  Island::Options options{
      .make_trainer = [before_step = std::move(before_step)](
                          const v1::JoinResponse&, std::vector<float> values)
          -> absl::StatusOr<std::unique_ptr<InnerTrainer>> {
        return std::make_unique<DriftingTrainer>(std::move(values),
                                                 before_step);
      },
      .now = SteadyWallClock()};
  options.join.set_island_id("east");
  options.join.set_instance_id(7);
  return options;
}

absl::Status GoOn(uint64_t) { return absl::OkStatus(); }

class IslandTest : public testing::Test {
 protected:
  // The merged parameters of a single island are its own.
  void Start(const std::string& more = "") {
    config_ = TestRunConfig(
        absl::StrCat("membership { min_islands: 1 outlier_factor: 0 } "
                     "outer_optimizer { algorithm: SGD learning_rate: 1 } ",
                     more));
    ASSERT_OK(driver_.Start(config_));
    ASSERT_OK(driver_.Serve());
  }

  absl::Status Run(Island::Options options) {
    const auto client = NewGrpcCoordinatorClient(
        {.address = driver_.address(), .now = SteadyWallClock()});
    return Island(std::move(options), client.get()).Run();
  }
  v1::IslandStatus Status() {
    const v1::ListIslandsResponse islands = driver_.engine().ListIslands(true);
    EXPECT_EQ(islands.islands_size(), 1);
    return islands.islands(0);
  }
  std::vector<float> Initial() const {
    return InitialParameters(MakeModelLayout(config_.model()), config_.seed());
  }

  v1::RunConfig config_;
  ServedEngine driver_;
};

TEST_F(IslandTest, HandsInAllThatItTrainsAndSaysThatItHasFinished) {
  Start();
  ASSERT_OK(Run(Options(GoOn)));
  EXPECT_EQ(Status().state(), v1::IslandStatus::LEFT);
  EXPECT_EQ(Status().reason(), "finished");
  EXPECT_EQ(Status().ledger().merged(), 2 * 30 * DriftingTrainer::kTokens);
  EXPECT_EQ(Status().contributions_merged(), 2 * 3);
}

TEST_F(IslandTest, AStepLastsAtLeastTheSimulatedTime) {
  constexpr absl::Duration kStepTime = absl::Milliseconds(50);
  constexpr absl::Duration kSlowStep = absl::Milliseconds(120);
  Start();
  std::atomic<int64_t> slept_milliseconds = 0;
  const Clock now = [&, real = SteadyWallClock()] {
    return real() + absl::Milliseconds(slept_milliseconds.load());
  };
  // The times at which steps end.
  std::vector<absl::Time> ends = {now()};
  const auto sleep = [&](absl::Duration time) {
    slept_milliseconds +=
        absl::ToInt64Milliseconds(absl::Ceil(time, absl::Milliseconds(1)));
    ends.push_back(now());
  };
  Island::Options options = Options([&](uint64_t step) {
    // A slow step does not shorten the next one.
    if (step == 5) sleep(kSlowStep);
    return absl::OkStatus();
  });
  options.now = now;
  options.step_time = kStepTime;
  options.sleep = sleep;
  ASSERT_OK(Run(std::move(options)));
  EXPECT_GE(now() - ends[0], 29 * kStepTime + kSlowStep);
  for (size_t i = 1; i < ends.size(); ++i) {
    EXPECT_GE(ends[i] - ends[i - 1], kStepTime) << i;
  }
}

TEST_F(IslandTest, SpeaksTheFormatsOfTheRun) {
  Start("synchronization { uplink_format: E3M0 downlink_format: BF16 }");
  EXPECT_OK(Run(Options(GoOn)));
}

TEST_F(IslandTest, SaysWhyItHasFailed) {
  Start();
  EXPECT_THAT(Run(Options([](uint64_t step) {
                return step < 5 ? absl::OkStatus()
                                : absl::DataLossError("bad sector");
              })),
              IsDataLoss());
  EXPECT_EQ(Status().reason(), "failed: bad sector");
}

TEST_F(IslandTest, ARunThatItCannotTrainIsLeftBeforeAnythingIsFetched) {
  Start();
  Island::Options options = Options(GoOn);
  options.check_run = [](const v1::JoinResponse& joined) {
    EXPECT_EQ(joined.config().name(), "test");
    return absl::FailedPreconditionError("unknown tensors");
  };
  options.make_trainer = nullptr;
  EXPECT_THAT(Run(std::move(options)),
              StatusIs(StatusCode::kFailedPrecondition, "unknown tensors"));
  EXPECT_EQ(Status().state(), v1::IslandStatus::LEFT);
  EXPECT_EQ(Status().reason(), "failed: unknown tensors");
}

TEST_F(IslandTest, ContinuesFromACheckpoint) {
  Start();
  ASSERT_OK_AND_ASSIGN(
      const auto store,
      IslandCheckpointStore::Open(testing::TempDir() + "/island-checkpoint"));
  const auto stop_at_5 = [&](uint64_t step) {
    // The next checkpoint is not left out.
    while (store->busy()) std::this_thread::yield();
    return step < 5 ? absl::OkStatus() : absl::DataLossError("bad sector");
  };
  Island::Options options = Options(stop_at_5);
  options.checkpoints = store.get();
  options.checkpoint_steps = 2;
  EXPECT_THAT(Run(options), IsDataLoss());
  ASSERT_OK_AND_ASSIGN(std::optional<IslandState> state, store->Load());
  ASSERT_TRUE(state.has_value());
  EXPECT_EQ(state->position.run_step(), 4);
  EXPECT_EQ(state->position.instance_id(), 7);
  EXPECT_EQ(state->trainer.optimizer.updates, 4);
  ASSERT_EQ(state->position.fragments_size(), 2);
  for (const int fragment : {0, 1}) {
    EXPECT_EQ(state->position.fragments(fragment).anchor().digest(),
              driver_.Head(fragment).digest());
  }
  const std::vector<float> anchors = Initial();
  EXPECT_EQ(state->anchors, anchors);
  std::vector<float> parameters = anchors;
  for (int step = 0; step < 4; ++step) {
    for (float& value : parameters) value += DriftingTrainer::kDrift;
  }
  EXPECT_EQ(state->trainer.parameters, parameters);

  // The successor begins with a checkpoint of the state that it found. Its
  // anchors differ from the run's to show which state it has.
  for (float& value : state->anchors) value += 1;
  state->position.set_instance_id(7);
  options.resume = std::make_shared<IslandState>(*std::move(state));
  options.join.set_instance_id(8);
  options.join.set_replaces_instance_id(7);
  EXPECT_THAT(Run(options), IsDataLoss());
  ASSERT_OK_AND_ASSIGN(state, store->Load());
  EXPECT_EQ(state->position.run_step(), 4);
  EXPECT_EQ(state->position.instance_id(), 8);
  EXPECT_EQ(state->trainer.optimizer.updates, 4);
  EXPECT_EQ(state->trainer.parameters, parameters);
  for (size_t i = 0; i < anchors.size(); ++i) {
    ASSERT_EQ(state->anchors[i], anchors[i] + 1);
  }
}

// Two islands, one after the other, make the steps that one would.
TEST_F(IslandTest, AnotherIslandContinuesFromTheStateHandedOver) {
  Start("synchronization { overlap_steps: 4 }");
  int steps = 0;
  Island::Options options = Options([&](uint64_t) {
    ++steps;
    return absl::OkStatus();
  });
  Island::Options next = options;
  // The contribution of step 10 is under way until its update is applied.
  options.hands_over = [&] { return steps >= 10; };
  options.hand_over = [&](IslandState state) {
    EXPECT_EQ(state.position.run_step(), 14);
    next.resume = std::make_shared<IslandState>(std::move(state));
    return absl::OkStatus();
  };
  EXPECT_THAT(Run(std::move(options)), IsAborted());
  EXPECT_EQ(Status().state(), v1::IslandStatus::LEFT);
  ASSERT_NE(next.resume, nullptr);
  next.join.set_instance_id(8);
  next.join.set_replaces_instance_id(7);
  ASSERT_OK(Run(std::move(next)));
  EXPECT_EQ(steps, 30);
  EXPECT_EQ(Status().incarnation(), 2);
  EXPECT_EQ(Status().reason(), "finished");
}

TEST_F(IslandTest, MaySendFewerBitsThanTheRunAsksFor) {
  Start("synchronization { uplink_format: ECQ ecq_bits: 4 }");
  Island::Options options = Options(GoOn);
  options.make_trainer = [](const v1::JoinResponse& joined,
                            std::vector<float> values)
      -> absl::StatusOr<std::unique_ptr<InnerTrainer>> {
    // The replica reads its bits from here.
    EXPECT_EQ(joined.config().synchronization().ecq_bits(), 1.5);
    return std::make_unique<DriftingTrainer>(std::move(values), GoOn);
  };
  options.uplink_bits = 1.5;
  ASSERT_OK(Run(std::move(options)));
  EXPECT_EQ(Status().contributions_merged(), 2 * 3);
}

TEST_F(IslandTest, WarnsOfCheckpointsThatOutliveTheUpdates) {
  // The coordinator keeps the updates of 2 rounds of 10 steps.
  Start("storage { update_history: 2 }");
  ASSERT_OK_AND_ASSIGN(
      const auto store,
      IslandCheckpointStore::Open(testing::TempDir() + "/old-checkpoint"));
  Island::Options options =
      Options([](uint64_t) { return absl::DataLossError("bad sector"); });
  options.checkpoints = store.get();
  const auto warnings_with = [&](uint64_t checkpoint_steps) {
    Warnings warnings;
    options.checkpoint_steps = checkpoint_steps;
    options.join.set_instance_id(checkpoint_steps);
    EXPECT_THAT(Run(options), IsDataLoss());
    return warnings.lines();
  };
  EXPECT_THAT(warnings_with(20), Not(Contains(HasSubstr("too old"))));
  EXPECT_THAT(warnings_with(21), Contains(HasSubstr("too old")));
}

TEST_F(IslandTest, RecentCheckpointsAreNewerThanTheOthers) {
  Start();
  ASSERT_OK_AND_ASSIGN(const auto store, IslandCheckpointStore::Open(
                                             testing::TempDir() + "/durable"));
  ASSERT_OK_AND_ASSIGN(const auto recent, IslandCheckpointStore::Open(
                                              testing::TempDir() + "/recent"));
  const auto stop_at_5 = [&](uint64_t step) {
    while (store->busy() || recent->busy()) std::this_thread::yield();
    return step < 5 ? absl::OkStatus() : absl::DataLossError("bad sector");
  };
  Island::Options options = Options(stop_at_5);
  options.checkpoints = store.get();
  options.checkpoint_steps = 100;
  options.recent_checkpoints = recent.get();
  // While the clock stands still, saving costs nothing.
  options.now = [at = options.now()] { return at; };
  EXPECT_THAT(Run(options), IsDataLoss());
  ASSERT_OK_AND_ASSIGN(std::optional<IslandState> state,
                       LoadNewest(store.get(), recent.get()));
  ASSERT_TRUE(state.has_value());
  EXPECT_EQ(state->position.run_step(), 4);
  EXPECT_EQ(state->position.instance_id(), 7);
  ASSERT_OK_AND_ASSIGN(state, store->Load());
  ASSERT_TRUE(state.has_value());
  EXPECT_LT(state->position.run_step(), 4);
}

TEST_F(IslandTest, ARecentCheckpointIsLaterTheLongerWritingTakes) {
  Start();
  ASSERT_OK_AND_ASSIGN(const auto recent, IslandCheckpointStore::Open(
                                              testing::TempDir() + "/written"));
  Island::Options options = Options([&](uint64_t step) {
    while (recent->busy()) std::this_thread::yield();
    return step < 5 ? absl::OkStatus() : absl::DataLossError("bad sector");
  });
  options.recent_checkpoints = recent.get();
  // For the training thread the clock stands still; for others it advances.
  options.now = [at = options.now(), training = std::this_thread::get_id(),
                 others = std::make_shared<std::atomic<int>>(0)] {
    return std::this_thread::get_id() == training
               ? at
               : at + absl::Seconds(++*others);
  };
  EXPECT_THAT(Run(options), IsDataLoss());
  ASSERT_OK_AND_ASSIGN(const std::optional<IslandState> state, recent->Load());
  ASSERT_TRUE(state.has_value());
  EXPECT_LE(state->position.run_step(), 1);
}

// Answers a join with `joined`, and sends the test's bytes as parameters.
class FalseCoordinator : public v1::Coordinator::Service {
 public:
  v1::JoinResponse joined;
  std::string parameters;
  // Is true if parameters do not come before `goes_on`.
  bool stalls = false;
  absl::Notification fetching;
  absl::Notification goes_on;
  v1::LeaveRequest left;

  grpc::Status Join(grpc::ServerContext*, const v1::JoinRequest*,
                    v1::JoinResponse* response) override {
    *response = joined;
    return grpc::Status::OK;
  }
  // Sends no view, and ends with the island.
  grpc::Status Session(
      grpc::ServerContext*,
      grpc::ServerReaderWriter<v1::SessionResponse, v1::SessionRequest>* stream)
      override {
    v1::SessionRequest request;
    while (stream->Read(&request)) {
    }
    return grpc::Status::OK;
  }
  grpc::Status FetchParameters(
      grpc::ServerContext* context, const v1::FetchParametersRequest* request,
      grpc::ServerWriter<v1::FetchParametersResponse>* writer) override {
    if (stalls) {
      fetching.Notify();
      while (!goes_on.HasBeenNotified()) {
        if (context->IsCancelled()) return grpc::Status::CANCELLED;
        absl::SleepFor(absl::Milliseconds(1));
      }
    }
    v1::FetchParametersResponse response;
    response.mutable_head()->set_version(request->version());
    response.mutable_head()->set_digest(Digest128(parameters));
    response.set_total_bytes(parameters.size());
    response.mutable_chunk()->set_data(parameters);
    response.mutable_chunk()->set_crc32c(Crc32c(parameters));
    writer->Write(response);
    return grpc::Status::OK;
  }
  grpc::Status Leave(grpc::ServerContext*, const v1::LeaveRequest* request,
                     v1::LeaveResponse*) override {
    left = *request;
    return grpc::Status::OK;
  }
};

class FalseCoordinatorTest : public testing::Test {
 protected:
  FalseCoordinatorTest() {
    v1::JoinResponse& joined = coordinator_.joined;
    joined.mutable_identity()->set_run_id("run");
    joined.mutable_identity()->set_island_id("east");
    joined.mutable_identity()->set_incarnation(3);
    joined.set_run_state(v1::RUNNING);
    *joined.mutable_config() =
        TestRunConfig("synchronization { fragments: 1 }");
    const ModelLayout layout = MakeModelLayout(joined.config().model());
    *joined.mutable_plan() = *MakeFragmentPlan(layout, joined.config());
    const std::vector<float> initial =
        InitialParameters(layout, joined.config().seed());
    v1::FragmentHead& head = *joined.add_heads();
    head.set_digest(Digest128(absl::MakeConstSpan(initial)));
    coordinator_.parameters.assign(initial.size() * sizeof(float), 'x');
    joined.add_first_contribution_version(0);

    client_ = NewGrpcCoordinatorClient({.address = server_.address(),
                                        .call_deadline = absl::Hours(1),
                                        .now = SteadyWallClock()});
  }

  absl::Status Run(DriftingTrainer::BeforeStep before_step = GoOn) {
    return Island(Options(std::move(before_step)), client_.get()).Run();
  }
  // Begins to join, and calls NextStep until the parameters do not come.
  void StartLoading(Island& island) {
    head().set_version(2);
    coordinator_.stalls = true;
    island.Start();
    while (!coordinator_.fetching.HasBeenNotified()) {
      EXPECT_THAT(NextStep(island, absl::Milliseconds(1)),
                  IsOkAndHolds(std::nullopt));
    }
    EXPECT_THAT(NextStep(island, absl::Milliseconds(1)),
                IsOkAndHolds(std::nullopt));
  }
  static absl::StatusOr<std::optional<uint64_t>> NextStep(
      Island& island, absl::Duration timeout) {
    return island.NextStep(SteadyWallClock()() + timeout);
  }
  v1::FragmentHead& head() { return *coordinator_.joined.mutable_heads(0); }

  FalseCoordinator coordinator_;
  const LocalGrpcServer server_{{.services = {&coordinator_}}};
  std::unique_ptr<CoordinatorClient> client_;
};

TEST_F(FalseCoordinatorTest, InitialParametersMustBeTheCoordinators) {
  head().set_digest(std::string(kDigestBytes, 'x'));
  EXPECT_THAT(Run(), IsInternal("initial parameters of fragment 0"));
}

TEST_F(FalseCoordinatorTest, ARunWithoutACheckpointTakesNone) {
  Island::Options options = Options(GoOn);
  options.initial_parameters = "/models/any";
  EXPECT_THAT(Island(std::move(options), client_.get()).Run(),
              IsFailedPrecondition("run did not begin with a checkpoint"));
}

TEST_F(FalseCoordinatorTest, ParametersMustHaveTheSizeOfTheModel) {
  head().set_version(2);
  coordinator_.parameters.pop_back();
  EXPECT_THAT(Run(), IsFailedPrecondition("fragment 0 has "));
}

TEST_F(FalseCoordinatorTest, BeginsWithTheParametersThatItFetches) {
  head().set_version(2);
  Island::Options options = Options(GoOn);
  std::vector<float> begun_with;
  options.make_trainer = [&](const v1::JoinResponse& joined,
                             std::vector<float> values)
      -> absl::StatusOr<std::unique_ptr<InnerTrainer>> {
    begun_with = std::move(values);
    EXPECT_EQ(joined.config().synchronization().overlap_steps(), 4);
    return absl::DataLossError("seen enough");
  };
  options.overlap_steps = 4;
  EXPECT_THAT(Island(std::move(options), client_.get()).Run(), IsDataLoss());
  EXPECT_EQ(Digest128(absl::MakeConstSpan(begun_with)),
            Digest128(coordinator_.parameters));
}

TEST_F(FalseCoordinatorTest, TellsWhichRankIsToBlame) {
  LocalRendezvous rendezvous;
  const absl::Status dead =
      FindCulprit({.suspect = 1, .status = absl::UnavailableError("reset")},
                  &rendezvous, [] {});
  EXPECT_EQ(Run([&](uint64_t) { return dead; }), dead);
  EXPECT_EQ(coordinator_.left.identity().incarnation(), 3);
  EXPECT_EQ(coordinator_.left.reason(),
            absl::StrCat("failed: ", dead.message()));
  EXPECT_EQ(coordinator_.left.rank_trouble().kind(),
            v1::RankTrouble::DEAD_RANK);
  EXPECT_EQ(coordinator_.left.rank_trouble().rank(), 1);
}

TEST_F(FalseCoordinatorTest, ReportsTheVerdictOnceAllRanksHaveConnected) {
  bool are_there = false;
  Island::Options options =
      Options([](uint64_t) { return absl::DataLossError("seen enough"); });
  options.make_trainer = [&, make = options.make_trainer](
                             const v1::JoinResponse& joined,
                             std::vector<float> values) {
    are_there = true;
    return make(joined, std::move(values));
  };
  options.take_verdict = [&]() -> std::optional<v1::RankTrouble> {
    if (!std::exchange(are_there, false)) return std::nullopt;
    v1::RankTrouble verdict;
    verdict.set_kind(v1::RankTrouble::STUCK_RANK);
    verdict.set_rank(4);
    return verdict;
  };
  EXPECT_THAT(Island(std::move(options), client_.get()).Run(), IsDataLoss());
  EXPECT_EQ(coordinator_.left.progress().rank_trouble().rank(), 4);
  EXPECT_FALSE(coordinator_.left.has_rank_trouble());
}

TEST_F(FalseCoordinatorTest, TellsThatItHasDiverged) {
  const absl::Status diverged = absl::OutOfRangeError("the loss is not finite");
  EXPECT_EQ(Run([&](uint64_t) { return diverged; }), diverged);
  EXPECT_EQ(coordinator_.left.reason(), diverged.message());
  EXPECT_FALSE(std::isfinite(coordinator_.left.progress().loss()));
}

TEST_F(FalseCoordinatorTest, ALeaveDoesNotWaitForParameters) {
  head().set_version(2);
  coordinator_.stalls = true;
  Island island(Options(GoOn), client_.get());
  std::thread leave([&] {
    coordinator_.fetching.WaitForNotification();
    island.RequestLeave("SIGTERM");
  });
  EXPECT_THAT(island.Run(), StatusIs(StatusCode::kCancelled, "SIGTERM"));
  leave.join();
  EXPECT_EQ(coordinator_.left.reason(), "SIGTERM");
}

TEST_F(FalseCoordinatorTest, ACallWaitsForParametersUntilItsDeadline) {
  Island island(Options(GoOn), client_.get());
  StartLoading(island);
  EXPECT_THAT(island.Activity(), StartsWith("loading parameters"));
  coordinator_.goes_on.Notify();
  EXPECT_THAT(NextStep(island, absl::InfiniteDuration()),
              IsOkAndHolds(Optional(1)));
  island.End(absl::OkStatus());
}

TEST_F(FalseCoordinatorTest, ALeaveBetweenCallsEndsTheLoading) {
  Island island(Options(GoOn), client_.get());
  StartLoading(island);
  island.RequestLeave("SIGTERM");
  const absl::Status left = NextStep(island, absl::InfiniteDuration()).status();
  EXPECT_THAT(left, StatusIs(StatusCode::kCancelled, "SIGTERM"));
  island.End(left);
  EXPECT_EQ(coordinator_.left.reason(), "SIGTERM");
}

TEST_F(FalseCoordinatorTest, AnEndBetweenCallsDoesNotWaitForParameters) {
  Island island(Options(GoOn), client_.get());
  StartLoading(island);
  island.End(absl::CancelledError("closed"));
  EXPECT_EQ(coordinator_.left.reason(), "closed");
}

TEST_F(FalseCoordinatorTest, AStopDoesNotWaitForParameters) {
  head().set_version(2);
  coordinator_.stalls = true;
  Island island(Options(GoOn), client_.get());
  std::thread stop([&] {
    coordinator_.fetching.WaitForNotification();
    island.Stop();
  });
  EXPECT_THAT(island.Run(), StatusIs(StatusCode::kCancelled, "stopped"));
  stop.join();
}

}  // namespace
}  // namespace causeway
