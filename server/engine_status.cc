// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The part of Engine that answers the Status service.
#include "absl/time/time.h"
#include "common/duration_histogram.h"
#include "common/machine.h"
#include "common/process_memory.h"
#include "common/proto_time.h"
#include "common/status_macros.h"
#include "server/engine.h"
#include "server/rules/training_history.h"

namespace causeway {
namespace {

// Data parallel training sends and receives every gradient once per step, at
// 16 bits a value.
constexpr double kDataParallelBytesPerValue = 4;

}  // namespace

v1::RunStatus Engine::GetRun() {
  v1::RunStatus status;
  // The disk may be slow to answer.
  if (const auto disk = FindDiskSpace(options_.state_dir); disk.ok()) {
    status.mutable_storage()->set_disk_free_bytes(disk->free);
    status.mutable_storage()->set_disk_total_bytes(disk->total);
  }
  status.mutable_storage()->set_staging_bytes(staging_.used_bytes());
  status.mutable_storage()->set_staging_limit_bytes(staging_.capacity_bytes());
  absl::MutexLock lock(&mu_);
  const Coordinator::Options& options = coordinator_.options();
  const SyncSchedule& schedule = coordinator_.schedule();
  status.set_run_id(run_id_);
  *status.mutable_config() = options.config;
  status.set_state(coordinator_.run_state());
  status.set_message(coordinator_.message());
  *status.mutable_started_at() = ToTimestamp(started_at_);
  uint64_t parameters = 0;
  uint64_t rounds = 0;
  // A token counts for the values of the fragments that it is merged into.
  double merged_token_values = 0;
  for (const v1::Fragment& fragment : options.plan.fragments()) {
    parameters += fragment.size();
    rounds += coordinator_.heads()[fragment.id()].head.version();
    const v1::TokenLedger ledger = coordinator_.FragmentLedger(fragment.id());
    AddTo(ledger, *status.mutable_ledger());
    merged_token_values +=
        static_cast<double>(ledger.merged() + ledger.partial_merged()) *
        static_cast<double>(fragment.size());
  }
  status.set_parameters(parameters);
  status.set_run_step(coordinator_.RunStep());
  status.set_total_steps(schedule.total_steps());
  status.set_rounds(rounds);
  status.set_total_rounds(schedule.TotalRounds());
  *status.mutable_participation() = coordinator_.participation();
  status.set_quarantined(coordinator_.held_count());
  if (coordinator_.validation().has_value()) {
    *status.mutable_validation() = *coordinator_.validation();
  }

  double loss_sum = 0;
  uint32_t reporting = 0;
  for (const auto& [name, member] : coordinator_.membership().members()) {
    if (member.state != v1::IslandStatus::LIVE) continue;
    status.set_live_islands(status.live_islands() + 1);
    const double speed = member.progress.tokens_per_second();
    if (IsPossibleSpeed(speed)) {
      status.set_tokens_per_second(status.tokens_per_second() + speed);
    }
    if (IsPossibleLoss(member.progress.loss())) {
      loss_sum += member.progress.loss();
      ++reporting;
    }
  }
  if (reporting > 0) status.set_loss(loss_sum / reporting);
  const double values = static_cast<double>(parameters);
  status.set_tokens_merged(static_cast<uint64_t>(merged_token_values / values));
  status.set_bytes_data_parallel(
      static_cast<uint64_t>(merged_step_values_ * kDataParallelBytesPerValue));
  status.set_bytes_received(bytes_received_);
  status.set_bytes_sent(bytes_sent_);
  status.set_memory_bytes(ResidentBytes());
  status.set_outer_step_seconds(MeanSeconds(outer_steps_));
  *status.mutable_outer_steps() = outer_steps_;
  *status.mutable_commits() = commits_;
  return status;
}

v1::ListIslandsResponse Engine::ListIslands(bool include_departed) {
  v1::ListIslandsResponse response;
  absl::MutexLock lock(&mu_);
  const absl::Time now = options_.now();
  for (const auto& [name, member] : coordinator_.membership().members()) {
    if (member.state != v1::IslandStatus::LIVE && !include_departed) continue;
    v1::IslandStatus& island = *response.add_islands();
    island.set_island_id(member.island_id);
    island.set_incarnation(member.incarnation);
    island.set_state(member.state);
    island.set_description(member.description);
    *island.mutable_joined_at() = ToTimestamp(member.joined_at);
    if (member.last_heartbeat > absl::InfinitePast()) {
      island.set_heartbeat_age_seconds(
          absl::ToDoubleSeconds(now - member.last_heartbeat));
    }
    *island.mutable_progress() = member.progress;
    island.set_contributions_merged(member.contributions_merged);
    // A token is contributed once to each fragment.
    island.set_tokens_merged(member.tokens_merged /
                             coordinator_.heads().size());
    island.set_shard(member.shard);
    island.set_reason(member.reason);
    *island.mutable_ledger() =
        coordinator_.IslandLedger({member.island_id, member.incarnation});
    island.set_draining(member.draining);
    island.set_inner_steps_per_round(coordinator_.InnerStepsPerRound(member));
  }
  return response;
}

v1::ListFragmentsResponse Engine::ListFragments() {
  v1::ListFragmentsResponse response;
  absl::MutexLock lock(&mu_);
  for (const v1::Fragment& fragment : coordinator_.options().plan.fragments()) {
    const Coordinator::CommittedFragment& state =
        coordinator_.heads()[fragment.id()];
    v1::FragmentStatus& status = *response.add_fragments();
    *status.mutable_head() = state.head;
    status.set_size(fragment.size());
    status.set_tensors(static_cast<uint32_t>(fragment.tensors_size()));
    status.set_final_version(
        coordinator_.schedule().FinalVersion(fragment.id()));
    status.set_send_offset_steps(fragment.send_offset_steps());
    for (const auto& [key, header] :
         coordinator_.round(fragment.id()).contributions()) {
      status.add_contributed(key.island_id);
    }
    for (const std::string& island : coordinator_.Awaited(fragment.id())) {
      status.add_awaited(island);
    }
    status.set_merged_norm(state.merged_norm);
    *status.mutable_participation() = coordinator_.last_round(fragment.id());
    *status.mutable_ledger() = coordinator_.FragmentLedger(fragment.id());
    *status.mutable_committed_at() = ToTimestamp(state.committed_at);
    if (const v1::RoundTimes* const times =
            coordinator_.last_round_times(fragment.id())) {
      *status.mutable_last_round() = *times;
    }
    const absl::Time sent = coordinator_.round(fragment.id()).first_offer();
    if (sent < absl::InfiniteFuture()) {
      *status.mutable_sent_at() = ToTimestamp(sent);
    }
  }
  return response;
}

absl::StatusOr<v1::GetHistoryResponse> Engine::GetHistory(
    const v1::GetHistoryRequest& request) {
  return state_->ReadHistory(request);
}

void Engine::NoteDelivered(const v1::FragmentHead& head) {
  absl::MutexLock lock(&mu_);
  coordinator_.NoteDelivered(head, options_.now());
}

absl::StatusOr<std::vector<v1::Event>> Engine::EventsAfter(uint64_t after_id,
                                                           uint64_t limit) {
  return state_->log().EventsAfter(after_id, limit);
}

}  // namespace causeway
