// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/collective/rendezvous.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace causeway {

absl::Status LocalRendezvous::Put(absl::string_view key,
                                  absl::string_view value) {
  const std::string name(key);
  const std::string text(value);
  std::vector<std::function<void(const std::string&)>> found;
  {
    absl::MutexLock lock(&mu_);
    if (!values_.emplace(name, text).second) {
      return absl::AlreadyExistsError(
          absl::StrCat("the key \"", key, "\" was written before"));
    }
    const auto [first, last] = waiting_.equal_range(name);
    for (auto waiter = first; waiter != last; ++waiter) {
      found.push_back(std::move(waiter->second));
    }
    waiting_.erase(first, last);
  }
  for (const auto& call : found) call(text);
  return absl::OkStatus();
}

absl::StatusOr<std::string> LocalRendezvous::Get(absl::string_view key,
                                                 absl::Duration timeout) {
  const std::string name(key);
  absl::MutexLock lock(&mu_);
  const auto written = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return values_.count(name) > 0;
  };
  if (!mu_.AwaitWithTimeout(absl::Condition(&written), timeout)) {
    return absl::DeadlineExceededError(
        absl::StrCat("nobody wrote the key \"", key, "\" within ",
                     absl::FormatDuration(timeout)));
  }
  return values_.find(name)->second;
}

void LocalRendezvous::OnceWritten(
    absl::string_view key, std::function<void(const std::string&)> found) {
  std::string value;
  {
    absl::MutexLock lock(&mu_);
    const auto written = values_.find(std::string(key));
    if (written == values_.end()) {
      waiting_.emplace(std::string(key), std::move(found));
      return;
    }
    value = written->second;
  }
  found(value);
}

}  // namespace causeway
