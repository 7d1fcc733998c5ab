// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/trust/trust.h"

#include <openssl/crypto.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/config/run_config.h"
#include "common/os/file.h"
#include "common/proto_time.h"
#include "common/status_macros.h"
#include "common/transport/join_token.h"
#include "common/transport/x509.h"
#include "glog/logging.h"
#include "server/trust/revoked.h"

namespace causeway {
namespace {

using TokenRecord = v1::TrustRecords::TokenRecord;
using CertificateRecord = v1::TrustRecords::CertificateRecord;

constexpr int kHolderIdDigits = 2 * kHolderIdBytes;
constexpr char kOwnOperator[] = "local";
constexpr absl::Duration kShortestTtl = absl::Minutes(1);
constexpr absl::Duration kLongestTtl = absl::Hours(24 * 30);
constexpr uint32_t kMostUses = 1000;
constexpr absl::Duration kRetry = absl::Minutes(1);

// The least time for which an expired certificate is kept.
constexpr absl::Duration kKeepExpired = absl::Hours(24);

template <typename Records, typename Condition>
void EraseIf(Records& records, Condition holds) {
  records.erase(std::remove_if(records.begin(), records.end(), holds),
                records.end());
}

std::string RecordsPath(const std::string& folder) {
  return absl::StrCat(folder, "/records");
}

// Takes a token or a certificate.
template <typename Entry>
std::string DescribeEntry(const Entry& entry) {
  return absl::StrCat(entry.role(), " ", entry.name());
}

// Returns the record of the certificate with this id, or null.
template <typename Records>
auto* FindById(Records& certificates, absl::string_view id) {
  const auto found =
      absl::c_find_if(certificates, [id](const CertificateRecord& record) {
        return record.certificate().id() == id;
      });
  return found == certificates.end() ? nullptr : &*found;
}

// Returns the record to which a certificate with this serial belongs, unless it
// was revoked.
template <typename Records>
auto FindGood(Records& certificates, absl::string_view serial)
    -> absl::StatusOr<decltype(FindById(certificates, serial))> {
  auto* const record =
      FindById(certificates, serial.substr(0, kHolderIdDigits));
  if (record != nullptr && !record->certificate().revoked()) return record;
  return absl::UnauthenticatedError(absl::StrCat(
      record == nullptr ? "the coordinator has no record of this certificate"
                        : "this certificate was revoked",
      "; remove tls.crt from its --tls folder, and enrol with a new token of "
      "an operator (causeway token create)"));
}

// Revokes a certificate, and ends its token, which the holder of the
// certificate's key may also have. Returns the uses that the token had left.
uint32_t Revoke(v1::IssuedCertificate& certificate, v1::TrustRecords& records) {
  certificate.set_revoked(true);
  uint32_t uses_left = 0;
  for (TokenRecord& record : *records.mutable_tokens()) {
    if (record.token().id() != certificate.token_id()) continue;
    uses_left = record.token().uses_left();
    record.mutable_token()->set_uses_left(0);
  }
  return uses_left;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Trust>> Trust::Open(Options options) {
  RETURN_IF_ERROR(CreateDirectory(options.folder, 0700));
  const std::string path = RecordsPath(options.folder);
  absl::StatusOr<std::string> bytes = ReadFile(path);
  if (absl::IsNotFound(bytes.status())) {
    if (Authority::Exists(options.folder)) {
      return absl::FailedPreconditionError(absl::StrCat(
          path, " is missing: restore it from a backup; or move the folder ",
          options.folder, " away, after which everyone must enrol again"));
    }
    // This is the first start. Empty records let the next one continue it.
    RETURN_IF_ERROR(WriteSecretAtomically(path, ""));
    bytes = "";
  }
  RETURN_IF_ERROR(bytes.status());
  v1::TrustRecords records;
  if (!records.ParseFromString(*bytes)) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " is damaged: restore it from a backup"));
  }
  for (CertificateRecord& record : *records.mutable_certificates()) {
    v1::IssuedCertificate& certificate = *record.mutable_certificate();
    if (!CheckNotRevoked(options.kept, certificate.id()).ok()) {
      Revoke(certificate, records);
    }
  }
  ASSIGN_OR_RETURN(Authority authority,
                   Authority::Open(options.folder, options.run,
                                   /*may_make=*/bytes->empty(), options.now()));
  auto trust = std::unique_ptr<Trust>(
      new Trust(std::move(options), std::move(authority), std::move(records)));
  {
    absl::MutexLock lock(&trust->write_mu_);
    trust->Show();
    trust->TellRevoked();
  }
  // A start on a full disk must not fail. Whoever uses the files checks them.
  trust->Tend();
  return trust;
}

void Trust::DropExpiredTokens() {
  EraseIf(*records_.mutable_tokens(),
          [now = options_.now()](const TokenRecord& record) {
            return now >= ToTime(record.token().expires_at());
          });
}

void Trust::DropExpiredCertificates() {
  EraseIf(*records_.mutable_certificates(),
          [now = options_.now()](const CertificateRecord& record) {
            return now - ToTime(record.certificate().expires_at()) >
                   kKeepExpired;
          });
}

absl::Status Trust::Write() {
  RETURN_IF_ERROR(WriteSecretAtomically(RecordsPath(options_.folder),
                                        records_.SerializeAsString()));
  Show();
  return absl::OkStatus();
}

void Trust::Show() {
  v1::TrustRecords shown = records_;
  absl::MutexLock lock(&mu_);
  shown_.Swap(&shown);
}

absl::Status Trust::WriteOwnPairs() {
  const absl::Time now = Now();
  RETURN_IF_ERROR(authority_.WriteServerPair(now, kOwnLife));
  CertificateRecord* own = nullptr;
  for (CertificateRecord& record : *records_.mutable_certificates()) {
    const v1::IssuedCertificate& entry = record.certificate();
    if (entry.token_id().empty() && !entry.revoked() &&
        now < ToTime(entry.expires_at())) {
      own = &record;
    }
  }
  if (own == nullptr) {
    own = &AddCertificate(std::string(RoleName(Role::kOperator)), kOwnOperator);
  }
  ASSIGN_OR_RETURN(const PrivateKey key, authority_.OperatorKey());
  own->set_key_sha256(KeyDigest(*key));
  v1::IssuedCertificate& entry = *own->mutable_certificate();
  *entry.mutable_expires_at() = ToTimestamp(now + kOwnLife);
  RETURN_IF_ERROR(Write());
  RETURN_IF_ERROR(authority_.WriteOperatorPair(
      {Role::kOperator, options_.run, kOwnOperator},
      absl::HexStringToBytes(entry.id()), *key, now, kOwnLife));
  absl::MutexLock lock(&mu_);
  own_renewal_ = now + kOwnLife * 2 / 3;
  return absl::OkStatus();
}

absl::Time Trust::Now() const {
  return std::max(options_.now(), authority_.valid_from());
}

void Trust::Tend() {
  const absl::Time now = Now();
  {
    absl::MutexLock lock(&mu_);
    // If the clock was put back, certificates made before may not be valid yet.
    if (now < own_renewal_ && own_renewal_ < now + kOwnLife) return;
    own_renewal_ = now + kRetry;
  }
  absl::MutexLock lock(&write_mu_);
  const absl::Status written = WriteOwnPairs();
  LOG_IF(ERROR, !written.ok())
      << "cannot renew the coordinator's certificates: " << written;
}

absl::Status Trust::Check(absl::string_view serial) const {
  absl::MutexLock lock(&mu_);
  return FindGood(shown_.certificates(), serial).status();
}

void Trust::TellRevoked() const {
  if (options_.revoked == nullptr) return;
  v1::RevokedCertificates revoked = options_.kept;
  for (const CertificateRecord& record : records_.certificates()) {
    const v1::IssuedCertificate& certificate = record.certificate();
    if (certificate.revoked() &&
        CheckNotRevoked(options_.kept, certificate.id()).ok()) {
      revoked.add_ids(certificate.id());
    }
  }
  options_.revoked(std::move(revoked));
}

absl::StatusOr<TokenRecord*> Trust::FindToken(const v1::EnrolRequest& request) {
  const std::string digest = Sha256(request.secret());
  for (TokenRecord& record : *records_.mutable_tokens()) {
    if (record.token().id() == request.token_id() &&
        record.secret_sha256().size() == digest.size() &&
        CRYPTO_memcmp(record.secret_sha256().data(), digest.data(),
                      digest.size()) == 0 &&
        options_.now() < ToTime(record.token().expires_at())) {
      return &record;
    }
  }
  return absl::UnauthenticatedError(
      "there is no such token, or it has expired: ask an operator for another "
      "one (causeway token create)");
}

absl::StatusOr<CertificateRecord*> Trust::TakeToken(
    TokenRecord& record, const std::string& key_sha256) {
  v1::Token& token = *record.mutable_token();
  for (CertificateRecord& enrolled : *records_.mutable_certificates()) {
    if (enrolled.certificate().token_id() == token.id() &&
        enrolled.key_sha256() == key_sha256 &&
        !enrolled.certificate().revoked()) {
      return &enrolled;
    }
  }
  if (token.uses_left() == 0) {
    return absl::UnauthenticatedError(
        "the token is used up: ask an operator for another one (causeway token "
        "create)");
  }
  if (records_.certificates_size() >= kMostCertificates) {
    DropExpiredCertificates();
  }
  if (records_.certificates_size() >= kMostCertificates) {
    return absl::ResourceExhaustedError(
        absl::StrCat("there are ", kMostCertificates,
                     " certificates, which is the most; those that expired "
                     "more than a day ago make room"));
  }
  token.set_uses_left(token.uses_left() - 1);
  CertificateRecord& enrolled = AddCertificate(token.role(), token.name());
  enrolled.set_key_sha256(key_sha256);
  enrolled.mutable_certificate()->set_token_id(token.id());
  return &enrolled;
}

CertificateRecord& Trust::AddCertificate(const std::string& role,
                                         const std::string& name) {
  CertificateRecord& record = *records_.add_certificates();
  v1::IssuedCertificate& entry = *record.mutable_certificate();
  entry.set_id(absl::BytesToHexString(NewHolderId()));
  entry.set_role(role);
  entry.set_name(name);
  *entry.mutable_enrolled_at() = ToTimestamp(options_.now());
  return record;
}

absl::StatusOr<std::string> Trust::SignFor(v1::IssuedCertificate& entry,
                                           EVP_PKEY& key) {
  const absl::Time now = Now();
  ASSIGN_OR_RETURN(const Role role, ParseRole(entry.role()));
  ASSIGN_OR_RETURN(std::string certificate,
                   authority_.Sign({role, options_.run, entry.name()},
                                   absl::HexStringToBytes(entry.id()), key, now,
                                   options_.certificate_life));
  *entry.mutable_expires_at() = ToTimestamp(now + options_.certificate_life);
  // If this fails, memory is ahead of the disk; the caller tries again.
  RETURN_IF_ERROR(Write());
  return certificate;
}

absl::Status Trust::TryEnrol(const v1::EnrolRequest& request,
                             const std::string& address,
                             std::optional<v1::Token>& token,
                             v1::IssuedCertificate& entry,
                             v1::EnrolResponse& response) {
  absl::MutexLock lock(&write_mu_);
  // A valid token is accepted even if others sent wrong ones from its address.
  const absl::StatusOr<TokenRecord*> found = FindToken(request);
  if (!found.ok()) {
    if (wrong_tokens_.MayFail(address, options_.now())) return found.status();
    return absl::ResourceExhaustedError(
        "this token is wrong, like many others from this address: wait a "
        "minute, or ask an operator for another one (causeway token create)");
  }
  token = (*found)->token();
  if (!request.island_id().empty() &&
      (token->role() != RoleName(Role::kIsland) ||
       token->name() != request.island_id())) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the token is for ", DescribeEntry(*token), ", and not for island ",
        request.island_id(), "; it can still be used"));
  }
  ASSIGN_OR_RETURN(const PublicKey key,
                   RequestedKey(request.certificate_request()));
  ASSIGN_OR_RETURN(CertificateRecord* const record,
                   TakeToken(**found, KeyDigest(*key)));
  ASSIGN_OR_RETURN(*response.mutable_certificate(),
                   SignFor(*record->mutable_certificate(), *key));
  entry = record->certificate();
  return absl::OkStatus();
}

absl::StatusOr<v1::EnrolResponse> Trust::Enrol(const v1::EnrolRequest& request,
                                               const std::string& address) {
  std::optional<v1::Token> token;
  v1::IssuedCertificate entry;
  v1::EnrolResponse response;
  const absl::Status tried = TryEnrol(request, address, token, entry, response);
  if (!tried.ok()) {
    RecordRefusal(address, token, tried);
    return tried;
  }
  Record("enrolled", entry,
         absl::StrCat(DescribeEntry(entry), " enrolled with token ",
                      entry.token_id(), " and got certificate ", entry.id()));
  return response;
}

void Trust::RecordRefusal(const std::string& address,
                          const std::optional<v1::Token>& token,
                          const absl::Status& refusal) {
  std::optional<uint64_t> others;
  {
    absl::MutexLock lock(&mu_);
    others =
        (token.has_value() ? token_holders_ : strangers_).Note(options_.now());
  }
  if (!others.has_value()) return;
  std::string text = absl::StrCat("an enrolment from ", address);
  if (token.has_value()) {
    absl::StrAppend(&text, " with token ", token->id(), " of ",
                    DescribeEntry(*token));
  }
  absl::StrAppend(&text, " is refused: ", absl::string_view(refusal.message()));
  if (*others > 0) {
    absl::StrAppend(&text, *others == 1 ? "; so was " : "; so were ", *others,
                    " before it");
  }
  Record("enrolment_refused", token.value_or(v1::Token()), std::move(text));
}

absl::StatusOr<v1::RenewResponse> Trust::Renew(const v1::RenewRequest& request,
                                               absl::string_view serial) {
  ASSIGN_OR_RETURN(const PublicKey key,
                   RequestedKey(request.certificate_request()));
  v1::RenewResponse response;
  absl::MutexLock lock(&write_mu_);
  ASSIGN_OR_RETURN(CertificateRecord* const record,
                   FindGood(*records_.mutable_certificates(), serial));
  v1::IssuedCertificate& entry = *record->mutable_certificate();
  if (record->key_sha256() != KeyDigest(*key)) {
    LOG(WARNING) << DescribeEntry(entry) << " asks to renew certificate "
                 << entry.id() << " with another key";
    return absl::InvalidArgumentError(
        "a renewal must keep the key, and this request has another one: for a "
        "new key, enrol with a new token of an operator (causeway token "
        "create)");
  }
  ASSIGN_OR_RETURN(*response.mutable_certificate(), SignFor(entry, *key));
  LOG(INFO) << "renewed certificate " << entry.id() << " of "
            << DescribeEntry(entry);
  return response;
}

absl::StatusOr<v1::CreateTokenResponse> Trust::CreateToken(
    const v1::CreateTokenRequest& request, absl::string_view by) {
  RETURN_IF_ERROR(ParseRole(request.role()).status());
  if (!IsValidName(request.name())) {
    return absl::InvalidArgumentError("a name has 1 to 64 of [a-z0-9-]");
  }
  const absl::Duration ttl = request.has_ttl()
                                 ? absl::Seconds(request.ttl().seconds())
                                 : absl::Hours(1);
  if (ttl < kShortestTtl || ttl > kLongestTtl || request.uses() > kMostUses) {
    return absl::InvalidArgumentError(
        absl::StrCat("a token must live ", absl::FormatDuration(kShortestTtl),
                     " to ", absl::FormatDuration(kLongestTtl),
                     " and serve at most ", kMostUses, " times"));
  }
  const JoinToken secret{
      .pin = authority_.pin(),
      .id = absl::BytesToHexString(RandomBytes(kTokenIdDigits / 2)),
      .secret = RandomBytes(kSecretBytes)};
  const absl::Time now = options_.now();
  TokenRecord record;
  v1::Token& token = *record.mutable_token();
  token.set_id(secret.id);
  token.set_role(request.role());
  token.set_name(request.name());
  *token.mutable_created_at() = ToTimestamp(now);
  *token.mutable_expires_at() = ToTimestamp(now + ttl);
  token.set_uses_left(std::max(1u, request.uses()));
  record.set_secret_sha256(Sha256(secret.secret));

  {
    absl::MutexLock lock(&write_mu_);
    if (records_.tokens_size() >= kMostTokens) DropExpiredTokens();
    if (records_.tokens_size() >= kMostTokens) {
      return absl::ResourceExhaustedError(
          absl::StrCat("there are ", kMostTokens,
                       " tokens, which is the most: revoke some"));
    }
    *records_.add_tokens() = record;
    const absl::Status written = Write();
    if (!written.ok()) {
      // The token's secret is never handed out.
      records_.mutable_tokens()->RemoveLast();
      return written;
    }
  }
  Record("token_created", token,
         absl::StrCat(by, " made token ", token.id(), " for ",
                      DescribeEntry(token), ", ", token.uses_left(),
                      token.uses_left() == 1 ? " use" : " uses", ", for ",
                      absl::FormatDuration(ttl)));
  v1::CreateTokenResponse response;
  response.set_join_token(FormatJoinToken(secret));
  *response.mutable_token() = token;
  return response;
}

v1::ListTokensResponse Trust::ListTokens() const {
  v1::ListTokensResponse response;
  absl::MutexLock lock(&mu_);
  for (const TokenRecord& record : shown_.tokens()) {
    if (record.token().uses_left() > 0 &&
        options_.now() < ToTime(record.token().expires_at())) {
      *response.add_tokens() = record.token();
    }
  }
  return response;
}

absl::Status Trust::RevokeToken(const v1::RevokeTokenRequest& request,
                                absl::string_view by) {
  v1::Token token;
  {
    absl::MutexLock lock(&write_mu_);
    auto& tokens = *records_.mutable_tokens();
    const auto found = absl::c_find_if(tokens, [&](const TokenRecord& record) {
      return record.token().id() == request.id();
    });
    if (found == tokens.end()) {
      return absl::NotFoundError("there is no token with this id");
    }
    token = found->token();
    TokenRecord ended = *found;
    tokens.erase(found);
    const absl::Status written = Write();
    if (!written.ok()) {
      // The disk has the token until it is revoked again.
      ended.mutable_token()->set_uses_left(0);
      *tokens.Add() = std::move(ended);
      Show();
      return written;
    }
  }
  Record("token_revoked", token,
         absl::StrCat(by, " revoked token ", token.id(), " for ",
                      DescribeEntry(token)));
  return absl::OkStatus();
}

v1::ListCertificatesResponse Trust::ListCertificates() const {
  v1::ListCertificatesResponse response;
  absl::MutexLock lock(&mu_);
  for (const CertificateRecord& record : shown_.certificates()) {
    if (options_.now() < ToTime(record.certificate().expires_at())) {
      *response.add_certificates() = record.certificate();
    }
  }
  return response;
}

absl::Status Trust::RevokeCertificate(
    const v1::RevokeCertificateRequest& request, absl::string_view by) {
  v1::IssuedCertificate entry;
  uint32_t uses_left = 0;
  {
    absl::MutexLock lock(&write_mu_);
    CertificateRecord* const found =
        FindById(*records_.mutable_certificates(), request.id());
    if (found == nullptr) {
      return absl::NotFoundError("there is no certificate with this id");
    }
    uses_left = Revoke(*found->mutable_certificate(), records_);
    entry = found->certificate();
    Show();
    TellRevoked();
    RETURN_IF_ERROR(Write());
  }
  Record(
      "certificate_revoked", entry,
      absl::StrCat(
          by, " revoked certificate ", entry.id(), " of ", DescribeEntry(entry),
          uses_left == 0
              ? ""
              : absl::StrCat(", and what was left of token ", entry.token_id(),
                             " (uses: ", uses_left, ")")));
  return absl::OkStatus();
}

template <typename Entry>
void Trust::Record(absl::string_view kind, const Entry& entry,
                   std::string text) const {
  if (options_.record == nullptr) {
    LOG(INFO) << text;
    return;
  }
  const bool is_island = entry.role() == RoleName(Role::kIsland);
  options_.record({.kind = std::string(kind),
                   .island_id = is_island ? entry.name() : "",
                   .text = std::move(text)});
}

}  // namespace causeway
