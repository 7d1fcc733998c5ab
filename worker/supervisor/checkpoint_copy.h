// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// A copy of an island's recent checkpoint in the memory of another host, from
// which the island continues if the host of its process 0 is lost:
//
//   the other host      CheckpointKeeper keeps the copy.
//   process 0's host    FetchCheckpoint(...);   // before the first start
//                       CheckpointMirror sends each new checkpoint, at a rate.
//
// Both sides have the secret of the island's ranks and encrypt everything. The
// file has digests, which its reader checks (worker/island_checkpoint).
#ifndef WORKER_SUPERVISOR_CHECKPOINT_COPY_H_
#define WORKER_SUPERVISOR_CHECKPOINT_COPY_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/os/file.h"
#include "common/transport/pacer.h"
#include "worker/collective/secure_socket.h"

namespace causeway {

struct CheckpointCopyOptions {
  // The keeper's address, host:port.
  std::string address;
  std::string secret;
  // The directory of recent checkpoints on this host.
  std::string directory;
  // The rate of a mirror; 0 does not limit it.
  double bytes_per_second = 0;
  Clock now;
};

// Keeps a mirror's checkpoint in its directory, on a thread.
class CheckpointKeeper {
 public:
  // Port 0 takes a free one.
  //   FAILED_PRECONDITION  Another process uses the directory.
  //   UNAVAILABLE          It cannot listen there.
  static absl::StatusOr<std::unique_ptr<CheckpointKeeper>> Start(
      const CheckpointCopyOptions& options);
  ~CheckpointKeeper();

  const std::string& address() const { return listener_->address(); }
  // Lets the destructor remove the copy, because the island has ended.
  void RemoveAtEnd() { remove_at_end_ = true; }

 private:
  CheckpointKeeper(CheckpointCopyOptions options, FileLock lock,
                   std::unique_ptr<SecureListener> listener);
  void Run();
  absl::Status Serve(SecureSocket& socket) const;

  const CheckpointCopyOptions options_;
  const FileLock lock_;
  const std::unique_ptr<SecureListener> listener_;
  bool remove_at_end_ = false;
  std::thread thread_;
};

// Puts the keeper's checkpoint, if any, into the directory if that has none.
// Waits up to 10 s for a keeper.
absl::Status FetchCheckpoint(const CheckpointCopyOptions& options);

// Sends each new checkpoint in the directory to the keeper, on a thread, but
// skips those that appear during a transfer. Also removes the copy of a removed
// checkpoint, at the end at the latest. Failures are logged.
class CheckpointMirror {
 public:
  explicit CheckpointMirror(CheckpointCopyOptions options);
  ~CheckpointMirror();

 private:
  // A file's inode and the time of its last change.
  using Version = std::pair<uint64_t, int64_t>;

  std::optional<Version> Newest() const;
  // Brings the copy up to date. UNAVAILABLE if no keeper listens.
  absl::Status Follow();
  absl::Status Send(absl::string_view file, SecureSocket& socket);
  void Run();

  const CheckpointCopyOptions options_;
  Pacer pacer_;
  // The keeper's version; Version() if it is unknown.
  std::optional<Version> copied_;
  absl::Notification stop_;
  std::thread thread_;
};

}  // namespace causeway

#endif  // WORKER_SUPERVISOR_CHECKPOINT_COPY_H_
