// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/trust/authority.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/substitute.h"
#include "common/os/file.h"
#include "common/status_macros.h"

namespace causeway {
namespace {

constexpr int kSerialBytes = 16;
constexpr char kAuthorityKey[] = "ca.key";
constexpr char kAuthorityCertificate[] = "ca.crt";
// 2026-01-01. A machine without the time of the network may begin in 1970.
constexpr absl::Time kEarliest = absl::FromUnixSeconds(1767225600);

// Returns random bytes that are a positive number without leading zeros.
std::string RandomNumber(int bytes) {
  std::string number = RandomBytes(bytes);
  number[0] = static_cast<char>((number[0] & 0x3f) | 0x40);
  return number;
}

// Returns how far before `now` a certificate begins.
absl::Duration Headstart(absl::Duration life) {
  return std::min(absl::Hours(1), life / 100);
}

// Returns the key in the file, which is made if it is missing.
absl::StatusOr<PrivateKey> ReadOrMakeKey(const std::string& path) {
  const absl::StatusOr<std::string> pem = ReadFile(path);
  if (pem.ok()) {
    absl::StatusOr<PrivateKey> key = ParseKey(*pem);
    if (key.ok()) return key;
    return absl::FailedPreconditionError(
        absl::StrCat(path, " ", key.status().message()));
  }
  if (!absl::IsNotFound(pem.status())) return pem.status();
  ASSIGN_OR_RETURN(PrivateKey key, MakeKey());
  RETURN_IF_ERROR(WriteSecretAtomically(path, KeyPem(*key)));
  return key;
}

absl::Status WriteText(const std::string& path, const std::string& text) {
  return WriteFileAtomically(path, {absl::string_view(text)});
}

// Makes the authority's certificate for `key`, and writes it to `path`.
absl::StatusOr<Certificate> MakeAuthority(const std::string& path,
                                          const std::string& run, EVP_PKEY& key,
                                          absl::Time now) {
  ASSIGN_OR_RETURN(
      Certificate certificate,
      Certify({.use = CertificateUse::kAuthority,
               // No holder's name has a space.
               .subject = absl::StrCat("authority of ", run.substr(0, 48)),
               .serial = RandomNumber(kSerialBytes),
               .valid_from = now - Headstart(kAuthorityLife),
               .valid_until = now + kAuthorityLife},
              key));
  RETURN_IF_ERROR(WriteText(path, CertificatePem(*certificate)));
  return certificate;
}

}  // namespace

std::string NewHolderId() { return RandomNumber(kHolderIdBytes); }

bool Authority::Exists(const std::string& folder) {
  return ReadFile(absl::StrCat(folder, "/", kAuthorityCertificate)).ok() ||
         ReadFile(absl::StrCat(folder, "/", kAuthorityKey)).ok();
}

absl::StatusOr<Authority> Authority::Open(const std::string& folder,
                                          const std::string& run, bool may_make,
                                          absl::Time now) {
  const std::string key_path = absl::StrCat(folder, "/", kAuthorityKey);
  const std::string path = absl::StrCat(folder, "/", kAuthorityCertificate);
  const absl::StatusOr<std::string> pem = ReadFile(path);
  if (!pem.ok() && !absl::IsNotFound(pem.status())) return pem.status();
  if (pem.ok() || !may_make) RETURN_IF_ERROR(ReadFile(key_path).status());
  if (!pem.ok() && !may_make) {
    // A new certificate would differ from the one that clients have kept.
    return absl::FailedPreconditionError(absl::Substitute(
        "$0 is missing: restore it from a backup, or copy $1/operator/$2 there",
        path, folder, kFolderAuthority));
  }
  Issuer issuer;
  if (!pem.ok() && now < kEarliest) {
    return absl::UnavailableError(
        absl::StrCat("the system's clock says ",
                     absl::FormatTime("%Y-%m-%d", now, absl::UTCTimeZone()),
                     ", and an authority made now would expire too early: set "
                     "the clock first"));
  }
  ASSIGN_OR_RETURN(issuer.key, ReadOrMakeKey(key_path));
  if (!pem.ok()) {
    ASSIGN_OR_RETURN(issuer.certificate,
                     MakeAuthority(path, run, *issuer.key, now));
  } else {
    absl::StatusOr<std::vector<Certificate>> read = ParseCertificates(*pem);
    if (!read.ok() || !BelongTogether(*read->front(), *issuer.key)) {
      return absl::FailedPreconditionError(
          absl::StrCat(path, " is not the certificate of the key ", key_path));
    }
    issuer.certificate = std::move(read->front());
  }
  return Authority(folder, run, std::move(issuer));
}

std::string Authority::Path(absl::string_view name) const {
  return absl::StrCat(folder_, "/", name);
}

absl::StatusOr<std::string> Authority::Sign(const Identity& identity,
                                            absl::string_view holder_id,
                                            EVP_PKEY& key, absl::Time now,
                                            absl::Duration life) const {
  const bool is_server = identity.role == Role::kCoordinator;
  ASSIGN_OR_RETURN(
      const Certificate certificate,
      Certify(
          {.use = is_server ? CertificateUse::kServer : CertificateUse::kClient,
           .subject = identity.name,
           .serial = absl::StrCat(holder_id,
                                  RandomBytes(kSerialBytes - kHolderIdBytes)),
           .valid_from = now - Headstart(life),
           .valid_until = now + life,
           .names = {FormatUri(identity), FormatDns(identity)}},
          key, issuer_));
  return CertificatePem(*certificate);
}

absl::Status Authority::WriteServerPair(absl::Time now,
                                        absl::Duration life) const {
  const ServerTlsFiles files = server_files();
  ASSIGN_OR_RETURN(const PrivateKey key, ReadOrMakeKey(files.tls_key));
  ASSIGN_OR_RETURN(const std::string certificate,
                   Sign({Role::kCoordinator, run_, "coordinator"},
                        NewHolderId(), *key, now, life));
  // Clients that enrol find the authority in the chain.
  return WriteText(files.tls_cert,
                   certificate + CertificatePem(*issuer_.certificate));
}

absl::StatusOr<PrivateKey> Authority::OperatorKey() const {
  const std::string folder = Path("operator/");
  RETURN_IF_ERROR(CreateDirectory(folder, 0700));
  return ReadOrMakeKey(absl::StrCat(folder, kFolderKey));
}

absl::Status Authority::WriteOperatorPair(const Identity& identity,
                                          absl::string_view holder_id,
                                          EVP_PKEY& key, absl::Time now,
                                          absl::Duration life) const {
  const std::string folder = Path("operator/");
  ASSIGN_OR_RETURN(const std::string certificate,
                   Sign(identity, holder_id, key, now, life));
  RETURN_IF_ERROR(WriteText(absl::StrCat(folder, kFolderAuthority),
                            CertificatePem(*issuer_.certificate)));
  return WriteText(absl::StrCat(folder, kFolderCertificate), certificate);
}

ServerTlsFiles Authority::server_files() const {
  return {.tls_cert = Path("coordinator.crt"),
          .tls_key = Path("coordinator.key"),
          .tls_client_ca = Path(kAuthorityCertificate),
          .client_certificate_optional = true};
}

}  // namespace causeway
