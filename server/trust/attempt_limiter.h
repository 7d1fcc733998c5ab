// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Bounds how often each address may fail at something.
#ifndef SERVER_TRUST_ATTEMPT_LIMITER_H_
#define SERVER_TRUST_ATTEMPT_LIMITER_H_

#include <cstddef>
#include <map>
#include <string>

#include "absl/time/time.h"

namespace causeway {

// Counts failures in windows of a minute. Not thread-safe.
class AttemptLimiter {
 public:
  // Failures of one address in a window.
  static constexpr int kMostFailures = 10;
  // Addresses that are counted in a window. Others may try: the bound is on
  // memory.
  static constexpr size_t kMostAddresses = 4096;

  bool MayTry(const std::string& address, absl::Time now) {
    if (now - window_ >= absl::Minutes(1)) {
      failures_.clear();
      window_ = now;
    }
    const auto found = failures_.find(address);
    return found == failures_.end() || found->second < kMostFailures;
  }

  // Notes a failure after MayTry.
  void Fail(const std::string& address) {
    if (failures_.size() < kMostAddresses || failures_.count(address) > 0) {
      ++failures_[address];
    }
  }

 private:
  absl::Time window_ = absl::InfinitePast();
  std::map<std::string, int> failures_;
};

}  // namespace causeway

#endif  // SERVER_TRUST_ATTEMPT_LIMITER_H_
