// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/edge/copy_source.h"

#include <memory>

#include "absl/strings/substitute.h"
#include "common/proto_time.h"
#include "common/status_macros.h"
#include "server/storage/state_directory.h"
#include "server/stored_run.h"

namespace causeway {

absl::StatusOr<v1::PageData> CopySource::Read() {
  const Follower::View view = follower_->view();
  if (!view.is_complete) {
    return absl::UnavailableError(absl::Substitute(
        "the copy of the run at $0 is not complete yet", view.leader));
  }
  absl::MutexLock lock(&mu_);
  if (!data_.has_run() || changes_ != view.changes) {
    ASSIGN_OR_RETURN(data_, ReadPageData(follower_->state_dir(), 0));
    // The history is served in pages.
    data_.clear_history();
    changes_ = view.changes;
  }
  v1::PageData data = data_;
  v1::RunStatus& run = *data.mutable_run();
  *run.mutable_time() = ToTimestamp(now_());
  run.set_follows(view.leader);
  run.set_epoch(view.epoch);
  run.set_bytes_sent(follower_->published().bytes_sent());
  *run.mutable_config() = view.config;
  return data;
}

absl::StatusOr<std::shared_ptr<CommitLog>> CopySource::Log() const {
  ASSIGN_OR_RETURN(const std::shared_ptr<StateDirectory> state,
                   StateDirectory::OpenReadOnly(follower_->state_dir()));
  return std::shared_ptr<CommitLog>(state, &state->log());
}

absl::StatusOr<v1::GetHistoryResponse> CopySource::History(
    const v1::GetHistoryRequest& request) const {
  ASSIGN_OR_RETURN(const std::shared_ptr<CommitLog> log, Log());
  return log->HistoryAfter(request);
}

absl::StatusOr<std::vector<v1::Event>> CopySource::NewestEvents(
    uint64_t after, uint64_t most, const EventFilter& filter) const {
  ASSIGN_OR_RETURN(const std::shared_ptr<CommitLog> log, Log());
  return log->NewestEvents(after, most, filter);
}

}  // namespace causeway
