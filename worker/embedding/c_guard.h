// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The error handling of every function of the C interface.
#ifndef WORKER_EMBEDDING_C_GUARD_H_
#define WORKER_EMBEDDING_C_GUARD_H_

#include <new>
#include <string>

#include "absl/status/status.h"
#include "worker/embedding/causeway.h"
#include "worker/replica/device/device_queue.h"

namespace causeway {

// The message of this thread's last error.
inline std::string& LastError() {
  thread_local std::string error;
  return error;
}

// Runs `work`, which returns a status; keeps the message of an error, and
// restores the current device.
template <typename Work>
causeway_code Guard(Work work) {
  const KeepCurrentDevice keep;
  absl::Status status;
  try {
    status = work();
  } catch (const std::bad_alloc&) {
    status = absl::ResourceExhaustedError("out of memory");
  }
  if (!status.ok()) LastError() = std::string(status.message());
  return static_cast<causeway_code>(status.raw_code());
}

}  // namespace causeway

#endif  // WORKER_EMBEDDING_C_GUARD_H_
