// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/stored_run.h"

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/history_pages.h"
#include "common/proto_time.h"
#include "common/status_macros.h"
#include "outer_optimizer/sync_schedule.h"
#include "server/rules/coordinator.h"
#include "server/rules/norm_guard.h"
#include "server/rules/status_views.h"
#include "server/storage/state_directory.h"

namespace causeway {
namespace {

// Returns the rules as a coordinator that takes the run up would have them.
absl::StatusOr<std::unique_ptr<Coordinator>> LoadRules(CommitLog& log,
                                                       RunRecord run,
                                                       absl::Time now) {
  ASSIGN_OR_RETURN(const std::vector<CommitRecord> commits, log.Heads());
  std::vector<Coordinator::CommittedFragment> heads;
  for (const CommitRecord& commit : commits) {
    heads.push_back({.head = commit.head,
                     .merged_norm = commit.merged_norm,
                     .committed_at = commit.committed_at});
  }
  if (heads.size() != static_cast<size_t>(run.plan.fragments_size())) {
    return absl::FailedPreconditionError(
        "the run was created but has no parameters yet");
  }
  ASSIGN_OR_RETURN(std::vector<Member> members, log.Members());
  ASSIGN_OR_RETURN(CoordinatorHistory history,
                   log.LoadHistory(static_cast<uint32_t>(heads.size()),
                                   NormGuard::Memory(
                                       run.config.membership().max_islands())));
  ASSIGN_OR_RETURN(SyncSchedule schedule,
                   SyncSchedule::Create(run.config, run.plan));
  return std::make_unique<Coordinator>(
      Coordinator::Options{.run_id = std::move(run.run_id),
                           .config = std::move(run.config),
                           .plan = std::move(run.plan),
                           .schedule = std::move(schedule),
                           .epoch = run.epoch},
      std::move(heads), std::move(members), now, std::move(history));
}

// Adds the last reports of the history, because the rules know only reports
// since their start. A point leaves out islands that have not reported since
// the point before.
void AddReports(v1::PageData& data) {
  std::map<absl::string_view, v1::IslandProgress*> islands;
  for (v1::IslandStatus& island : *data.mutable_islands()) {
    islands[island.island_id()] = island.mutable_progress();
  }
  v1::RunStatus& run = *data.mutable_run();
  for (const v1::TrainingPoint& point : data.history().training()) {
    if (point.loss() > 0) run.set_loss(point.loss());
    run.set_tokens_per_second(point.tokens_per_second());
    run.set_bytes_received(point.bytes_up());
    run.set_bytes_sent(point.bytes_down());
    for (const v1::TrainingPoint::Island& reported : point.islands()) {
      const auto island = islands.find(reported.island_id());
      if (island == islands.end()) continue;
      island->second->set_loss(reported.loss());
      island->second->set_tokens_per_second(reported.tokens_per_second());
      island->second->set_run_step(point.run_step());
    }
  }
}

}  // namespace

absl::StatusOr<v1::PageData> ReadPageData(const std::string& state_dir,
                                          uint64_t most_events) {
  ASSIGN_OR_RETURN(const std::unique_ptr<StateDirectory> state,
                   StateDirectory::OpenReadOnly(state_dir));
  CommitLog& log = state->log();
  ASSIGN_OR_RETURN(RunRecord run, log.LoadRun());
  ASSIGN_OR_RETURN(LeaderRecord leader, log.LoadLeader());
  run.config = std::move(leader.config);
  v1::PageData data;
  absl::Time time = run.created_at;
  ASSIGN_OR_RETURN(const std::vector<v1::Event> events,
                   log.NewestEvents(/*after_id=*/0, most_events,
                                    {.min_severity = v1::NOTICE}));
  data.mutable_events()->Assign(events.begin(), events.end());
  ASSIGN_OR_RETURN(const std::vector<v1::Event> newest,
                   log.NewestEvents(/*after_id=*/0, 1));
  if (!newest.empty()) {
    time = ToTime(newest.back().time());
    data.set_newest_event(newest.back().id());
  }
  RETURN_IF_ERROR(AppendHistoryPages(
      [&](const v1::GetHistoryRequest& request) {
        return log.HistoryAfter(request);
      },
      *data.mutable_history()));
  ASSIGN_OR_RETURN(const std::unique_ptr<Coordinator> rules,
                   LoadRules(log, std::move(run), time));
  *data.mutable_run() = DescribeRun(*rules);
  *data.mutable_run()->mutable_time() = ToTimestamp(time);
  v1::ListIslandsRequest all;
  all.set_include_departed(true);
  *data.mutable_islands() = std::move(
      *DescribeIslands(*rules, all, std::numeric_limits<uint64_t>::max(), time)
           .mutable_islands());
  *data.mutable_fragments() =
      std::move(*DescribeFragments(*rules).mutable_fragments());
  AddReports(data);
  return data;
}

}  // namespace causeway
