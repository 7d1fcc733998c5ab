// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// A small table through which the ranks of an island find each other. Keys are
// written once and can be waited for. It carries addresses before there are
// connections, and later the ranks' reports of a failure, but never bulk data.
#ifndef WORKER_COLLECTIVE_RENDEZVOUS_H_
#define WORKER_COLLECTIVE_RENDEZVOUS_H_

#include <map>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace causeway {

// Enough time for the table's keeper to answer about a key that may be missing.
inline constexpr absl::Duration kRendezvousAnswer = absl::Milliseconds(200);

// Thread-safe.
class Rendezvous {
 public:
  virtual ~Rendezvous() = default;

  // Writes `key`.
  //   ALREADY_EXISTS  The key was written before; its value stays.
  //   UNAVAILABLE, DEADLINE_EXCEEDED  The keeper of the table is gone, or does
  //                                   not answer.
  //   RESOURCE_EXHAUSTED  This process may open no more files.
  virtual absl::Status Put(absl::string_view key, absl::string_view value) = 0;

  // Waits up to `timeout` until `key` is written, and returns its value.
  //   DEADLINE_EXCEEDED  It was not written, or see Put.
  //   UNAVAILABLE, RESOURCE_EXHAUSTED  See Put.
  virtual absl::StatusOr<std::string> Get(absl::string_view key,
                                          absl::Duration timeout) = 0;
};

// A table in this process. Thread-safe.
class LocalRendezvous : public Rendezvous {
 public:
  absl::Status Put(absl::string_view key, absl::string_view value) override;
  absl::StatusOr<std::string> Get(absl::string_view key,
                                  absl::Duration timeout) override;

  // Makes waiting and later calls fail with UNAVAILABLE.
  void Close();

 private:
  absl::Mutex mu_;
  std::map<std::string, std::string> values_ ABSL_GUARDED_BY(mu_);
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace causeway

#endif  // WORKER_COLLECTIVE_RENDEZVOUS_H_
