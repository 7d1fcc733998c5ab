// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/rules/status_views.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/proto_time.h"
#include "server/rules/training_history.h"

namespace causeway {
namespace {

// Adds what live islands have reported.
void AddReports(const Membership& membership, v1::RunStatus& status) {
  double loss_sum = 0;
  uint32_t reporting = 0;
  status.set_tokens_per_second(membership.TokensPerSecond());
  for (const auto& [name, member] : membership.members()) {
    if (member.state != v1::IslandStatus::LIVE) continue;
    status.set_live_islands(status.live_islands() + 1);
    if (IsPossibleLoss(member.progress.loss())) {
      loss_sum += member.progress.loss();
      ++reporting;
    }
  }
  if (reporting > 0) status.set_loss(loss_sum / reporting);
}

// Returns why the island has no update yet, if the coordinator knows, or "".
std::string Hindrance(Coordinator& coordinator, const v1::Wait& wait) {
  if (!wait.has_fragment() || wait.fragment() >= coordinator.heads().size()) {
    return "";
  }
  if (coordinator.round(wait.fragment()).base_version() > wait.from_version()) {
    return "; the update is on its way";
  }
  if (coordinator.round(wait.fragment()).merging()) {
    return "; the update is being made";
  }
  constexpr size_t kMostNamed = 4;
  std::vector<std::string> names = coordinator.Awaited(wait.fragment());
  if (names.empty()) return "";
  if (names.size() > kMostNamed) {
    const size_t others = names.size() - kMostNamed;
    names.resize(kMostNamed);
    names.push_back(absl::StrCat(others, " more"));
  }
  return absl::StrCat("; awaited: ", absl::StrJoin(names, ", "));
}

// Adds to the activity how long the island has waited, and for which islands.
void DescribeWait(Coordinator& coordinator, v1::IslandStatus& island) {
  const v1::Wait& wait = island.progress().wait();
  if (wait.reason() == v1::Wait::REASON_UNSPECIFIED) return;
  const absl::Duration waited = absl::Trunc(
      absl::Seconds(wait.seconds() + island.heartbeat_age_seconds()),
      absl::Seconds(1));
  // Zero would have no unit.
  absl::StrAppend(
      island.mutable_progress()->mutable_activity(), " (for ",
      waited == absl::ZeroDuration() ? "0s" : absl::FormatDuration(waited),
      Hindrance(coordinator, wait), ")");
}

}  // namespace

v1::RunStatus DescribeRun(Coordinator& coordinator) {
  v1::RunStatus status;
  const Coordinator::Options& options = coordinator.options();
  status.set_run_id(options.run_id);
  status.set_epoch(options.epoch);
  *status.mutable_config() = options.config;
  status.set_state(coordinator.run_state());
  status.set_message(coordinator.message());
  uint64_t parameters = 0;
  uint64_t rounds = 0;
  // A token counts for the values of the fragments that it is merged into.
  double merged_token_values = 0;
  for (const v1::Fragment& fragment : options.plan.fragments()) {
    parameters += fragment.size();
    rounds += coordinator.heads()[fragment.id()].head.version();
    const v1::TokenLedger ledger = coordinator.FragmentLedger(fragment.id());
    AddTo(ledger, *status.mutable_ledger());
    merged_token_values +=
        static_cast<double>(ledger.merged() + ledger.partial_merged()) *
        static_cast<double>(fragment.size());
  }
  status.set_parameters(parameters);
  status.set_run_step(coordinator.RunStep());
  status.set_total_steps(coordinator.schedule().total_steps());
  status.set_rounds(rounds);
  status.set_total_rounds(coordinator.schedule().TotalRounds());
  status.set_tokens_merged(static_cast<uint64_t>(
      merged_token_values / static_cast<double>(parameters)));
  *status.mutable_participation() = coordinator.participation();
  status.set_quarantined(coordinator.quarantine().held_count());
  if (coordinator.validation().has_value()) {
    *status.mutable_validation() = *coordinator.validation();
  }
  AddReports(coordinator.membership(), status);
  return status;
}

v1::ListIslandsResponse DescribeIslands(Coordinator& coordinator,
                                        const v1::ListIslandsRequest& request,
                                        uint64_t page_bytes, absl::Time now) {
  v1::ListIslandsResponse response;
  const std::map<std::string, Member>& members =
      coordinator.membership().members();
  uint64_t bytes = 0;
  for (auto next = members.upper_bound(request.after()); next != members.end();
       ++next) {
    const Member& member = next->second;
    if (member.state != v1::IslandStatus::LIVE && !request.include_departed()) {
      continue;
    }
    if (bytes >= page_bytes) {
      response.set_more(true);
      break;
    }
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
    island.mutable_progress()->set_ready(member.IsReady());
    if (member.state == v1::IslandStatus::LIVE && !member.IsReady() &&
        member.progress.activity().empty()) {
      island.mutable_progress()->set_activity("loading");
    }
    DescribeWait(coordinator, island);
    island.set_contributions_merged(member.contributions_merged);
    // A token is contributed once to each fragment.
    island.set_tokens_merged(member.tokens_merged / coordinator.heads().size());
    island.set_shard(coordinator.ShardOf(member));
    island.set_reason(member.reason);
    *island.mutable_ledger() =
        coordinator.IslandLedger({member.island_id, member.incarnation});
    island.set_draining(member.draining);
    const uint64_t steps = coordinator.InnerStepsPerRound(member);
    island.set_inner_steps_per_round(
        steps > 0 ? steps : coordinator.schedule().round_steps());
    island.set_data_differs(coordinator.DataDiffers(member));
    island.set_is_unheard(!member.has_reported);
    if (member.uplink_bits.has_value()) {
      island.set_uplink_bits_in_time(member.uplink_bits->in_time());
    }
    bytes += island.ByteSizeLong();
  }
  return response;
}

v1::ListFragmentsResponse DescribeFragments(Coordinator& coordinator) {
  v1::ListFragmentsResponse response;
  for (const v1::Fragment& fragment : coordinator.options().plan.fragments()) {
    const Coordinator::CommittedFragment& state =
        coordinator.heads()[fragment.id()];
    v1::FragmentStatus& status = *response.add_fragments();
    *status.mutable_head() = state.head;
    status.set_size(fragment.size());
    status.set_tensors(static_cast<uint32_t>(fragment.tensors_size()));
    status.set_final_version(
        coordinator.schedule().FinalVersion(fragment.id()));
    status.set_send_offset_steps(fragment.send_offset_steps());
    for (const auto& [key, header] :
         coordinator.round(fragment.id()).contributions()) {
      status.add_contributed(key.island_id);
    }
    for (const std::string& island : coordinator.Awaited(fragment.id())) {
      status.add_awaited(island);
    }
    status.set_merged_norm(state.merged_norm);
    if (state.similarity.has_value()) status.set_similarity(*state.similarity);
    *status.mutable_participation() = coordinator.last_round(fragment.id());
    *status.mutable_ledger() = coordinator.FragmentLedger(fragment.id());
    *status.mutable_committed_at() = ToTimestamp(state.committed_at);
    if (const v1::RoundTimes* const times =
            coordinator.last_round_times(fragment.id())) {
      *status.mutable_last_round() = *times;
    }
    const absl::Time sent = coordinator.round(fragment.id()).first_offer();
    if (sent < absl::InfiniteFuture()) {
      *status.mutable_sent_at() = ToTimestamp(sent);
    }
  }
  return response;
}

}  // namespace causeway
