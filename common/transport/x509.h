// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Keys, certificate requests and certificates (RFC 5280), by OpenSSL. New keys
// are on the curve P-256, and signatures are ECDSA with SHA-256. "PEM" is the
// text form of all of them. Errors about foreign bytes are INVALID_ARGUMENT.
//
//   ASSIGN_OR_RETURN(const PrivateKey key, MakeKey());
//   ASSIGN_OR_RETURN(const Certificate authority,
//                    Certify({.subject = "authority", .serial = serial,
//                             .valid_from = now, .valid_until = later}, *key));
//
// Functions are thread-safe; objects are not.
#ifndef COMMON_TRANSPORT_X509_H_
#define COMMON_TRANSPORT_X509_H_

#include <openssl/evp.h>
#include <openssl/x509.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"

namespace causeway {

struct FreeX509 {
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
  void operator()(X509* certificate) const { X509_free(certificate); }
};
using PrivateKey = std::unique_ptr<EVP_PKEY, FreeX509>;
using PublicKey = std::unique_ptr<EVP_PKEY, FreeX509>;
using Certificate = std::unique_ptr<X509, FreeX509>;

// Returns `count` random bytes that are fit for secrets.
std::string RandomBytes(size_t count);
std::string Sha256(absl::string_view bytes);

absl::StatusOr<PrivateKey> MakeKey();
// Refuses a key with a pass phrase.
absl::StatusOr<PrivateKey> ParseKey(absl::string_view pem);
std::string KeyPem(EVP_PKEY& key);
bool BelongTogether(X509& certificate, EVP_PKEY& key);
// Returns the SHA-256 of the public key's SubjectPublicKeyInfo.
std::string KeyDigest(EVP_PKEY& key);

// Returns a request (PKCS #10, PEM) without a name: the signer decides for whom
// the certificate is.
absl::StatusOr<std::string> MakeRequest(EVP_PKEY& key);
// Returns the public key of a request after checking that the sender has the
// private key. Ignores the rest of the request. Refuses keys that are not on
// P-256.
absl::StatusOr<PublicKey> RequestedKey(absl::string_view pem);

// Returns the certificates of a PEM file, at least one.
absl::StatusOr<std::vector<Certificate>> ParseCertificates(
    absl::string_view pem);
std::string CertificatePem(X509& certificate);

struct CertificateFacts {
  // Hexadecimal, lower case.
  std::string serial;
  absl::Time valid_from;
  absl::Time valid_until;
  // The alternative names that are URIs or DNS names.
  std::vector<std::string> names;
};
CertificateFacts FactsOf(X509& certificate);
// Returns when to renew a certificate: after two thirds of its life.
inline absl::Time RenewalTime(const CertificateFacts& facts) {
  return facts.valid_from + (facts.valid_until - facts.valid_from) * 2 / 3;
}
//   FAILED_PRECONDITION  The certificate is not valid at `now`. The message
//                        calls it `name`.
absl::Status CheckTime(X509& certificate, absl::string_view name,
                       absl::Time now);

// A server may be the client of another one, too.
enum class CertificateUse { kAuthority, kServer, kClient };

struct CertificateContents {
  CertificateUse use = CertificateUse::kAuthority;
  // The common name, for people; at most 64 bytes.
  std::string subject;
  // Unique among the issuer's certificates: 1 to 20 bytes, the first of them
  // from 1 to 127.
  std::string serial;
  absl::Time valid_from;
  absl::Time valid_until;
  // Alternative names: those that contain "://" are URIs, the others DNS names.
  std::vector<std::string> names;
};

struct Issuer {
  PrivateKey key;
  Certificate certificate;
};

// Returns a certificate for the owner of `key`, which the issuer signs.
absl::StatusOr<Certificate> Certify(const CertificateContents& contents,
                                    EVP_PKEY& key, const Issuer& issuer);
// Returns a certificate that its own key signs.
absl::StatusOr<Certificate> Certify(const CertificateContents& contents,
                                    EVP_PKEY& key);

// Checks that `authority` has signed the server certificate `leaf`, and that
// both are valid at `now`.
//   UNAUTHENTICATED  They are not; the message says why.
absl::Status CheckServer(X509& leaf, X509& authority, absl::Time now);

}  // namespace causeway

#endif  // COMMON_TRANSPORT_X509_H_
