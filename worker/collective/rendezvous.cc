// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/collective/rendezvous.h"

#include "absl/strings/str_cat.h"

namespace causeway {
namespace {

absl::Status Closed() {
  return absl::UnavailableError("the rendezvous was closed");
}

}  // namespace

absl::Status LocalRendezvous::Put(absl::string_view key,
                                  absl::string_view value) {
  absl::MutexLock lock(&mu_);
  if (closed_) return Closed();
  if (!values_.emplace(std::string(key), std::string(value)).second) {
    return absl::AlreadyExistsError(
        absl::StrCat("the key \"", key, "\" is already written"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> LocalRendezvous::Get(absl::string_view key,
                                                 absl::Duration timeout) {
  const std::string name(key);
  absl::MutexLock lock(&mu_);
  const auto settled = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return closed_ || values_.count(name) > 0;
  };
  if (!mu_.AwaitWithTimeout(absl::Condition(&settled), timeout)) {
    return absl::DeadlineExceededError(
        absl::StrCat("no process wrote the key \"", key, "\" within ",
                     absl::FormatDuration(timeout)));
  }
  if (closed_) return Closed();
  return values_.find(name)->second;
}

void LocalRendezvous::Close() {
  absl::MutexLock lock(&mu_);
  closed_ = true;
}

}  // namespace causeway
