// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#ifndef SERVER_EDGE_COPY_SOURCE_H_
#define SERVER_EDGE_COPY_SOURCE_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/clock.h"
#include "proto/page.pb.h"
#include "proto/status.pb.h"
#include "server/replication/follower.h"
#include "server/rules/event_filter.h"
#include "server/storage/commit_log.h"

namespace causeway {

// Answers as the Status service does, from a follower's copy. Thread-safe. The
// follower must outlive it.
class CopySource {
 public:
  CopySource(Follower* follower, Clock now)
      : follower_(follower), now_(std::move(now)) {}

  // Returns the run, islands and fragments. Reads the copy again only when it
  // has changed. UNAVAILABLE while the copy is incomplete.
  absl::StatusOr<v1::PageData> Read() ABSL_LOCKS_EXCLUDED(mu_);
  absl::StatusOr<std::shared_ptr<CommitLog>> Log() const;
  absl::StatusOr<v1::GetHistoryResponse> History(
      const v1::GetHistoryRequest& request) const;
  absl::StatusOr<std::vector<v1::Event>> NewestEvents(
      uint64_t after, uint64_t most, const EventFilter& filter) const;

 private:
  Follower* const follower_;
  const Clock now_;
  absl::Mutex mu_;
  v1::PageData data_ ABSL_GUARDED_BY(mu_);
  // Follower::View::changes when data_ was read.
  uint64_t changes_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace causeway

#endif  // SERVER_EDGE_COPY_SOURCE_H_
