// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/transport/enrolment.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/backoff.h"
#include "common/os/file.h"
#include "common/status_macros.h"
#include "common/transport/coordinator_target.h"
#include "common/transport/credentials.h"
#include "common/transport/grpc_time.h"
#include "common/transport/identity.h"
#include "common/transport/join_token.h"
#include "common/transport/reachability.h"
#include "common/transport/x509.h"
#include "glog/logging.h"
#include "grpcpp/grpcpp.h"
#include "proto/trust.grpc.pb.h"

namespace causeway {
namespace {

constexpr absl::Duration kCallTimeout = absl::Seconds(20);
// The time between two tries. A worker has a third of a certificate's life to
// renew it.
constexpr absl::Duration kShortestRetry = absl::Seconds(1);
constexpr absl::Duration kLongestRetry = absl::Minutes(10);
// The time between two checks of the clock, which may be put forward.
constexpr absl::Duration kLook = absl::Minutes(1);

// Returns the digest of a certificate's key; empty if it has none.
std::string KeyDigestOf(X509& certificate) {
  const PublicKey key(X509_get_pubkey(&certificate));
  return key == nullptr ? "" : KeyDigest(*key);
}

// Holds what was found out about the servers at all addresses, for one call.
struct Finding {
  absl::Mutex mu;
  // The error if the last server is an impostor.
  absl::Status status ABSL_GUARDED_BY(mu);
  // The pinned authority's certificate, PEM.
  std::string authority ABSL_GUARDED_BY(mu);
};

// Checks that a server shows, with its chain, a coordinator's certificate of
// the authority whose key has the digest `pin`. Returns the authority's
// certificate.
absl::StatusOr<std::string> CheckChain(absl::string_view pem,
                                       const std::string& pin, absl::Time now) {
  const absl::StatusOr<std::vector<Certificate>> chain = ParseCertificates(pem);
  if (chain.ok()) {
    for (const Certificate& authority : *chain) {
      if (KeyDigestOf(*authority) != pin) continue;
      X509& leaf = *chain->front();
      RETURN_IF_ERROR(CheckServer(leaf, *authority, now));
      ASSIGN_OR_RETURN(const Identity identity,
                       ParseIdentity(FactsOf(leaf).names));
      if (identity.role != Role::kCoordinator) break;
      return CertificatePem(*authority);
    }
  }
  return absl::UnauthenticatedError(
      "the server at this address is not the coordinator that the token is "
      "for: its authority has another key");
}

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> PinCredentials(
    const std::string& pin, absl::Time now, std::shared_ptr<Finding> finding) {
  return CheckedCredentials([=](const auto& shown) {
    const grpc::string_ref chain = shown.peer_cert_full_chain();
    const absl::StatusOr<std::string> authority =
        CheckChain(absl::string_view(chain.data(), chain.size()), pin, now);
    absl::MutexLock lock(&finding->mu);
    finding->status = authority.status();
    if (authority.ok()) finding->authority = *authority;
    return finding->status;
  });
}

std::string PathIn(const std::string& folder, const char* name) {
  return absl::StrCat(folder, "/", name);
}

// Writes the certificate, after a check that it is one for `key`.
absl::Status WriteCertificate(const std::string& folder, const std::string& pem,
                              EVP_PKEY& key) {
  const absl::StatusOr<std::vector<Certificate>> read = ParseCertificates(pem);
  if (!read.ok() || !BelongTogether(*read->front(), key)) {
    return absl::InternalError(
        "the coordinator's answer holds no certificate for this key");
  }
  return WriteFileAtomically(PathIn(folder, kFolderCertificate),
                             {absl::string_view(pem)});
}

// Returns whether the folder has a valid certificate of the pinned authority.
bool IsEnrolled(const std::string& folder, const std::string& pin,
                absl::Time now) {
  if (!FolderIdentity(folder, now).ok()) return false;
  const absl::StatusOr<std::string> pem =
      ReadFile(PathIn(folder, kFolderAuthority));
  if (!pem.ok()) return false;
  const absl::StatusOr<std::vector<Certificate>> authority =
      ParseCertificates(*pem);
  return authority.ok() && KeyDigestOf(*authority->front()) == pin;
}

absl::StatusOr<PrivateKey> ReadKey(const std::string& folder) {
  const std::string path = PathIn(folder, kFolderKey);
  ASSIGN_OR_RETURN(const std::string pem, ReadFile(path));
  absl::StatusOr<PrivateKey> key = ParseKey(pem);
  if (key.ok()) return key;
  return absl::FailedPreconditionError(
      absl::StrCat(path, " ", key.status().message()));
}

}  // namespace

absl::Status ExplainNoAuthority(const absl::Status& answered) {
  if (!absl::IsUnimplemented(answered)) return answered;
  return absl::UnimplementedError(
      "the coordinator has no authority of its own: it was not started with "
      "--tls auto; after a takeover see docs/followers.md, Certificates");
}

absl::Status Enrol(const std::string& addresses, absl::string_view join_token,
                   const std::string& folder, absl::Time now,
                   const std::string& island) {
  ASSIGN_OR_RETURN(const JoinToken token, ParseJoinToken(join_token));
  RETURN_IF_ERROR(CreateDirectory(folder, 0700));
  // Reuse the key of an earlier try, because its token may be used up.
  absl::StatusOr<PrivateKey> key = ReadKey(folder);
  if (absl::IsNotFound(key.status())) {
    key = MakeKey();
    RETURN_IF_ERROR(key.status());
    RETURN_IF_ERROR(
        WriteSecretAtomically(PathIn(folder, kFolderKey), KeyPem(**key)));
  }
  RETURN_IF_ERROR(key.status());

  const auto finding = std::make_shared<Finding>();
  ASSIGN_OR_RETURN(const auto credentials,
                   PinCredentials(token.pin, now, finding));
  const auto channel = CoordinatorTarget(addresses).Connect(credentials);
  v1::EnrolRequest request;
  request.set_token_id(token.id);
  request.set_secret(token.secret);
  request.set_island_id(island);
  ASSIGN_OR_RETURN(*request.mutable_certificate_request(), MakeRequest(**key));
  grpc::ClientContext context;
  context.set_deadline(FromNow(kCallTimeout));
  v1::EnrolResponse response;
  const grpc::Status answered =
      v1::Trust::NewStub(channel)->Enrol(&context, request, &response);
  std::string authority;
  {
    absl::MutexLock lock(&finding->mu);
    authority = finding->authority;
    if (authority.empty()) RETURN_IF_ERROR(finding->status);
  }
  const absl::Status enrolled =
      ExplainNoAuthority(ExplainCall(addresses, /*tls=*/true, answered));
  if ((absl::IsUnavailable(enrolled) || absl::IsDeadlineExceeded(enrolled)) &&
      !authority.empty()) {
    // A coordinator without an authority ends connections without certificates.
    return absl::Status(
        enrolled.code(),
        absl::StrCat(enrolled.message(),
                     "; if the coordinator there follows, or has taken the run "
                     "over, it enrols nobody: see docs/followers.md, "
                     "Certificates"));
  }
  RETURN_IF_ERROR(enrolled);
  RETURN_IF_ERROR(WriteFileAtomically(PathIn(folder, kFolderAuthority),
                                      {absl::string_view(authority)}));
  return WriteCertificate(folder, response.certificate(), **key);
}

absl::Status EnrolOnce(const std::string& addresses,
                       absl::string_view join_token, const std::string& island,
                       const std::string& folder, const Clock& now,
                       uint64_t seed,
                       const std::function<bool(absl::Duration)>& pause) {
  ASSIGN_OR_RETURN(const JoinToken token, ParseJoinToken(join_token));
  if (IsEnrolled(folder, token.pin, now())) return absl::OkStatus();
  Backoff backoff({.first = kShortestRetry}, seed);
  while (true) {
    const absl::Status enrolled =
        Enrol(addresses, join_token, folder, now(), island);
    LOG_IF(INFO, enrolled.ok())
        << "enrolled: " << folder << " has a certificate for this machine";
    if (!absl::IsUnavailable(enrolled) && !absl::IsDeadlineExceeded(enrolled) &&
        !absl::IsResourceExhausted(enrolled)) {
      return enrolled;
    }
    LOG(WARNING) << "cannot enrol yet: " << enrolled.message();
    if (!pause(backoff.Next())) return enrolled;
  }
}

absl::StatusOr<absl::Time> FolderRenewalTime(const std::string& folder) {
  ASSIGN_OR_RETURN(const std::string pem,
                   ReadFile(PathIn(folder, kFolderCertificate)));
  ASSIGN_OR_RETURN(const std::vector<Certificate> read, ParseCertificates(pem));
  return RenewalTime(FactsOf(*read.front()));
}

absl::Status Renew(const std::string& addresses, const std::string& folder,
                   absl::Time now) {
  ASSIGN_OR_RETURN(const PrivateKey key, ReadKey(folder));
  ASSIGN_OR_RETURN(const auto credentials,
                   MakeChannelCredentials({.tls = folder}, now));
  v1::RenewRequest request;
  ASSIGN_OR_RETURN(*request.mutable_certificate_request(), MakeRequest(*key));
  grpc::ClientContext context;
  context.set_deadline(FromNow(kCallTimeout));
  v1::RenewResponse response;
  RETURN_IF_ERROR(ExplainNoAuthority(ExplainCall(
      addresses, /*tls=*/true,
      v1::Trust::NewStub(CoordinatorTarget(addresses).Connect(credentials))
          ->Renew(&context, request, &response))));
  return WriteCertificate(folder, response.certificate(), *key);
}

CertificateRenewer::CertificateRenewer(std::string addresses,
                                       std::string folder, Clock now,
                                       uint64_t seed)
    : thread_([this, addresses = std::move(addresses),
               folder = std::move(folder), now = std::move(now),
               seed] { Run(addresses, folder, now, seed); }) {}

CertificateRenewer::~CertificateRenewer() {
  stop_.Notify();
  thread_.join();
}

void CertificateRenewer::Run(const std::string& addresses,
                             const std::string& folder, const Clock& now,
                             uint64_t seed) {
  Backoff backoff({.first = kShortestRetry, .longest = kLongestRetry}, seed);
  absl::Duration wait = absl::ZeroDuration();
  while (!stop_.WaitForNotificationWithTimeout(wait)) {
    const absl::StatusOr<absl::Time> due = FolderRenewalTime(folder);
    if (due.ok() && now() < *due) {
      backoff.Reset();
      wait = std::min(*due - now(), kLook);
      continue;
    }
    const absl::Status renewed =
        due.ok() ? Renew(addresses, folder, now()) : due.status();
    if (renewed.ok()) {
      LOG(INFO) << "renewed the certificate in " << folder;
      // By a clock that is days ahead, the new certificate is due, too.
      const absl::StatusOr<absl::Time> next = FolderRenewalTime(folder);
      wait = next.ok() && now() < *next ? absl::ZeroDuration() : backoff.Next();
      continue;
    }
    wait = backoff.Next();
    if (absl::IsUnimplemented(renewed)) {
      // A coordinator that has taken over may get the authority's folder later.
      LOG(INFO) << "cannot renew the certificate in " << folder
                << " yet: " << renewed.message() << "; the next try is in "
                << wait;
      continue;
    }
    // An expired certificate cannot renew itself.
    LOG(WARNING) << "cannot renew the certificate in " << folder << ": "
                 << renewed << "; "
                 << (absl::IsFailedPrecondition(renewed)
                         ? "run `causeway enrol` with a new token, which needs "
                           "no restart; "
                         : "")
                 << "the next try is in " << wait;
  }
}

}  // namespace causeway
