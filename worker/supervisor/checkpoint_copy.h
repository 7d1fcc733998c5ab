// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// A copy of an island's recent checkpoint in the memory of another host, from
// which the island goes on if the host of its process 0 is lost:
//
//   the other host      CheckpointKeeper keeps the copy.
//   process 0's host    FetchCheckpoint(...);   // before the first start
//                       CheckpointMirror sends each new checkpoint, at a rate.
//
// Both sides have the secret of the island's ranks, and all goes encrypted. The
// file itself has digests, which its reader checks (worker/island_checkpoint).
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
  // The keeper's, host:port.
  std::string address;
  std::string secret;
  // The directory of recent checkpoints on this host.
  std::string directory;
  // The rate of a mirror; 0 does not limit it.
  double bytes_per_second = 0;
  Clock now;
};

// Keeps the checkpoint that a mirror sends in its directory, on a thread.
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

// Puts the keeper's checkpoint into the directory if that has none. Waits up to
// 10 s for a keeper. Changes nothing if the keeper has none.
absl::Status FetchCheckpoint(const CheckpointCopyOptions& options);

// Sends each new checkpoint in the directory to the keeper, on a thread; those
// that come while one is on its way are left out. If the checkpoint is removed,
// so is the copy, at the latest at the end. Failures are logged.
class CheckpointMirror {
 public:
  explicit CheckpointMirror(CheckpointCopyOptions options);
  ~CheckpointMirror();

 private:
  // The file's inode and the time of its last change.
  using Version = std::pair<uint64_t, int64_t>;

  std::optional<Version> Newest() const;
  // Makes the copy the newest version. UNAVAILABLE: no keeper listens.
  absl::Status Follow();
  absl::Status Send(absl::string_view file, SecureSocket& socket);
  void Run();

  const CheckpointCopyOptions options_;
  Pacer pacer_;
  // The keeper has this version. Version() says that nobody knows.
  std::optional<Version> copied_;
  absl::Notification stop_;
  std::thread thread_;
};

}  // namespace causeway

#endif  // WORKER_SUPERVISOR_CHECKPOINT_COPY_H_
