// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The error handling of every function of the C interface.
#ifndef WORKER_EMBEDDING_C_GUARD_H_
#define WORKER_EMBEDDING_C_GUARD_H_

#include <exception>
#include <initializer_list>
#include <new>
#include <string>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
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
  } catch (const std::system_error& error) {
    // A thread was not started.
    status = absl::ResourceExhaustedError(absl::StrCat(
        error.what(),
        ": raise the limit of threads of this process's container or unit "
        "(pids, TasksMax), or ulimit -u or -v"));
  } catch (const std::exception& error) {
    status = absl::InternalError(error.what());
  }
  if (!status.ok()) LastError() = std::string(status.message());
  return static_cast<causeway_code>(status.raw_code());
}

// Does the same, unless one of the pointers is null.
template <typename Work>
causeway_code Guard(std::initializer_list<const void*> pointers, Work work) {
  return Guard([&]() -> absl::Status {
    for (const void* pointer : pointers) {
      if (pointer == nullptr) {
        return absl::InvalidArgumentError("a null pointer was passed");
      }
    }
    return work();
  });
}

}  // namespace causeway

#endif  // WORKER_EMBEDDING_C_GUARD_H_
