// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Feeds events to a Coordinator in virtual time, for tests of its rules. Plays
// the engine: keeps the ordered outer steps, and commits or fails them when the
// test says so.
#ifndef SERVER_RULES_TESTING_COORDINATOR_DRIVER_H_
#define SERVER_RULES_TESTING_COORDINATOR_DRIVER_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/checksum.h"
#include "glog/logging.h"
#include "outer_optimizer/sync_schedule.h"
#include "proto/coordinator.pb.h"
#include "server/rules/coordinator.h"
#include "server/rules/coordinator_history.h"
#include "server/rules/membership.h"
#include "server/rules/rank_parts.h"

namespace causeway {

class CoordinatorDriver {
 public:
  static constexpr char kRunId[] = "run-1";
  static constexpr uint64_t kRoundSteps = 10;
  // The most tokens of an inner step.
  static constexpr uint64_t kStepTokens = 200;
  static constexpr uint64_t kFragmentSize = 4;
  static constexpr absl::Duration kLease = absl::Seconds(10);
  static constexpr absl::Duration kGrace = absl::Seconds(60);

  struct Options {
    uint32_t min_islands = 1;
    uint32_t max_islands = 8;
    uint32_t quorum = 1;
    uint32_t fragments = 1;
    // The number of versions of every fragment.
    uint64_t rounds = 3;
    uint64_t overlap_steps = 0;
    // The norm at version 0. The default lets all first contributions pass.
    double parameter_norm = std::numeric_limits<double>::max();
    uint64_t epoch = 1;
    absl::Duration drain_slow_after = absl::InfiniteDuration();
    // Changes the configuration after the other options.
    std::function<void(v1::RunConfig&)> configure = [](v1::RunConfig&) {};
  };

  // `heads`, `members` and `history` are what a restarted coordinator would
  // read from storage.
  explicit CoordinatorDriver(
      Options options, std::vector<Coordinator::CommittedFragment> heads = {},
      std::vector<Member> members = {}, CoordinatorHistory history = {})
      : core_(MakeOptions(options),
              heads.empty() ? InitialHeads(options) : std::move(heads),
              std::move(members), absl::UnixEpoch(), std::move(history)) {}

  Coordinator& core() { return core_; }
  absl::Time now() const { return now_; }
  // All effects so far, except outer steps.
  Effects& effects() { return effects_; }
  // Outer steps that are ordered and not yet answered.
  std::deque<ClosedRound>& closed_rounds() { return closed_; }
  uint64_t version(uint32_t fragment = 0) const {
    return core_.heads()[fragment].head.version();
  }

  void Advance(absl::Duration duration) { now_ += duration; }
  void Tick() {
    core_.Tick(now_, effects_);
    TakeClosed();
  }

  absl::StatusOr<v1::JoinResponse> TryJoin(const std::string& island,
                                           uint64_t instance) {
    v1::JoinRequest request;
    request.set_island_id(island);
    request.set_instance_id(instance);
    auto response = core_.Join(request, now_, effects_);
    TakeClosed();
    return response;
  }
  // Reports that the island can train; expects success.
  void BeReady(const v1::JoinResponse& joined) {
    v1::IslandProgress progress;
    progress.set_run_step(joined.run_step());
    progress.set_ready(true);
    const absl::Status heard = Heartbeat(joined.identity(), progress);
    CHECK(heard.ok()) << heard;
  }
  // Joins and is ready; expects success.
  v1::IslandIdentity Join(const std::string& island, uint64_t instance = 1) {
    const auto response = TryJoin(island, instance);
    CHECK(response.ok()) << response.status();
    BeReady(*response);
    return response->identity();
  }

  absl::Status Heartbeat(const v1::IslandIdentity& identity,
                         uint64_t run_step = 0, uint64_t tokens = 0,
                         double step_seconds = 0) {
    v1::IslandProgress progress;
    progress.set_run_step(run_step);
    progress.set_tokens(tokens);
    progress.set_step_seconds(step_seconds);
    return Heartbeat(identity, progress);
  }
  absl::Status Heartbeat(const v1::IslandIdentity& identity,
                         const v1::IslandProgress& progress) {
    const absl::Status status =
        core_.Heartbeat(identity, progress, now_, effects_);
    TakeClosed();
    return status;
  }

  // Advances time while the islands send heartbeats.
  void Pass(absl::Duration duration,
            const std::vector<v1::IslandIdentity>& islands) {
    for (absl::Duration passed; passed < duration; passed += kLease / 2) {
      Advance(kLease / 2);
      for (const v1::IslandIdentity& island : islands) {
        const absl::Status heard = Heartbeat(island);
        CHECK(heard.ok()) << heard;
      }
      Tick();
    }
  }

  absl::Status Leave(const v1::IslandIdentity& identity,
                     const v1::RankTrouble& trouble = {}) {
    v1::LeaveRequest request;
    *request.mutable_identity() = identity;
    request.set_reason("finished");
    *request.mutable_rank_trouble() = trouble;
    const absl::Status status = core_.Leave(request, now_, effects_);
    TakeClosed();
    return status;
  }

  absl::StatusOr<v1::ContributeResponse> Offer(
      const v1::ContributionHeader& header) {
    return core_.Offer(header, now_);
  }
  absl::StatusOr<v1::ContributeResponse> Complete(
      const v1::ContributionHeader& header, double norm = 1,
      const RankParts& parts = {}) {
    auto response = core_.Complete(header, norm, parts, now_, effects_);
    TakeClosed();
    return response;
  }
  // Offers, uploads if asked to, and returns the last verdict.
  absl::StatusOr<v1::ContributeResponse::Verdict> Contribute(
      const v1::ContributionHeader& header, double norm = 1,
      const RankParts& parts = {}) {
    auto response = Offer(header);
    if (response.ok() &&
        response->verdict() == v1::ContributeResponse::UPLOAD) {
      response = Complete(header, norm, parts);
    }
    if (!response.ok()) return response.status();
    return response->verdict();
  }

  // Commits the oldest closed round, or fails it with `status`.
  void Commit() {
    const ClosedRound closed = PopClosed();
    OuterStepOutcome outcome{
        .merged_norm = 1, .similarity = 0.5, .duration = absl::Seconds(1)};
    outcome.head.set_fragment(closed.fragment);
    outcome.head.set_version(closed.base_version + 1);
    for (CoordinatorEvent& event : core_.CommitEvents(closed, outcome)) {
      effects_.events.push_back(std::move(event));
    }
    core_.OuterStepCommitted(closed, outcome, now_, effects_);
    TakeClosed();
  }
  void Fail(const absl::Status& status) {
    core_.OuterStepFailed(PopClosed(), status, now_, effects_);
    TakeClosed();
  }

  // Reports the oldest closed round as in doubt; it stays due.
  void Doubt(const absl::Status& status) {
    core_.OuterStepInDoubt(closed_.front(), status, effects_);
    TakeClosed();
  }

  // Returns how many events of a kind there were.
  int CountEvents(const std::string& kind) const {
    int count = 0;
    for (const CoordinatorEvent& event : effects_.events) {
      count += event.kind == kind;
    }
    return count;
  }

 private:
  static Coordinator::Options MakeOptions(const Options& options) {
    v1::RunConfig config;
    v1::MembershipConfig& membership = *config.mutable_membership();
    membership.set_min_islands(options.min_islands);
    membership.set_max_islands(options.max_islands);
    membership.set_quorum(options.quorum);
    membership.set_grace_seconds(absl::ToDoubleSeconds(kGrace));
    membership.set_lease_seconds(absl::ToDoubleSeconds(kLease));
    config.mutable_data()->set_shards(2);
    // These make kStepTokens.
    config.mutable_training()->set_batch_size(10);
    config.mutable_model()->set_sequence_length(20);
    config.mutable_synchronization()->set_uplink_format(v1::FP32);
    config.mutable_synchronization()->set_downlink_format(v1::FP32);
    options.configure(config);
    v1::FragmentPlan plan;
    std::vector<uint64_t> send_offsets;
    for (uint32_t fragment = 0; fragment < options.fragments; ++fragment) {
      v1::Fragment& added = *plan.add_fragments();
      added.set_id(fragment);
      added.set_size(kFragmentSize);
      added.set_send_offset_steps(fragment * kRoundSteps / options.fragments);
      send_offsets.push_back(added.send_offset_steps());
    }
    return {.run_id = kRunId,
            .config = config,
            .plan = plan,
            .schedule = *SyncSchedule::Create(
                {.round_steps = kRoundSteps,
                 .send_offsets = send_offsets,
                 .overlap_steps = options.overlap_steps,
                 .total_steps = options.rounds * kRoundSteps}),
            .epoch = options.epoch,
            .drain_slow_after = options.drain_slow_after};
  }

  static std::vector<Coordinator::CommittedFragment> InitialHeads(
      const Options& options) {
    std::vector<Coordinator::CommittedFragment> heads(options.fragments);
    for (uint32_t fragment = 0; fragment < options.fragments; ++fragment) {
      heads[fragment].head.set_fragment(fragment);
      heads[fragment].parameter_norm = options.parameter_norm;
    }
    return heads;
  }

  void TakeClosed() {
    closed_.insert(closed_.end(), effects_.outer_steps.begin(),
                   effects_.outer_steps.end());
    effects_.outer_steps.clear();
  }

  ClosedRound PopClosed() {
    CHECK(!closed_.empty()) << "no outer step was ordered";
    ClosedRound closed = std::move(closed_.front());
    closed_.pop_front();
    return closed;
  }

  Coordinator core_;
  absl::Time now_ = absl::UnixEpoch();
  Effects effects_;
  std::deque<ClosedRound> closed_;
};

// Returns a valid contribution; `bytes` distinguishes contents.
inline v1::ContributionHeader Contribution(const v1::IslandIdentity& identity,
                                           uint64_t base_version,
                                           uint32_t fragment = 0,
                                           const std::string& bytes = "") {
  v1::ContributionHeader header;
  *header.mutable_identity() = identity;
  header.set_fragment(fragment);
  header.set_base_version(base_version);
  header.set_tokens(1000);
  header.set_inner_steps(CoordinatorDriver::kRoundSteps);
  header.mutable_object()->set_format(v1::FP32);
  header.mutable_object()->set_block_size(256);
  header.mutable_object()->set_size(CoordinatorDriver::kFragmentSize);
  header.mutable_object()->set_encoded_bytes(CoordinatorDriver::kFragmentSize *
                                             sizeof(float));
  header.mutable_object()->set_digest(Digest128(absl::StrCat(
      identity.island_id(), "/", fragment, "/", base_version, "/", bytes)));
  return header;
}

// Returns the sum that an account's `reported` must equal.
inline uint64_t SumOfFates(const v1::TokenLedger& ledger) {
  return ledger.merged() + ledger.partial_merged() + ledger.expired() +
         ledger.refused() + ledger.quarantined() + ledger.pending();
}

}  // namespace causeway

#endif  // SERVER_RULES_TESTING_COORDINATOR_DRIVER_H_
