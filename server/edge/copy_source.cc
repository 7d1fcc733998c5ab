// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/edge/copy_source.h"

#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/substitute.h"
#include "common/proto_time.h"
#include "common/status_macros.h"
#include "glog/logging.h"
#include "server/rules/run_health.h"
#include "server/storage/state_directory.h"
#include "server/stored_run.h"

namespace causeway {
namespace {

// A connection may break and come back for this long without a problem.
constexpr absl::Duration kLongestAlone = absl::Seconds(5);

// Says why the follower hears from no leader. `awaited` is right for a leader
// that cannot be reached.
std::string Reason(const Follower::View& view,
                   const std::function<std::string()>& awaited) {
  if (view.problem.ok()) return awaited();
  if (absl::IsUnavailable(view.problem)) {
    return absl::StrCat(awaited(), "; the last try: ", view.problem.message());
  }
  return absl::StrCat("the one at ", view.leader,
                      " cannot be followed: ", view.problem.ToString());
}

}  // namespace

void CopySource::Observe(const std::function<std::string()>& awaited,
                         const std::string& etcd_problem) {
  const Follower::View view = follower_->view();
  const absl::Time now = now_();
  absl::MutexLock lock(&alone_mu_);
  if (etcd_problem != etcd_problem_) etcd_problem_since_ = now;
  etcd_problem_ = etcd_problem;
  problem_.clear();
  alone_since_ =
      view.is_connected ? absl::InfiniteFuture() : std::min(alone_since_, now);
  if (now - alone_since_ < kLongestAlone) return;
  problem_ =
      absl::StrCat("this coordinator follows no one: ", Reason(view, awaited));
  LOG_EVERY_T(WARNING, 60) << problem_;
}

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
  run.set_is_copy(true);
  run.set_follows(view.leader);
  run.set_epoch(view.epoch);
  run.set_copy_bytes_sent(follower_->published().bytes_sent());
  *run.mutable_config() = view.config;
  absl::MutexLock alone_lock(&alone_mu_);
  if (alone_since_ < absl::InfiniteFuture()) {
    *run.mutable_alone_since() = ToTimestamp(alone_since_);
  }
  // The leader of a finished run may have ended. The problem of a follower that
  // is alone says what is wrong with etcd, too.
  const bool is_alone = !problem_.empty();
  if ((is_alone || !etcd_problem_.empty()) && run.state() != v1::FINISHED) {
    v1::Attention problem;
    problem.set_severity(is_alone ? v1::CRITICAL : v1::WARNING);
    problem.set_text(is_alone ? problem_ : etcd_problem_);
    *problem.mutable_since() =
        ToTimestamp(is_alone ? alone_since_ : etcd_problem_since_);
    AddProblems({problem}, run);
  }
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
