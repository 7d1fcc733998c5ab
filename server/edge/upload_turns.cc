// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/edge/upload_turns.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace causeway {

void UploadTurns::Await(uint64_t offset, Turn turn) {
  absl::Status status;
  {
    absl::MutexLock lock(&mu_);
    if (status_.ok() && offset > next_) {
      waiting_.emplace(offset, std::move(turn));
      return;
    }
    status = status_;
  }
  turn(status);
}

void UploadTurns::Advance(uint64_t offset) {
  {
    absl::MutexLock lock(&mu_);
    next_ = offset;
    // A turn itself advances. If the next turn ran within that call, the stack
    // would grow with the number of chunks.
    if (std::exchange(is_running_, true)) return;
  }
  while (const Turn turn = TakeDue()) turn(absl::OkStatus());
}

UploadTurns::Turn UploadTurns::TakeDue() {
  absl::MutexLock lock(&mu_);
  is_running_ = !waiting_.empty() && waiting_.begin()->first <= next_;
  if (!is_running_) return nullptr;
  Turn due = std::move(waiting_.begin()->second);
  waiting_.erase(waiting_.begin());
  return due;
}

void UploadTurns::Break(const absl::Status& error) {
  std::multimap<uint64_t, Turn> broken;
  {
    absl::MutexLock lock(&mu_);
    if (!status_.ok()) return;
    status_ = error;
    broken.swap(waiting_);
  }
  for (const auto& [offset, turn] : broken) turn(error);
}

absl::StatusOr<std::shared_ptr<UploadTurns>> SharedUploads::Open(
    const ContributionKey& key, uint64_t next_offset, uint32_t streams) {
  if (streams > kMaxStreams) {
    return absl::InvalidArgumentError(
        absl::StrCat("the header announces ", streams,
                     " streams; an upload can have at most ", kMaxStreams));
  }
  auto turns = std::make_shared<UploadTurns>(next_offset);
  Upload older;
  {
    absl::MutexLock lock(&mu_);
    Upload& upload = uploads_[key];
    older = std::move(upload);
    upload = {.turns = turns, .streams_left = streams - 1};
  }
  if (older.turns != nullptr) {
    older.turns->Break(absl::UnavailableError(
        "the upload has started over on another stream"));
  }
  return turns;
}

absl::StatusOr<std::shared_ptr<UploadTurns>> SharedUploads::Join(
    const ContributionKey& key) {
  absl::MutexLock lock(&mu_);
  const auto upload = uploads_.find(key);
  if (upload == uploads_.end()) {
    return absl::UnavailableError(
        "this stream's upload is not open (any more); offer the contribution "
        "again");
  }
  // A late stream of an earlier try may have taken the place of one of this
  // try, which is not the island's fault.
  if (upload->second.streams_left == 0) {
    return absl::UnavailableError(
        "the upload already has all streams that its header announced; offer "
        "the contribution again");
  }
  --upload->second.streams_left;
  return upload->second.turns;
}

void SharedUploads::Close(const ContributionKey& key,
                          const std::shared_ptr<UploadTurns>& turns) {
  {
    absl::MutexLock lock(&mu_);
    const auto upload = uploads_.find(key);
    if (upload != uploads_.end() && upload->second.turns == turns) {
      uploads_.erase(upload);
    }
  }
  turns->Break(absl::UnavailableError(
      "the upload's first stream has ended; offer the contribution again"));
}

}  // namespace causeway
