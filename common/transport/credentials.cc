// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/transport/credentials.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/file.h"
#include "common/status_macros.h"

namespace causeway {
namespace {

struct FreeOpenSsl {
  void operator()(BIO* bio) const { BIO_free(bio); }
  void operator()(X509* certificate) const { X509_free(certificate); }
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
};
using Certificate = std::unique_ptr<X509, FreeOpenSsl>;
using Key = std::unique_ptr<EVP_PKEY, FreeOpenSsl>;

// One file, and the flag that names it.
struct File {
  absl::string_view flag;
  std::string path;
  std::string pem;

  std::string Name() const {
    return absl::StrCat("\"", path, "\" (--", flag, ")");
  }
  std::unique_ptr<BIO, FreeOpenSsl> Open() const {
    return std::unique_ptr<BIO, FreeOpenSsl>(
        BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  }
};

absl::StatusOr<File> ReadPem(absl::string_view flag, const std::string& path) {
  File file{.flag = flag, .path = path};
  absl::StatusOr<std::string> pem = ReadFile(path);
  if (!pem.ok()) {
    return absl::Status(pem.status().code(),
                        absl::StrCat("cannot read ", file.Name(), ": ",
                                     std::string(pem.status().message())));
  }
  file.pem = *std::move(pem);
  return file;
}

absl::Status CheckTime(const File& file, const X509& certificate,
                       absl::Time now) {
  time_t seconds = absl::ToTimeT(now);
  if (X509_cmp_time(X509_get0_notBefore(&certificate), &seconds) > 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("the certificate ", file.Name(), " is not valid yet"));
  }
  if (X509_cmp_time(X509_get0_notAfter(&certificate), &seconds) < 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("the certificate ", file.Name(), " has expired"));
  }
  return absl::OkStatus();
}

// Returns the certificates of the file, at least one.
absl::StatusOr<std::vector<Certificate>> ReadCertificates(const File& file) {
  const auto bio = file.Open();
  std::vector<Certificate> certificates;
  while (X509* const next =
             PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr)) {
    certificates.emplace_back(next);
  }
  ERR_clear_error();
  if (certificates.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(file.Name(), " holds no certificate in PEM format"));
  }
  return certificates;
}

// Returns a certificate and its key.
absl::StatusOr<grpc::SslServerCredentialsOptions::PemKeyCertPair> ReadPair(
    const std::string& cert_path, const std::string& key_path, absl::Time now) {
  if (cert_path.empty() || key_path.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--", cert_path.empty() ? "tls_cert" : "tls_key",
                     " is missing: a certificate and its key are given "
                     "together"));
  }
  ASSIGN_OR_RETURN(const File cert, ReadPem("tls_cert", cert_path));
  ASSIGN_OR_RETURN(const File key_file, ReadPem("tls_key", key_path));
  ASSIGN_OR_RETURN(const std::vector<Certificate> chain,
                   ReadCertificates(cert));
  X509& certificate = *chain.front();
  RETURN_IF_ERROR(CheckTime(cert, certificate, now));
  const auto bio = key_file.Open();
  // An empty pass phrase, so that OpenSSL does not ask for one.
  char none[] = "";
  const Key key(PEM_read_bio_PrivateKey(bio.get(), nullptr, nullptr, none));
  ERR_clear_error();
  if (key == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(
        key_file.Name(),
        " holds no private key in PEM format, or one with a pass phrase"));
  }
  const bool match = X509_check_private_key(&certificate, key.get()) == 1;
  ERR_clear_error();
  if (!match) {
    return absl::InvalidArgumentError(
        absl::StrCat("the key ", key_file.Name(),
                     " does not belong to the certificate ", cert.Name()));
  }
  return grpc::SslServerCredentialsOptions::PemKeyCertPair{
      .private_key = key_file.pem, .cert_chain = cert.pem};
}

absl::StatusOr<std::string> ReadAuthority(absl::string_view flag,
                                          const std::string& path,
                                          absl::Time now) {
  ASSIGN_OR_RETURN(const File file, ReadPem(flag, path));
  ASSIGN_OR_RETURN(const std::vector<Certificate> certificates,
                   ReadCertificates(file));
  // A bundle may hold authorities that have expired.
  absl::Status valid;
  for (const Certificate& certificate : certificates) {
    valid = CheckTime(file, *certificate, now);
    if (valid.ok()) return file.pem;
  }
  return valid;
}

}  // namespace

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> MakeServerCredentials(
    const ServerTlsFiles& files, absl::Time now) {
  if (files.tls_cert.empty() && files.tls_key.empty() &&
      files.tls_client_ca.empty()) {
    return grpc::InsecureServerCredentials();
  }
  ASSIGN_OR_RETURN(auto pair, ReadPair(files.tls_cert, files.tls_key, now));
  grpc::SslServerCredentialsOptions options(
      files.tls_client_ca.empty()
          ? GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE
          : GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  options.pem_key_cert_pairs.push_back(std::move(pair));
  if (!files.tls_client_ca.empty()) {
    ASSIGN_OR_RETURN(options.pem_root_certs,
                     ReadAuthority("tls_client_ca", files.tls_client_ca, now));
  }
  return grpc::SslServerCredentials(options);
}

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>>
MakeChannelCredentials(const ClientTlsFiles& files, absl::Time now) {
  if (files.tls_ca.empty()) {
    if (!files.tls_cert.empty() || !files.tls_key.empty()) {
      return absl::InvalidArgumentError(
          "--tls_ca is missing: without the coordinator's authority its "
          "certificate cannot be checked");
    }
    return grpc::InsecureChannelCredentials();
  }
  grpc::SslCredentialsOptions options;
  ASSIGN_OR_RETURN(options.pem_root_certs,
                   ReadAuthority("tls_ca", files.tls_ca, now));
  if (!files.tls_cert.empty() || !files.tls_key.empty()) {
    ASSIGN_OR_RETURN(const auto pair,
                     ReadPair(files.tls_cert, files.tls_key, now));
    options.pem_private_key = pair.private_key;
    options.pem_cert_chain = pair.cert_chain;
  }
  return grpc::SslCredentials(options);
}

}  // namespace causeway
