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
  // The most failures of one address in a window.
  static constexpr int kMostFailures = 10;
  // The most addresses that are counted in a window, to bound memory. Failures
  // of others are not counted.
  static constexpr size_t kMostAddresses = 4096;

  // Notes a failure. Returns false if the address had failed too often before.
  bool MayFail(const std::string& address, absl::Time now) {
    // The clock may also have been put back.
    if (now < window_ || now - window_ >= absl::Minutes(1)) {
      failures_.clear();
      window_ = now;
    }
    if (failures_.size() >= kMostAddresses && !failures_.contains(address)) {
      return true;
    }
    int& failures = failures_[address];
    if (failures >= kMostFailures) return false;
    ++failures;
    return true;
  }

 private:
  absl::Time window_ = absl::InfinitePast();
  std::map<std::string, int> failures_;
};

}  // namespace causeway

#endif  // SERVER_TRUST_ATTEMPT_LIMITER_H_
