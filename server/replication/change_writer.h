// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Makes received changes durable, in order and on its own thread, while the
// follower receives more and makes outer steps. Changes that arrive while the
// disk is busy form a group, which shares syncs.
//
//   ChangeWriter writer([&](std::vector<ReceivedChange> group) {...},
//                       [&] { call.TryCancel(); });
//   writer.Add(std::move(change));
//   ...
//   RETURN_IF_ERROR(writer.Flush());
//
// Add and Flush are for one thread.
#ifndef SERVER_REPLICATION_CHANGE_WRITER_H_
#define SERVER_REPLICATION_CHANGE_WRITER_H_

#include <cstddef>
#include <functional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "common/os/file.h"
#include "proto/replication.pb.h"
#include "server/storage/fragment_store.h"

namespace causeway {

// A version that the follower made, and the record of its merge.
struct ReceivedVersion {
  StoredFragment after;
  StoredUpdate update;
  AtomicFileWriter record;
  absl::Duration duration;
};

// A change of the log, and the versions that it commits.
struct ReceivedChange {
  v1::LogChange change;
  std::vector<ReceivedVersion> versions;
};

class ChangeWriter {
 public:
  using Write = std::function<absl::Status(std::vector<ReceivedChange> group)>;

  // Calls `write` with one group after the other. After an error, drops all
  // later changes and calls `failed`.
  ChangeWriter(Write write, std::function<void()> failed);
  // Writes the remaining changes.
  ~ChangeWriter();

  // Waits while kMostWaiting changes wait.
  void Add(ReceivedChange change);
  // Waits until everything is written, and returns the first error.
  absl::Status Flush();

 private:
  static constexpr size_t kMostWaiting = 64;

  void Loop();

  const Write write_;
  const std::function<void()> failed_;
  absl::Mutex mu_;
  std::vector<ReceivedChange> waiting_ ABSL_GUARDED_BY(mu_);
  bool is_writing_ ABSL_GUARDED_BY(mu_) = false;
  bool is_ending_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mu_);
  std::thread thread_;
};

}  // namespace causeway

#endif  // SERVER_REPLICATION_CHANGE_WRITER_H_
