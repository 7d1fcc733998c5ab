// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/transport/testing/certificates.h"

#include <openssl/bio.h>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "common/os/file.h"
#include "glog/logging.h"

namespace causeway {
namespace {

struct FreeOpenSsl {
  void operator()(BIO* bio) const { BIO_free(bio); }
  void operator()(X509* certificate) const { X509_free(certificate); }
  void operator()(X509_EXTENSION* extension) const {
    X509_EXTENSION_free(extension);
  }
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
};
template <typename T>
using Owned = std::unique_ptr<T, FreeOpenSsl>;

void WriteBio(const std::string& path, BIO* bio) {
  char* data = nullptr;
  const long bytes = BIO_get_mem_data(bio, &data);
  CHECK(WriteFileAtomically(
            path, {absl::string_view(data, static_cast<size_t>(bytes))})
            .ok());
}

void Extend(X509* certificate, int kind, const std::string& value) {
  const Owned<X509_EXTENSION> extension(
      X509V3_EXT_conf_nid(nullptr, nullptr, kind, value.c_str()));
  CHECK(extension != nullptr);
  CHECK(X509_add_ext(certificate, extension.get(), -1));
}

// Returns names as OpenSSL wants them.
std::string AltNames(const std::string& names) {
  std::vector<std::string> typed;
  for (const absl::string_view name : absl::StrSplit(names, ',')) {
    const bool is_address =
        name.find_first_not_of("0123456789.") == absl::string_view::npos;
    const bool is_uri = absl::StrContains(name, "://");
    typed.push_back(absl::StrCat(is_address ? "IP:"
                                 : is_uri   ? "URI:"
                                            : "DNS:",
                                 name));
  }
  return absl::StrJoin(typed, ",");
}

// Makes a certificate that `issuer` signs with its key, or that signs itself if
// there is no issuer.
Owned<X509> MakeCertificate(const std::string& names, const Validity& validity,
                            EVP_PKEY* key, X509* issuer, EVP_PKEY* issuer_key) {
  static long serial = 0;
  Owned<X509> certificate(X509_new());
  X509* const x509 = certificate.get();
  X509_set_version(x509, X509_VERSION_3);
  ASN1_INTEGER_set(X509_get_serialNumber(x509), ++serial);
  ASN1_TIME_set(X509_getm_notBefore(x509), absl::ToTimeT(validity.from));
  ASN1_TIME_set(X509_getm_notAfter(x509), absl::ToTimeT(validity.until));
  X509_set_pubkey(x509, key);
  const bool is_authority = issuer == nullptr;
  const std::string subject = is_authority ? "an authority" : "a program";
  X509_NAME_add_entry_by_txt(
      X509_get_subject_name(x509), "CN", MBSTRING_ASC,
      reinterpret_cast<const unsigned char*>(subject.c_str()), -1, -1, 0);
  X509_set_issuer_name(x509,
                       X509_get_subject_name(is_authority ? x509 : issuer));
  Extend(x509, NID_basic_constraints,
         is_authority ? "critical,CA:TRUE" : "critical,CA:FALSE");
  if (!is_authority) Extend(x509, NID_subject_alt_name, AltNames(names));
  CHECK(X509_sign(x509, is_authority ? key : issuer_key, EVP_sha256()));
  return certificate;
}

TestIdentity WriteFiles(const std::string& path, X509* certificate,
                        EVP_PKEY* key) {
  const TestIdentity files = {.certificate = path + ".crt",
                              .key = path + ".key"};
  const Owned<BIO> certificate_bio(BIO_new(BIO_s_mem()));
  CHECK(PEM_write_bio_X509(certificate_bio.get(), certificate));
  WriteBio(files.certificate, certificate_bio.get());
  const Owned<BIO> key_bio(BIO_new(BIO_s_mem()));
  CHECK(PEM_write_bio_PrivateKey(key_bio.get(), key, nullptr, nullptr, 0,
                                 nullptr, nullptr));
  WriteBio(files.key, key_bio.get());
  return files;
}

}  // namespace

struct TestAuthority::Signer {
  Owned<EVP_PKEY> key;
  Owned<X509> certificate;
  int signed_count = 0;
};

TestAuthority::TestAuthority(std::string path, const Validity& validity)
    : path_(std::move(path)), signer_(std::make_unique<Signer>()) {
  signer_->key.reset(EVP_EC_gen("P-256"));
  CHECK(signer_->key != nullptr);
  signer_->certificate =
      MakeCertificate("", validity, signer_->key.get(), nullptr, nullptr);
  files_ = WriteFiles(path_, signer_->certificate.get(), signer_->key.get());
}

TestAuthority::~TestAuthority() = default;

TestIdentity TestAuthority::Sign(const std::string& names,
                                 const Validity& validity) {
  const Owned<EVP_PKEY> key(EVP_EC_gen("P-256"));
  CHECK(key != nullptr);
  const Owned<X509> certificate =
      MakeCertificate(names, validity, key.get(), signer_->certificate.get(),
                      signer_->key.get());
  return WriteFiles(absl::StrCat(path_, "-", ++signer_->signed_count),
                    certificate.get(), key.get());
}

}  // namespace causeway
