// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Finds when a certificate in a PEM file expires, and warns in good time.
#ifndef COMMON_TRANSPORT_CERTIFICATE_EXPIRY_H_
#define COMMON_TRANSPORT_CERTIFICATE_EXPIRY_H_

#include <string>
#include <thread>
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
  // `path` is empty if there is no certificate. `now` is the wall clock.
  CertificateExpiry(std::string path, Clock now)
      : path_(std::move(path)), now_(std::move(now)) {}

  // Returns InfiniteFuture without a certificate, and while the file cannot be
  // read.
  absl::Time Get();

  struct Notice {
    // Empty if the certificate is good for longer.
    std::string text;
    bool has_expired = false;
    // The time from which on there is a notice.
    absl::Time since = absl::InfiniteFuture();
  };
  // Gives notice if the certificate has expired, or expires within two days or
  // the last tenth of its life, whichever is less. Certificates that renew
  // themselves have more time left.
  Notice Check();

 private:
  struct Life {
    absl::Time from = absl::InfinitePast();
    absl::Time until = absl::InfiniteFuture();
  };
  static Life Read(const std::string& path);
  Life Current();

  const std::string path_;
  const Clock now_;
  absl::Mutex mu_;
  absl::Time read_at_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
  Life life_ ABSL_GUARDED_BY(mu_);
};

// While it exists, logs a certificate's notice at once and then once an hour,
// or once a minute if the certificate has expired.
class CertificateWatch {
 public:
  // `certificate` must outlive this.
  explicit CertificateWatch(CertificateExpiry* certificate);
  ~CertificateWatch();

 private:
  void Loop();

  CertificateExpiry* const certificate_;
  absl::Mutex mu_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace causeway

#endif  // COMMON_TRANSPORT_CERTIFICATE_EXPIRY_H_
