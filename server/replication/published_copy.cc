// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/replication/published_copy.h"

#include <memory>
#include <utility>

#include "absl/strings/substitute.h"
#include "common/status_macros.h"
#include "server/storage/commit_log.h"

namespace causeway {

void PublishedCopy::Open(StateDirectory* state, FragmentHeads* heads,
                         const std::string& run_id) {
  absl::MutexLock copy_lock(&copy_mu_);
  state_ = state;
  heads_ = heads;
  run_id_ = run_id;
  absl::MutexLock lock(&mu_);
  published_.assign(heads->size(), std::nullopt);
}

void PublishedCopy::Close() {
  {
    absl::MutexLock copy_lock(&copy_mu_);
    state_ = nullptr;
    heads_ = nullptr;
    absl::MutexLock lock(&mu_);
    published_.clear();
  }
  news_.Notify();
}

void PublishedCopy::Connect(uint64_t epoch, const CodecSpec& downlink) {
  absl::MutexLock lock(&mu_);
  is_connected_ = true;
  epoch_ = epoch;
  downlink_ = downlink;
}

void PublishedCopy::Disconnect() {
  {
    absl::MutexLock lock(&mu_);
    is_connected_ = false;
  }
  news_.Notify();
}

void PublishedCopy::Publish(const v1::FragmentHead& head) {
  {
    absl::MutexLock lock(&mu_);
    if (head.fragment() >= published_.size()) return;
    published_[head.fragment()] = head.version();
  }
  news_.Notify();
}

absl::StatusOr<bool> PublishedCopy::IsReadable(
    const v1::IslandIdentity& identity, uint32_t fragment, uint64_t version) {
  if (heads_ == nullptr) {
    return absl::UnavailableError("this follower has no complete copy");
  }
  if (identity.run_id() != run_id_) {
    return absl::FailedPreconditionError(absl::Substitute(
        "this is run $0, and not $1", run_id_, identity.run_id()));
  }
  if (fragment >= heads_->size()) {
    return absl::NotFoundError(
        absl::Substitute("there is no fragment $0", fragment));
  }
  const uint64_t newest = heads_->Newest(fragment)->contents().head.version();
  absl::MutexLock lock(&mu_);
  if (identity.epoch() != epoch_) {
    return absl::UnavailableError(absl::Substitute(
        "this follower knows epoch $0 of the run, and the island $1", epoch_,
        identity.epoch()));
  }
  const std::optional<uint64_t>& published = published_[fragment];
  if (published.has_value() && version <= *published && version <= newest) {
    return true;
  }
  if (is_connected_) return false;
  return absl::UnavailableError(
      absl::Substitute("this follower does not have version $0 of fragment $1, "
                       "and is following no coordinator",
                       version, fragment));
}

absl::StatusOr<std::optional<OpenedUpdate>> PublishedCopy::OpenUpdate(
    const v1::FetchUpdateRequest& request) {
  absl::ReaderMutexLock copy_lock(&copy_mu_);
  const uint64_t version = request.from_version() + 1;
  ASSIGN_OR_RETURN(const bool is_readable,
                   IsReadable(request.identity(), request.fragment(), version));
  if (!is_readable) return std::nullopt;
  ASSIGN_OR_RETURN(const CommitRecord commit,
                   state_->log().FindCommit(request.fragment(), version));
  CodecSpec downlink;
  {
    absl::MutexLock lock(&mu_);
    downlink = downlink_;
  }
  ASSIGN_OR_RETURN(std::shared_ptr<const StoredUpdate> stored,
                   OpenStoredUpdate(*heads_, commit, downlink));
  OpenedUpdate opened{.bytes = stored->contents().encoding};
  *opened.response.mutable_head() = commit.head;
  *opened.response.mutable_object() = stored->contents().object;
  opened.owner = std::move(stored);
  return opened;
}

absl::StatusOr<std::optional<OpenedParameters>> PublishedCopy::OpenParameters(
    const v1::FetchParametersRequest& request) {
  absl::ReaderMutexLock lock(&copy_mu_);
  ASSIGN_OR_RETURN(
      const bool is_readable,
      IsReadable(request.identity(), request.fragment(), request.version()));
  if (!is_readable) return std::nullopt;
  return OpenVersion(*heads_, request);
}

}  // namespace causeway
