// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Engines for tests: a real state directory and real threads, a clock that the
// test moves, and the island's side of the calls.
#ifndef SERVER_TESTING_ENGINE_DRIVER_H_
#define SERVER_TESTING_ENGINE_DRIVER_H_

#include <atomic>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/config/run_config.h"
#include "common/status_macros.h"
#include "common/transport/chunk.h"
#include "glog/logging.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "outer_optimizer/mixing.h"
#include "proto/coordinator.pb.h"
#include "quantization/codec.h"
#include "quantization/codec_config.h"
#include "quantization/testing/whole_vectors.h"
#include "server/engine.h"
#include "server/storage/sqlite.h"

namespace causeway {

// Two fragments of a tiny model. `more`, in text format, overrides values.
inline v1::RunConfig TestRunConfig(const std::string& more = "") {
  auto config = ParseRunConfig(
      R"pb(
        name: "test"
        model {
          layers: 1
          hidden_size: 8
          intermediate_size: 16
          heads: 2
          sequence_length: 8
        }
        training { total_steps: 30 batch_size: 25 }
        synchronization {
          inner_steps_per_round: 10
          fragments: 2
          uplink_format: FP32
          downlink_format: FP32
        }
        membership { min_islands: 2 max_islands: 3 quorum: 1 }
      )pb",
      "test.textproto");
  CHECK(config.ok()) << config.status();
  CHECK(google::protobuf::TextFormat::MergeFromString(more, &*config)) << more;
  return *config;
}

// An encoded pseudo-gradient with its header.
struct TestContribution {
  v1::ContributionHeader header;
  std::string bytes;
};

class EngineDriver {
 public:
  // The state directory is named after the running test.
  EngineDriver()
      : state_dir_(absl::StrCat(
            testing::TempDir(), "/",
            absl::StrReplaceAll(
                testing::UnitTest::GetInstance()->current_test_info()->name(),
                {{"/", "-"}}))) {}
  ~EngineDriver() { Stop(); }

  // Starts the engine, or restarts it.
  absl::Status Start(const v1::RunConfig& config,
                     const std::string& initial_parameters = "") {
    Stop();
    ASSIGN_OR_RETURN(engine_, TryStart(config, initial_parameters));
    config_ = config;
    listener_ = engine_->news().Add([this] {
      absl::MutexLock lock(&mu_);
      ++news_;
    });
    return absl::OkStatus();
  }
  // Starts another engine on the same directory.
  absl::StatusOr<std::unique_ptr<Engine>> TryStart(
      const v1::RunConfig& config, const std::string& initial_parameters = "") {
    return Engine::Start({.state_dir = state_dir_,
                          .config = config,
                          .random = kRandom,
                          .now = [this] { return Now(); },
                          .steady = [this] { return Steady(); },
                          .initial_parameters = initial_parameters,
                          .is_elected = is_elected_});
  }
  void Stop() {
    if (engine_ == nullptr) return;
    engine_->news().Remove(listener_);
    engine_.reset();
  }

  Engine& engine() { return *engine_; }
  const std::string& state_dir() const { return state_dir_; }
  void AdvanceSeconds(int64_t seconds) { seconds_ += seconds; }
  // The next reading of the clock is one during which the process is stopped
  // for so long. Returns once the engine has ticked after it.
  void StopAtNextLook(int64_t seconds) {
    stop_seconds_ = seconds;
    Await([&] { return stop_seconds_ == 0; });
    const int64_t ticks = ticks_;
    Await([&] { return ticks_ > ticks + 2; });
  }
  // Engines that are started from now on were elected.
  void BeElected() { is_elected_ = true; }

  // Changes the commit log behind the engine's back.
  absl::Status ExecuteInLog(const std::string& sql) const {
    ASSIGN_OR_RETURN(
        SqliteDatabase log,
        SqliteDatabase::Open(state_dir_ + "/run.sqlite3",
                             SqliteDatabase::Mode::kReadWriteCreate));
    return log.Execute(sql);
  }
  // Makes every insertion into a table of the commit log fail, as a full disk
  // does, until AllowInserts().
  absl::Status RefuseInserts(const std::string& table) const {
    return ExecuteInLog("CREATE TRIGGER refuse BEFORE INSERT ON " + table +
                        " BEGIN SELECT RAISE(ABORT, 'no space left'); END");
  }
  absl::Status AllowInserts() const {
    return ExecuteInLog("DROP TRIGGER refuse");
  }

  // From now on, each reading of the clock advances the thread's time by a
  // millisecond.
  void AdvanceAtEachLook() { advances_at_looks_ = true; }

  // Joins, and reports that the island can train.
  absl::StatusOr<v1::IslandIdentity> Join(const std::string& island,
                                          uint64_t instance = 1) {
    v1::JoinRequest request;
    request.set_island_id(island);
    request.set_instance_id(instance);
    ASSIGN_OR_RETURN(const v1::JoinResponse response, engine_->Join(request));
    v1::SessionRequest ready;
    *ready.mutable_identity() = response.identity();
    ready.mutable_progress()->set_run_step(response.run_step());
    ready.mutable_progress()->set_ready(true);
    RETURN_IF_ERROR(engine_->Heartbeat(ready));
    return response.identity();
  }
  absl::Status Heartbeat(const v1::IslandIdentity& identity) {
    v1::SessionRequest request;
    *request.mutable_identity() = identity;
    return engine_->Heartbeat(request);
  }
  absl::Status Leave(const v1::IslandIdentity& identity) {
    v1::LeaveRequest request;
    *request.mutable_identity() = identity;
    return engine_->Leave(request);
  }

  // Returns the fragment's committed values.
  absl::StatusOr<std::vector<float>> Fetch(const v1::IslandIdentity& identity,
                                           uint32_t fragment,
                                           uint64_t version) {
    v1::FetchParametersRequest request;
    *request.mutable_identity() = identity;
    request.set_fragment(fragment);
    request.set_version(version);
    ASSIGN_OR_RETURN(const OpenedParameters opened,
                     engine_->OpenParameters(request));
    std::vector<float> values(opened.bytes.size() / sizeof(float));
    std::memcpy(values.data(), opened.bytes.data(), opened.bytes.size());
    return values;
  }

  // Returns the contribution of an island that trained from `anchor` to
  // `parameters`.
  TestContribution MakeContribution(const v1::IslandIdentity& identity,
                                    uint32_t fragment, uint64_t base_version,
                                    absl::Span<const float> anchor,
                                    absl::Span<const float> parameters,
                                    uint64_t tokens = 1000) const {
    const CodecSpec spec = UplinkSpec(config_.synchronization());
    std::vector<float> pseudo_gradient(anchor.size());
    PseudoGradient(anchor, parameters, absl::MakeSpan(pseudo_gradient));
    TestContribution contribution{
        .bytes = *Encode(spec, pseudo_gradient,
                         EncodeOptionsOf(config_.synchronization()))};
    v1::ContributionHeader& header = contribution.header;
    *header.mutable_identity() = identity;
    header.set_fragment(fragment);
    header.set_base_version(base_version);
    header.set_tokens(tokens);
    header.set_inner_steps(10);
    *header.mutable_object() =
        DescribeEncoding(spec, anchor.size(), contribution.bytes);
    return contribution;
  }

  // Offers, uploads from the engine's offset, and returns the last answer.
  absl::StatusOr<v1::ContributeResponse> Contribute(
      const TestContribution& contribution) {
    ASSIGN_OR_RETURN(const v1::ContributeResponse response,
                     engine_->Offer(contribution.header));
    if (response.verdict() != v1::ContributeResponse::UPLOAD) return response;
    for (uint64_t offset = response.next_offset();
         offset < contribution.bytes.size(); offset += kChunkBytes) {
      RETURN_IF_ERROR(
          engine_
              ->Append(KeyOf(contribution.header),
                       CutChunk(contribution.bytes, offset, kChunkBytes))
              .status());
    }
    return engine_->Complete(contribution.header);
  }

  // Waits until the engine makes `condition` true.
  bool Await(const std::function<bool()>& condition) {
    const int kWakeUps = 600;  // At least: a wake-up may also come from news.
    for (int i = 0; i < kWakeUps; ++i) {
      uint64_t seen;
      {
        absl::MutexLock lock(&mu_);
        seen = news_;
      }
      if (condition()) return true;
      const auto changed = [&] { return news_ != seen; };
      absl::MutexLock lock(&mu_);
      mu_.AwaitWithTimeout(absl::Condition(&changed), absl::Milliseconds(100));
    }
    return false;
  }
  bool AwaitVersion(uint32_t fragment, uint64_t version) {
    return Await([&] { return Head(fragment).version() >= version; });
  }
  v1::FragmentHead Head(uint32_t fragment) {
    return engine_->ListFragments().fragments(fragment).head();
  }

 private:
  // A run's id shows the lower half.
  static constexpr uint64_t kRandom = (uint64_t{5} << 32) + 7;
  // This is small, so that every upload takes several chunks.
  static constexpr uint64_t kChunkBytes = 1000;

  absl::Time Now() {
    thread_local int64_t looks = 0;
    stopped_seconds_ += stop_seconds_.exchange(0);
    if (advances_at_looks_) ++looks;
    return absl::UnixEpoch() + absl::Seconds(seconds_ + stopped_seconds_) +
           absl::Milliseconds(looks);
  }

  // Only stops take time.
  absl::Time Steady() {
    ++ticks_;
    return absl::UnixEpoch() + absl::Seconds(stopped_seconds_.load());
  }

  const std::string state_dir_;
  v1::RunConfig config_;
  bool is_elected_ = false;
  std::atomic<int64_t> seconds_ = 1;
  // The stop to come, and the sum of those that have been.
  std::atomic<int64_t> stop_seconds_ = 0;
  std::atomic<int64_t> stopped_seconds_ = 0;
  // The number of readings of the steady clock, at least one in each tick.
  std::atomic<int64_t> ticks_ = 0;
  std::atomic<bool> advances_at_looks_ = false;
  absl::Mutex mu_;
  uint64_t news_ = 0;
  std::unique_ptr<Engine> engine_;
  uint64_t listener_ = 0;
};

// Adds multiples of `amount` to `values`, as an island's training would.
inline std::vector<float> Shifted(std::vector<float> values, float amount) {
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] += amount * static_cast<float>(i % 7 + 1);
  }
  return values;
}

}  // namespace causeway

#endif  // SERVER_TESTING_ENGINE_DRIVER_H_
