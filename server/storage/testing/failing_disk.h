// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// A disk that fails, or stands still, when a test says so. SQLite writes
// transactions with pwrite64(2) and makes them durable with fdatasync(2);
// failing_disk.cc replaces both for the whole process. Fragments and updates
// use other calls and never fail.
//
// Thread-safe.
#ifndef SERVER_STORAGE_TESTING_FAILING_DISK_H_
#define SERVER_STORAGE_TESTING_FAILING_DISK_H_

#include <atomic>

namespace causeway {

struct FailingDisk {
  // The errors of syncs and writes; 0 lets them succeed.
  std::atomic<int> sync_error = 0;
  std::atomic<int> write_error = 0;
  // The syncs that fail or wait are those of files whose path has this part; of
  // all files if it is null.
  std::atomic<const char*> path = nullptr;
  // The number of these syncs that succeed first, and then of those that fail
  // before they work again; if that is negative, all fail.
  std::atomic<int> sound_syncs = 0;
  std::atomic<int> failing_syncs = -1;
  // Syncs wait while `stands_still` is true; `waiting` of them do.
  std::atomic<bool> stands_still = false;
  std::atomic<int> waiting = 0;

  void Repair() {
    stands_still = false;
    stands_still.notify_all();
    sync_error = write_error = sound_syncs = 0;
    failing_syncs = -1;
    path = nullptr;
  }
};

// Returns the disk of this process.
FailingDisk& TheFailingDisk();

}  // namespace causeway

#endif  // SERVER_STORAGE_TESTING_FAILING_DISK_H_
