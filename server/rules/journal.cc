// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/rules/journal.h"

#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace causeway {
namespace {

ContributionRecord RecordOf(const v1::ContributionHeader& header,
                            ContributionFate fate, absl::Time at) {
  return {.fragment = header.fragment(),
          .base_version = header.base_version(),
          .island_id = header.identity().island_id(),
          .incarnation = header.identity().incarnation(),
          .tokens = header.tokens(),
          .restored_tokens = header.restored_tokens(),
          .inner_steps = header.inner_steps(),
          .digest = header.object().digest(),
          .fate = fate,
          .at = at};
}

void SetTime(absl::Time time, std::vector<CoordinatorEvent>& events) {
  for (CoordinatorEvent& event : events) event.time = time;
}

}  // namespace

Journal::Entry Journal::Enter(Effects& effects, absl::Time now) {
  Entry entry = {.changes = effects.IsDurable()};
  const auto move = [](auto& from, auto& to) {
    to.insert(to.end(), std::make_move_iterator(from.begin()),
              std::make_move_iterator(from.end()));
  };
  move(effects.joined, unwritten_.members);
  move(effects.ended, unwritten_.members);
  move(effects.changed, unwritten_.members);
  move(effects.accounts, unwritten_.accounts);
  move(effects.training, unwritten_.training);
  move(effects.validations, unwritten_.validations);
  // The entries stay in the effects, because the host also needs them.
  unwritten_.quarantine.insert(unwritten_.quarantine.end(),
                               effects.quarantine.begin(),
                               effects.quarantine.end());
  if (effects.flags.has_value()) unwritten_.flags = std::move(effects.flags);
  for (const v1::ContributionHeader& header : effects.late) {
    unwritten_.contributions.push_back(
        RecordOf(header, ContributionFate::kLate, now));
  }
  const size_t known = unwritten_.events.size();
  std::vector<CoordinatorEvent> events =
      event_limiter_.Limit(std::move(effects.events), now);
  SetTime(now, events);
  move(events, unwritten_.events);
  entry.events = absl::MakeConstSpan(unwritten_.events).subspan(known);
  effects.view_changed |= !entry.events.empty();
  if (!unwritten_.empty()) entry.batch = &unwritten_;
  return entry;
}

absl::Status Journal::Written(const absl::Status& outcome) {
  if (outcome.ok()) {
    unwritten_ = {};
    return outcome;
  }
  if (absl::IsUnknown(outcome)) doubtful_events_ = unwritten_.events.size();
  return absl::UnavailableError(
      absl::StrCat("the coordinator cannot write its commit log: ",
                   std::string(outcome.message())));
}

bool Journal::MayTell(const Entry& entry, const absl::Status& written,
                      bool succeeded) {
  // A refused caller that has changed nothing may be told so. A success may
  // rest on an earlier change that is not written.
  return written.ok() || (!entry.changes && !succeeded);
}

absl::StatusOr<LogBatch> Journal::BeginCommit(const Coordinator& coordinator,
                                              const ClosedRound& closed,
                                              const OuterStepOutcome& outcome,
                                              absl::Span<const float> shares,
                                              CommitRecord commit) {
  RETURN_IF_ERROR(coordinator.CheckInOffice());
  commits_found_.erase(closed.fragment);
  LogBatch batch;
  batch.admitted = closed.admitted;
  for (size_t i = 0; i < closed.contributions.size(); ++i) {
    const v1::ContributionHeader& header = closed.contributions[i];
    ContributionRecord& record = batch.contributions.emplace_back(
        RecordOf(header,
                 header.partial() ? ContributionFate::kPartial
                                  : ContributionFate::kMerged,
                 commit.committed_at));
    record.weight = shares[i];
    record.norm = closed.norms[i];
  }
  batch.events = coordinator.CommitEvents(closed, outcome);
  SetTime(commit.committed_at, batch.events);
  batch.commits.push_back(std::move(commit));
  return batch;
}

std::optional<absl::Status> Journal::OutcomeOfCommit(
    uint32_t fragment, const absl::Status& unknown) const {
  const auto found = commits_found_.find(fragment);
  if (found == commits_found_.end()) return std::nullopt;
  if (found->second) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("the commit was not written: ", unknown.message()));
}

void Journal::Reconciled(const DoubtfulWrite& write, Effects& effects) {
  if (write.fragment.has_value()) {
    commits_found_[*write.fragment] = write.found;
  } else if (doubtful_events_.has_value()) {
    // The rest of the batch may safely be written twice.
    if (write.found) {
      unwritten_.events.erase(
          unwritten_.events.begin(),
          unwritten_.events.begin() +
              static_cast<std::ptrdiff_t>(*doubtful_events_));
    }
    doubtful_events_.reset();
  }
  effects.events.push_back(
      {"log_reconciled", "",
       absl::StrCat("the disk takes writes again; the write whose outcome was "
                    "unknown ",
                    write.found ? "is there" : "is not there")});
}

}  // namespace causeway
