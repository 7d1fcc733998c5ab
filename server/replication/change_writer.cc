// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/replication/change_writer.h"

#include <utility>

namespace causeway {

ChangeWriter::ChangeWriter(Write write, std::function<void()> failed)
    : write_(std::move(write)),
      failed_(std::move(failed)),
      thread_([this] { Loop(); }) {}

ChangeWriter::~ChangeWriter() {
  {
    absl::MutexLock lock(&mu_);
    is_ending_ = true;
  }
  thread_.join();
}

void ChangeWriter::Add(ReceivedChange change) {
  absl::MutexLock lock(&mu_);
  const auto has_room = [this] {
    mu_.AssertReaderHeld();
    return waiting_.size() < kMostWaiting || !status_.ok();
  };
  mu_.Await(absl::Condition(&has_room));
  if (status_.ok()) waiting_.push_back(std::move(change));
}

absl::Status ChangeWriter::Flush() {
  absl::MutexLock lock(&mu_);
  const auto is_idle = [this] {
    mu_.AssertReaderHeld();
    return waiting_.empty() && !is_writing_;
  };
  mu_.Await(absl::Condition(&is_idle));
  return status_;
}

void ChangeWriter::Loop() {
  while (true) {
    std::vector<ReceivedChange> group;
    {
      absl::MutexLock lock(&mu_);
      const auto is_due = [this] {
        mu_.AssertReaderHeld();
        return is_ending_ || !waiting_.empty();
      };
      mu_.Await(absl::Condition(&is_due));
      if (waiting_.empty()) return;
      group.swap(waiting_);
      is_writing_ = true;
    }
    const absl::Status written = write_(std::move(group));
    {
      absl::MutexLock lock(&mu_);
      is_writing_ = false;
      status_ = written;
      if (!written.ok()) waiting_.clear();
    }
    if (written.ok()) continue;
    failed_();
    return;
  }
}

}  // namespace causeway
