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
  // Only syncs of files whose path has this part fail or wait; null means all
  // files.
  std::atomic<const char*> path = nullptr;
  // The first `sound_syncs` of these succeed, and the next `failing_syncs`
  // fail; if that is negative, all others fail.
  std::atomic<int> sound_syncs = 0;
  std::atomic<int> failing_syncs = -1;
  // Syncs wait while `stands_still` is true; `waiting` counts them.
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

FailingDisk& TheFailingDisk();

}  // namespace causeway

#endif  // SERVER_STORAGE_TESTING_FAILING_DISK_H_
