// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#ifndef COMMON_TRANSPORT_CERTIFICATE_EXPIRY_H_
#define COMMON_TRANSPORT_CERTIFICATE_EXPIRY_H_

#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/clock.h"

namespace causeway {

// Finds when the certificate in a PEM file expires. The file may be replaced at
// any time; it is read at most once in ten seconds. Thread-safe.
class CertificateExpiry {
 public:
  // `path` may be empty: there is no certificate.
  CertificateExpiry(std::string path, Clock now)
      : path_(std::move(path)), now_(std::move(now)) {}

  // Returns InfiniteFuture without a certificate, and while the file cannot be
  // read.
  absl::Time Get();

 private:
  const std::string path_;
  const Clock now_;
  absl::Mutex mu_;
  absl::Time read_at_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
  absl::Time expiry_ ABSL_GUARDED_BY(mu_) = absl::InfiniteFuture();
};

}  // namespace causeway

#endif  // COMMON_TRANSPORT_CERTIFICATE_EXPIRY_H_
