// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/storage/state_directory.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/substitute.h"
#include "common/checksum.h"
#include "common/status_macros.h"
#include "glog/logging.h"

namespace causeway {
namespace {

constexpr char kLockName[] = "lock";
constexpr char kLogName[] = "run.sqlite3";

std::string LogPath(const std::string& directory) {
  return absl::StrCat(directory, "/", kLogName);
}

// A directory may become a state directory if it is empty or is one already,
// if only just begun.
absl::Status CheckUsable(const std::string& path) {
  ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(path));
  const auto is_ours = [](const std::string& name) {
    return name == kLockName || name == "fragments" || name == "updates" ||
           name == "merges" || absl::StartsWith(name, kLogName) ||
           // The root of a file system of its own.
           name == "lost+found";
  };
  const auto foreign = std::find_if_not(names.begin(), names.end(), is_ours);
  const bool has_log =
      std::find(names.begin(), names.end(), kLogName) != names.end();
  if (has_log || foreign == names.end()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::Substitute(
      "$0 is not a state directory and not empty (it has \"$1\"): name a "
      "directory that is empty or does not exist",
      path, *foreign));
}

}  // namespace

absl::StatusOr<std::unique_ptr<StateDirectory>> StateDirectory::Open(
    const std::string& path, Options options) {
  if (options.create) RETURN_IF_ERROR(CreateDirectory(path));
  RETURN_IF_ERROR(CheckUsable(path));
  absl::StatusOr<FileLock> lock =
      FileLock::Acquire(absl::StrCat(path, "/", kLockName));
  if (absl::IsFailedPrecondition(lock.status())) {
    absl::string_view holder = lock.status().message();
    holder.remove_prefix(std::min(holder.size(), holder.rfind("pid ")));
    return absl::FailedPreconditionError(
        absl::Substitute("state directory $0 is in use by another coordinator "
                         "($1)",
                         path, holder));
  }
  RETURN_IF_ERROR(lock.status());
  ASSIGN_OR_RETURN(FragmentStore fragments,
                   FragmentStore::Create(path, std::move(options.fragments)));
  ASSIGN_OR_RETURN(std::unique_ptr<CommitLog> log,
                   CommitLog::Open(LogPath(path)));
  RETURN_IF_ERROR(MergeStore(path).RemoveRemains());
  return std::unique_ptr<StateDirectory>(new StateDirectory(
      path, *std::move(lock), std::move(log), std::move(fragments)));
}

absl::StatusOr<std::unique_ptr<StateDirectory>> StateDirectory::OpenReadOnly(
    const std::string& path) {
  // Says better than SQLite why there is nothing to open.
  ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(path));
  if (std::find(names.begin(), names.end(), kLogName) == names.end()) {
    return absl::NotFoundError(absl::Substitute(
        "$0 is not a state directory: it has no $1", path, kLogName));
  }
  ASSIGN_OR_RETURN(std::unique_ptr<CommitLog> log,
                   CommitLog::OpenReadOnly(LogPath(path)));
  return std::unique_ptr<StateDirectory>(new StateDirectory(
      path, std::nullopt, std::move(log), FragmentStore::OpenReadOnly(path)));
}

absl::StatusOr<StoredFragment> StateDirectory::ReadHead(
    absl::string_view run_id, uint32_t fragment) {
  // One commit between the log and the file is bad luck; as many as this while
  // a file is opened do not happen.
  constexpr int kAttempts = 5;
  absl::Status status;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    ASSIGN_OR_RETURN(const std::vector<CommitRecord> newest,
                     log_->History(fragment, 1));
    if (newest.empty()) {
      return absl::NotFoundError(absl::Substitute(
          "$0 has no committed version of fragment $1", path_, fragment));
    }
    absl::StatusOr<StoredFragment> stored =
        fragments_.OpenFragment(newest[0].file, run_id, newest[0].head);
    if (!absl::IsNotFound(stored.status())) return stored;
    status = stored.status();
  }
  return status;
}

absl::Status StateDirectory::RecordMerge(
    absl::string_view run_id, const v1::RunConfig& config,
    const CommitRecord& commit,
    absl::Span<const v1::ContributionHeader> contributions,
    absl::Span<const absl::string_view> encodings) const {
  const auto digest = [](absl::Span<const float> values) {
    return values.empty() ? std::string() : Digest128(values);
  };
  ASSIGN_OR_RETURN(const StoredFragment fragment,
                   fragments_.OpenFragment(commit.file, run_id, commit.head));
  ASSIGN_OR_RETURN(
      const StoredUpdate update,
      fragments_.OpenUpdate(commit.update_file, run_id, commit.head));
  v1::RecordedMerge merge;
  *merge.mutable_head() = commit.head;
  merge.mutable_contributions()->Assign(contributions.begin(),
                                        contributions.end());
  merge.set_momentum_digest(digest(fragment.contents().momentum));
  merge.set_residual_digest(digest(fragment.contents().residual));
  merge.set_gradient_sum_digest(digest(fragment.contents().gradient_sum));
  merge.set_update_digest(update.contents().object.digest());
  return merges_.Write(merge, config, encodings);
}

absl::StatusOr<std::vector<std::string>> StateDirectory::RemoveUnreferenced(
    uint64_t versions_kept, uint64_t updates_kept) {
  CHECK_GE(versions_kept, 1) << "the committed version must stay";
  std::set<std::string> kept;
  ASSIGN_OR_RETURN(const std::vector<CommitRecord> heads, log_->Heads());
  for (const CommitRecord& head : heads) {
    ASSIGN_OR_RETURN(const std::vector<CommitRecord> history,
                     log_->History(head.head.fragment(),
                                   std::max(versions_kept, updates_kept)));
    for (uint64_t age = 0; age < history.size(); ++age) {
      if (age < versions_kept) kept.insert(history[age].file);
      if (age < updates_kept) kept.insert(history[age].update_file);
    }
  }
  return fragments_.RemoveAllBut(kept);
}

}  // namespace causeway
