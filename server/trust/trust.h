// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Manages enrolment (proto/trust.proto): join tokens, the certificates that the
// coordinator's own authority has signed, and their renewal. Its records are in
// the authority's folder, in the file `records` (TrustRecords); a change is
// durable before it is answered.
//
// A certificate is good only if it is among the records: if they are lost,
// every client has to enrol again, and no revoked certificate becomes good.
#ifndef SERVER_TRUST_TRUST_H_
#define SERVER_TRUST_TRUST_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/transport/credentials.h"
#include "proto/replication.pb.h"
#include "proto/trust.pb.h"
#include "server/rules/coordinator.h"
#include "server/rules/quiet_count.h"
#include "server/trust/attempt_limiter.h"
#include "server/trust/authority.h"

namespace causeway {

// Thread-safe.
class Trust {
 public:
  static constexpr int kMostTokens = 1000;
  static constexpr int kMostCertificates = 4096;
  // The life of the coordinator's own certificates.
  static constexpr absl::Duration kOwnLife = absl::Hours(24 * 30);

  struct Options {
    // Made if missing; its parent must exist.
    std::string folder;
    // RunConfig.name.
    std::string run;
    // The life of all other certificates.
    absl::Duration certificate_life = absl::Hours(24 * 7);
    // The wall clock, by which clients check certificates. It may be wrong for
    // a while, also by years.
    Clock now;
    // Records an event. May be null.
    std::function<void(const CoordinatorEvent&)> record;
    // Called with the revoked certificates, at the start and after each change.
    // May be null.
    std::function<void(v1::RevokedCertificates)> revoked;
    // These stay revoked: the leaders that this coordinator followed have
    // revoked them (ReadRevoked), which a backup of the folder may not know.
    v1::RevokedCertificates kept;
  };

  // Opens the folder, or makes everything in it, and signs the coordinator's
  // own certificates again. If these cannot be written, the old ones stay, as
  // in Tend; MakeServerCredentials fails if they are of no use.
  //   FAILED_PRECONDITION  A part of the authority is missing or damaged.
  //   UNAVAILABLE          The system's clock is wrong.
  static absl::StatusOr<std::unique_ptr<Trust>> Open(Options options);

  ServerTlsFiles server_files() const { return authority_.server_files(); }

  // Returns the time for new certificates: never before the authority is valid,
  // because earlier certificates would be of no use.
  absl::Time Now() const;

  // Renews the coordinator's own certificates when it is time, also when the
  // clock was put forward or back. Call it often.
  void Tend();

  // Checks whether a client's certificate, which gRPC has verified, is still
  // good. `serial` is in lower-case hexadecimal digits. Does not wait for the
  // disk, because every heartbeat is checked.
  //   UNAUTHENTICATED  It is not; the message says why.
  absl::Status Check(absl::string_view serial) const ABSL_LOCKS_EXCLUDED(mu_);

  // The methods of the service; proto/trust.proto has the errors. `address` and
  // `serial` are the caller's, and events say that the operator `by` asked.
  absl::StatusOr<v1::EnrolResponse> Enrol(const v1::EnrolRequest& request,
                                          const std::string& address);
  absl::StatusOr<v1::RenewResponse> Renew(const v1::RenewRequest& request,
                                          absl::string_view serial);
  absl::StatusOr<v1::CreateTokenResponse> CreateToken(
      const v1::CreateTokenRequest& request, absl::string_view by);
  v1::ListTokensResponse ListTokens() const;
  absl::Status RevokeToken(const v1::RevokeTokenRequest& request,
                           absl::string_view by);
  v1::ListCertificatesResponse ListCertificates() const;
  absl::Status RevokeCertificate(const v1::RevokeCertificateRequest& request,
                                 absl::string_view by);

 private:
  Trust(Options options, Authority authority, v1::TrustRecords records)
      : options_(std::move(options)),
        authority_(std::move(authority)),
        records_(std::move(records)) {}

  void TellRevoked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mu_);
  // Remove expired records, which invalidates pointers to them. Called only if
  // others need their place, because the clock may be years ahead for a while.
  void DropExpiredTokens() ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mu_);
  void DropExpiredCertificates() ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mu_);
  // Makes the records durable, and then shows them.
  absl::Status Write() ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mu_);
  void Show() ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mu_) ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status WriteOwnPairs() ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mu_)
      ABSL_LOCKS_EXCLUDED(mu_);

  // Returns the token that a request names, if the secret is right and it has
  // not expired.
  absl::StatusOr<v1::TrustRecords::TokenRecord*> FindToken(
      const v1::EnrolRequest& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mu_);
  // Returns the entry that has enrolled with this token and key, or uses the
  // token for a new one.
  absl::StatusOr<v1::TrustRecords::CertificateRecord*> TakeToken(
      v1::TrustRecords::TokenRecord& token, const std::string& key_sha256)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mu_);
  v1::TrustRecords::CertificateRecord& AddCertificate(const std::string& role,
                                                      const std::string& name)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mu_);
  // Signs the next certificate of an entry, and notes its end.
  absl::StatusOr<std::string> SignFor(v1::IssuedCertificate& entry,
                                      EVP_PKEY& key)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mu_);

  // Enrol without the events. Sets `token` if the request has its secret.
  absl::Status TryEnrol(const v1::EnrolRequest& request,
                        const std::string& address,
                        std::optional<v1::Token>& token,
                        v1::IssuedCertificate& entry,
                        v1::EnrolResponse& response);
  // Records at most one event a minute about all callers without a token, and
  // one about those with a token.
  void RecordRefusal(const std::string& address,
                     const std::optional<v1::Token>& token,
                     const absl::Status& refusal);
  // Records an event about the holder of a token or certificate.
  template <typename Entry>
  void Record(absl::string_view kind, const Entry& entry,
              std::string text) const;

  const Options options_;
  const Authority authority_;
  // Held from a change of the records until they are durable, however long the
  // disk takes.
  absl::Mutex write_mu_ ABSL_ACQUIRED_BEFORE(mu_);
  v1::TrustRecords records_ ABSL_GUARDED_BY(write_mu_);
  AttemptLimiter wrong_tokens_ ABSL_GUARDED_BY(write_mu_);

  // Never held while waiting for the disk.
  mutable absl::Mutex mu_;
  // The records as they were made durable last, except that a revocation does
  // not wait for the disk.
  v1::TrustRecords shown_ ABSL_GUARDED_BY(mu_);
  QuietCount strangers_ ABSL_GUARDED_BY(mu_);
  QuietCount token_holders_ ABSL_GUARDED_BY(mu_);
  absl::Time own_renewal_ ABSL_GUARDED_BY(mu_);
};

}  // namespace causeway

#endif  // SERVER_TRUST_TRUST_H_
