// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/transport/certificate_expiry.h"

#include "absl/status/statusor.h"
#include "common/os/file.h"
#include "common/transport/x509.h"

namespace causeway {
namespace {

constexpr absl::Duration kKept = absl::Seconds(10);

absl::Time ExpiryOf(const std::string& path) {
  const absl::StatusOr<std::string> pem = ReadFile(path);
  if (!pem.ok()) return absl::InfiniteFuture();
  const auto certificates = ParseCertificates(*pem);
  if (!certificates.ok()) return absl::InfiniteFuture();
  return FactsOf(*certificates->front()).valid_until;
}

}  // namespace

absl::Time CertificateExpiry::Get() {
  if (path_.empty()) return absl::InfiniteFuture();
  const absl::Time now = now_();
  absl::MutexLock lock(&mu_);
  if (now - read_at_ >= kKept) {
    read_at_ = now;
    expiry_ = ExpiryOf(path_);
  }
  return expiry_;
}

}  // namespace causeway
