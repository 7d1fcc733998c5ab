// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The client side of a coordinator's own authority (proto/trust.proto): gets a
// certificate with a join token, and renews it.
//
//   RETURN_IF_ERROR(Enrol("host:7070", token, "tls", now()));
//   ... MakeChannelCredentials({.tls = "tls"}, now()) ...
//   CertificateRenewer renewer("host:7070", "tls", now);
//
// Addresses are as in common/transport/coordinator_target.h. The files are
// those of ClientTlsFiles::tls (common/transport/credentials.h). The key is
// made here and never leaves the folder; renewals keep it.
#ifndef COMMON_TRANSPORT_ENROLMENT_H_
#define COMMON_TRANSPORT_ENROLMENT_H_

#include <cstdint>
#include <functional>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "common/clock.h"

namespace causeway {

// Returns the status of a call of the service Trust; if the coordinator has no
// authority of its own (UNIMPLEMENTED), with a message that says so.
absl::Status ExplainNoAuthority(const absl::Status& answered);

// Writes a folder, made if missing, with which its owner can connect to the
// coordinator at `addresses`. The coordinator must present a certificate of the
// token's authority. Blocks for 20 s at most. After an error it can be repeated
// with the same token, even if an answer was lost.
//   INVALID_ARGUMENT   `join_token` is no join token, or not for `island`,
//                      unless `island` is empty.
//   UNAVAILABLE,
//   DEADLINE_EXCEEDED  No coordinator answers.
//   UNAUTHENTICATED    The coordinator is not the token's, does not know the
//                      token, or has no TLS; or the token is used up.
//   UNIMPLEMENTED      The coordinator has no authority of its own.
absl::Status Enrol(const std::string& addresses, absl::string_view join_token,
                   const std::string& folder, absl::Time now,
                   const std::string& island = "");

// Enrols unless the folder has a valid certificate of the token's authority.
// While no coordinator answers, or it is overloaded, tries again after `pause`,
// until `pause` returns false. `seed` spreads the retries. Returns Enrol's
// errors.
absl::Status EnrolOnce(const std::string& addresses,
                       absl::string_view join_token, const std::string& island,
                       const std::string& folder, const Clock& now,
                       uint64_t seed,
                       const std::function<bool(absl::Duration)>& pause);

// Returns when to renew the folder's certificate.
absl::StatusOr<absl::Time> FolderRenewalTime(const std::string& folder);

// Renews the folder's certificate. Blocks for 20 s at most.
//   UNIMPLEMENTED  The coordinator has no authority of its own.
absl::Status Renew(const std::string& addresses, const std::string& folder,
                   absl::Time now);

// A thread that renews a folder's certificate when it is time, and tries again
// after failures. A coordinator without an authority of its own counts as a
// failure: it may have taken over, and get the authority later.
class CertificateRenewer {
 public:
  // `now` is the wall clock; `seed` spreads the retries.
  CertificateRenewer(std::string addresses, std::string folder, Clock now,
                     uint64_t seed);
  // Blocks until a renewal under way has ended.
  ~CertificateRenewer();

 private:
  void Run(const std::string& addresses, const std::string& folder,
           const Clock& now, uint64_t seed);

  absl::Notification stop_;
  std::thread thread_;
};

}  // namespace causeway

#endif  // COMMON_TRANSPORT_ENROLMENT_H_
