// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/transport/x509.h"

#include <openssl/asn1.h>
#include <openssl/bio.h>
#include <openssl/bn.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/sha.h>
#include <openssl/x509v3.h>

#include <ctime>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "glog/logging.h"

namespace causeway {
namespace {

struct FreeOpenSsl {
  void operator()(BIO* bio) const { BIO_free(bio); }
  void operator()(BIGNUM* number) const { BN_free(number); }
  void operator()(GENERAL_NAMES* names) const { GENERAL_NAMES_free(names); }
  void operator()(X509_EXTENSION* extension) const {
    X509_EXTENSION_free(extension);
  }
  void operator()(X509_REQ* request) const { X509_REQ_free(request); }
  void operator()(X509_STORE* store) const { X509_STORE_free(store); }
  void operator()(X509_STORE_CTX* context) const {
    X509_STORE_CTX_free(context);
  }
};
template <typename T>
using Owned = std::unique_ptr<T, FreeOpenSsl>;

// An empty pass phrase, so that OpenSSL does not ask for one.
char* NoPassPhrase() {
  static char none[] = "";
  return none;
}

Owned<BIO> Reader(absl::string_view bytes) {
  return Owned<BIO>(
      BIO_new_mem_buf(bytes.data(), static_cast<int>(bytes.size())));
}

template <typename Write>
std::string Written(Write write) {
  const Owned<BIO> bio(BIO_new(BIO_s_mem()));
  CHECK(bio != nullptr && write(bio.get()) == 1);
  char* data = nullptr;
  const long bytes = BIO_get_mem_data(bio.get(), &data);
  return std::string(data, static_cast<size_t>(bytes));
}

// Returns an error with OpenSSL's reason, and forgets the reason.
absl::Status Failure(absl::string_view action) {
  const char* reason = ERR_reason_error_string(ERR_peek_last_error());
  ERR_clear_error();
  return absl::InternalError(absl::StrCat("OpenSSL cannot ", action, ": ",
                                          reason == nullptr ? "" : reason));
}

absl::Time ToTime(const ASN1_TIME* time) {
  std::tm broken_down{};
  if (ASN1_TIME_to_tm(time, &broken_down) != 1) return absl::InfinitePast();
  return absl::FromTimeT(timegm(&broken_down));
}

absl::Status Extend(X509* certificate, X509V3_CTX* context, int kind,
                    const char* value) {
  const Owned<X509_EXTENSION> extension(
      X509V3_EXT_conf_nid(nullptr, context, kind, value));
  if (extension == nullptr ||
      X509_add_ext(certificate, extension.get(), -1) != 1) {
    return Failure("extend a certificate");
  }
  return absl::OkStatus();
}

absl::Status AddNames(X509* certificate,
                      absl::Span<const std::string> alternative_names) {
  if (alternative_names.empty()) return absl::OkStatus();
  const Owned<GENERAL_NAMES> names(GENERAL_NAMES_new());
  for (const std::string& text : alternative_names) {
    ASN1_IA5STRING* const value = ASN1_IA5STRING_new();
    GENERAL_NAME* const name = GENERAL_NAME_new();
    if (value == nullptr || name == nullptr ||
        ASN1_STRING_set(value, text.data(), static_cast<int>(text.size())) !=
            1) {
      ASN1_IA5STRING_free(value);
      GENERAL_NAME_free(name);
      return Failure("name a certificate");
    }
    GENERAL_NAME_set0_value(
        name, absl::StrContains(text, "://") ? GEN_URI : GEN_DNS, value);
    sk_GENERAL_NAME_push(names.get(), name);
  }
  return X509_add1_ext_i2d(certificate, NID_subject_alt_name, names.get(), 0,
                           X509V3_ADD_DEFAULT) == 1
             ? absl::OkStatus()
             : Failure("name a certificate");
}

absl::Status SetSerial(X509* certificate, absl::string_view serial) {
  const Owned<BIGNUM> number(
      BN_bin2bn(reinterpret_cast<const unsigned char*>(serial.data()),
                static_cast<int>(serial.size()), nullptr));
  return number != nullptr && BN_to_ASN1_INTEGER(
                                  number.get(),
                                  X509_get_serialNumber(certificate)) != nullptr
             ? absl::OkStatus()
             : Failure("number a certificate");
}

// `issuer` is null for a certificate that signs itself.
absl::StatusOr<Certificate> Make(const CertificateContents& contents,
                                 EVP_PKEY& key, X509* issuer,
                                 EVP_PKEY* issuer_key) {
  Certificate certificate(X509_new());
  X509* const x509 = certificate.get();
  if (x509 == nullptr || X509_set_version(x509, X509_VERSION_3) != 1 ||
      ASN1_TIME_set(X509_getm_notBefore(x509),
                    absl::ToTimeT(contents.valid_from)) == nullptr ||
      ASN1_TIME_set(X509_getm_notAfter(x509),
                    absl::ToTimeT(contents.valid_until)) == nullptr ||
      X509_set_pubkey(x509, &key) != 1 ||
      X509_NAME_add_entry_by_txt(
          X509_get_subject_name(x509), "CN", MBSTRING_UTF8,
          reinterpret_cast<const unsigned char*>(contents.subject.data()),
          static_cast<int>(contents.subject.size()), -1, 0) != 1 ||
      X509_set_issuer_name(x509, X509_get_subject_name(
                                     issuer == nullptr ? x509 : issuer)) != 1) {
    return Failure("make a certificate");
  }
  RETURN_IF_ERROR(SetSerial(x509, contents.serial));
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer == nullptr ? x509 : issuer, x509, nullptr,
                 nullptr, 0);
  const bool is_authority = contents.use == CertificateUse::kAuthority;
  RETURN_IF_ERROR(Extend(
      x509, &context, NID_basic_constraints,
      is_authority ? "critical,CA:TRUE,pathlen:0" : "critical,CA:FALSE"));
  RETURN_IF_ERROR(Extend(
      x509, &context, NID_key_usage,
      is_authority ? "critical,keyCertSign" : "critical,digitalSignature"));
  RETURN_IF_ERROR(Extend(x509, &context, NID_subject_key_identifier, "hash"));
  if (!is_authority) {
    RETURN_IF_ERROR(
        Extend(x509, &context, NID_authority_key_identifier, "keyid"));
    RETURN_IF_ERROR(Extend(x509, &context, NID_ext_key_usage,
                           contents.use == CertificateUse::kServer
                               ? "serverAuth,clientAuth"
                               : "clientAuth"));
  }
  RETURN_IF_ERROR(AddNames(x509, contents.names));
  if (X509_sign(x509, issuer == nullptr ? &key : issuer_key, EVP_sha256()) ==
      0) {
    return Failure("sign a certificate");
  }
  return certificate;
}

}  // namespace

std::string RandomBytes(size_t count) {
  std::string bytes(count, '\0');
  CHECK_EQ(RAND_bytes(reinterpret_cast<unsigned char*>(bytes.data()),
                      static_cast<int>(count)),
           1);
  return bytes;
}

std::string Sha256(absl::string_view bytes) {
  std::string digest(SHA256_DIGEST_LENGTH, '\0');
  SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(),
         reinterpret_cast<unsigned char*>(digest.data()));
  return digest;
}

absl::StatusOr<PrivateKey> MakeKey() {
  PrivateKey key(EVP_EC_gen("P-256"));
  if (key == nullptr) return Failure("make a key");
  return key;
}

absl::StatusOr<PrivateKey> ParseKey(absl::string_view pem) {
  const Owned<BIO> bio = Reader(pem);
  PrivateKey key(
      PEM_read_bio_PrivateKey(bio.get(), nullptr, nullptr, NoPassPhrase()));
  ERR_clear_error();
  if (key != nullptr) return key;
  return absl::InvalidArgumentError(
      "holds no private key in PEM format, or one with a pass phrase");
}

std::string KeyPem(EVP_PKEY& key) {
  return Written([&](BIO* bio) {
    return PEM_write_bio_PrivateKey(bio, &key, nullptr, nullptr, 0, nullptr,
                                    nullptr);
  });
}

bool BelongTogether(X509& certificate, EVP_PKEY& key) {
  const bool match = X509_check_private_key(&certificate, &key) == 1;
  ERR_clear_error();
  return match;
}

std::string KeyDigest(EVP_PKEY& key) {
  unsigned char* der = nullptr;
  const int bytes = i2d_PUBKEY(&key, &der);
  CHECK_GT(bytes, 0);
  const auto freer = absl::MakeCleanup([der] { OPENSSL_free(der); });
  return Sha256(absl::string_view(reinterpret_cast<const char*>(der),
                                  static_cast<size_t>(bytes)));
}

absl::StatusOr<std::string> MakeRequest(EVP_PKEY& key) {
  const Owned<X509_REQ> request(X509_REQ_new());
  if (request == nullptr || X509_REQ_set_pubkey(request.get(), &key) != 1 ||
      X509_REQ_sign(request.get(), &key, EVP_sha256()) == 0) {
    return Failure("make a certificate request");
  }
  return Written(
      [&](BIO* bio) { return PEM_write_bio_X509_REQ(bio, request.get()); });
}

absl::StatusOr<PublicKey> RequestedKey(absl::string_view pem) {
  const auto clear = absl::MakeCleanup(&ERR_clear_error);
  const Owned<BIO> bio = Reader(pem);
  const Owned<X509_REQ> request(
      PEM_read_bio_X509_REQ(bio.get(), nullptr, nullptr, NoPassPhrase()));
  if (request == nullptr) {
    return absl::InvalidArgumentError(
        "there is no certificate request in PEM format");
  }
  PublicKey key(X509_REQ_get_pubkey(request.get()));
  char curve[16] = "";
  // The curve is checked first: the check of a signature by a huge RSA key
  // takes long.
  if (key == nullptr ||
      EVP_PKEY_get_group_name(key.get(), curve, sizeof(curve), nullptr) != 1 ||
      absl::string_view(curve) != "prime256v1") {
    return absl::InvalidArgumentError(
        "the certificate request's key is not on the curve P-256");
  }
  if (X509_REQ_verify(request.get(), key.get()) != 1) {
    return absl::InvalidArgumentError(
        "the certificate request is not signed by its own key");
  }
  return key;
}

absl::StatusOr<std::vector<Certificate>> ParseCertificates(
    absl::string_view pem) {
  const Owned<BIO> bio = Reader(pem);
  std::vector<Certificate> certificates;
  while (X509* const next =
             PEM_read_bio_X509(bio.get(), nullptr, nullptr, NoPassPhrase())) {
    certificates.emplace_back(next);
  }
  ERR_clear_error();
  if (!certificates.empty()) return certificates;
  return absl::InvalidArgumentError("holds no certificate in PEM format");
}

std::string CertificatePem(X509& certificate) {
  return Written(
      [&](BIO* bio) { return PEM_write_bio_X509(bio, &certificate); });
}

CertificateFacts FactsOf(X509& certificate) {
  const auto clear = absl::MakeCleanup(&ERR_clear_error);
  CertificateFacts facts{
      .valid_from = ToTime(X509_get0_notBefore(&certificate)),
      .valid_until = ToTime(X509_get0_notAfter(&certificate))};
  const Owned<BIGNUM> serial(
      ASN1_INTEGER_to_BN(X509_get0_serialNumber(&certificate), nullptr));
  if (char* const hex = serial == nullptr ? nullptr : BN_bn2hex(serial.get())) {
    facts.serial = absl::AsciiStrToLower(hex);
    OPENSSL_free(hex);
  }
  const Owned<GENERAL_NAMES> names(static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(&certificate, NID_subject_alt_name, nullptr, nullptr)));
  for (int i = 0; i < sk_GENERAL_NAME_num(names.get()); ++i) {
    int kind = 0;
    const auto* const value = static_cast<const ASN1_STRING*>(
        GENERAL_NAME_get0_value(sk_GENERAL_NAME_value(names.get(), i), &kind));
    if (kind != GEN_URI && kind != GEN_DNS) continue;
    facts.names.emplace_back(
        reinterpret_cast<const char*>(ASN1_STRING_get0_data(value)),
        static_cast<size_t>(ASN1_STRING_length(value)));
  }
  return facts;
}

absl::Status CheckTime(X509& certificate, absl::string_view name,
                       absl::Time now) {
  const CertificateFacts facts = FactsOf(certificate);
  if (now >= facts.valid_from && now <= facts.valid_until) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "the certificate ", name,
      now < facts.valid_from ? " is not valid yet" : " has expired"));
}

absl::StatusOr<Certificate> Certify(const CertificateContents& contents,
                                    EVP_PKEY& key, const Issuer& issuer) {
  return Make(contents, key, issuer.certificate.get(), issuer.key.get());
}

absl::StatusOr<Certificate> Certify(const CertificateContents& contents,
                                    EVP_PKEY& key) {
  return Make(contents, key, nullptr, nullptr);
}

absl::Status CheckServer(X509& leaf, X509& authority, absl::Time now) {
  const auto clear = absl::MakeCleanup(&ERR_clear_error);
  const Owned<X509_STORE> store(X509_STORE_new());
  const Owned<X509_STORE_CTX> context(X509_STORE_CTX_new());
  if (store == nullptr || context == nullptr ||
      X509_STORE_add_cert(store.get(), &authority) != 1 ||
      X509_STORE_CTX_init(context.get(), store.get(), &leaf, nullptr) != 1 ||
      X509_STORE_CTX_set_purpose(context.get(), X509_PURPOSE_SSL_SERVER) != 1) {
    return Failure("check a certificate");
  }
  X509_STORE_CTX_set_time(context.get(), 0, absl::ToTimeT(now));
  if (X509_verify_cert(context.get()) == 1) return absl::OkStatus();
  return absl::UnauthenticatedError(absl::StrCat(
      "the server's certificate is not valid: ",
      X509_verify_cert_error_string(X509_STORE_CTX_get_error(context.get()))));
}

}  // namespace causeway
