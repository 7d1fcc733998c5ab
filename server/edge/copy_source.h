// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#ifndef SERVER_EDGE_COPY_SOURCE_H_
#define SERVER_EDGE_COPY_SOURCE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
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

  // Notes whether the follower hears from a leader; if it has not for some
  // seconds, its status and log tell. `awaited` says what it waits for if the
  // leader cannot be reached. `etcd_problem` is empty if there is none. Call it
  // often.
  void Observe(const std::function<std::string()>& awaited,
               const std::string& etcd_problem = "")
      ABSL_LOCKS_EXCLUDED(alone_mu_);

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

  // The copy may take long to read, so this is guarded by itself.
  absl::Mutex alone_mu_;
  // The time since which no leader sends; infinite while one does.
  absl::Time alone_since_ ABSL_GUARDED_BY(alone_mu_) = absl::InfiniteFuture();
  // The problem that this has become; empty if it has not.
  std::string problem_ ABSL_GUARDED_BY(alone_mu_);
  std::string etcd_problem_ ABSL_GUARDED_BY(alone_mu_);
  absl::Time etcd_problem_since_ ABSL_GUARDED_BY(alone_mu_);
};

}  // namespace causeway

#endif  // SERVER_EDGE_COPY_SOURCE_H_
