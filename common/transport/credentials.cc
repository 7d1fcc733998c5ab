// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/transport/credentials.h"

#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/os/file.h"
#include "common/status_macros.h"
#include "common/transport/grpc_status.h"
#include "common/transport/x509.h"
#include "grpcpp/security/tls_certificate_provider.h"
#include "grpcpp/security/tls_credentials_options.h"

namespace causeway {
namespace {

// Seconds after which changed files are read at the latest.
constexpr unsigned kReloadSeconds = 1;

// One file, and the flag that names it.
struct File {
  absl::string_view flag;
  std::string path;
  std::string pem;

  std::string Name() const {
    return absl::StrCat("\"", path, "\" (--", flag, ")");
  }
};

absl::StatusOr<File> ReadPem(absl::string_view flag, const std::string& path) {
  File file{.flag = flag, .path = path};
  absl::StatusOr<std::string> pem = ReadFile(path);
  if (!pem.ok()) {
    const bool of_folder =
        absl::IsNotFound(pem.status()) && absl::EndsWith(flag, "tls");
    return absl::Status(
        pem.status().code(),
        absl::StrCat("cannot read ", file.Name(), ": ", pem.status().message(),
                     of_folder ? "; a join token (--join, join_token) gets "
                                 "the files of this folder"
                               : ""));
  }
  file.pem = *std::move(pem);
  return file;
}

absl::Status Explain(const File& file, const absl::Status& status) {
  return absl::Status(status.code(),
                      absl::StrCat(file.Name(), " ", status.message()));
}

// Returns the certificates of the file, at least one.
absl::StatusOr<std::vector<Certificate>> ReadCertificates(const File& file) {
  absl::StatusOr<std::vector<Certificate>> certificates =
      ParseCertificates(file.pem);
  if (!certificates.ok()) return Explain(file, certificates.status());
  return certificates;
}

// Checks a certificate and its key. Returns the certificate.
absl::StatusOr<Certificate> CheckPair(const std::string& cert_path,
                                      const std::string& key_path,
                                      absl::Time now,
                                      absl::string_view cert_flag = "tls_cert",
                                      absl::string_view key_flag = "tls_key") {
  if (cert_path.empty() || key_path.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--", cert_path.empty() ? cert_flag : key_flag,
                     " is missing: a certificate and its key are given "
                     "together"));
  }
  ASSIGN_OR_RETURN(const File cert, ReadPem(cert_flag, cert_path));
  ASSIGN_OR_RETURN(const File key_file, ReadPem(key_flag, key_path));
  ASSIGN_OR_RETURN(std::vector<Certificate> chain, ReadCertificates(cert));
  RETURN_IF_ERROR(CheckTime(*chain.front(), cert.Name(), now));
  const absl::StatusOr<PrivateKey> key = ParseKey(key_file.pem);
  if (!key.ok()) return Explain(key_file, key.status());
  if (!BelongTogether(*chain.front(), **key)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the key ", key_file.Name(),
                     " does not belong to the certificate ", cert.Name()));
  }
  return std::move(chain.front());
}

absl::Status CheckAuthority(absl::string_view flag, const std::string& path,
                            absl::Time now) {
  ASSIGN_OR_RETURN(const File file, ReadPem(flag, path));
  ASSIGN_OR_RETURN(const std::vector<Certificate> certificates,
                   ReadCertificates(file));
  // A bundle may hold authorities that have expired.
  absl::Status valid;
  for (const Certificate& certificate : certificates) {
    valid = CheckTime(*certificate, file.Name(), now);
    if (valid.ok()) break;
  }
  return valid;
}

class CheckingVerifier
    : public grpc::experimental::ExternalCertificateVerifier {
 public:
  explicit CheckingVerifier(ServerCheck check) : check_(std::move(check)) {}

  bool Verify(grpc::experimental::TlsCustomVerificationCheckRequest* request,
              std::function<void(grpc::Status)>,
              grpc::Status* status) override {
    *status = ToGrpcStatus(check_(*request));
    return true;
  }

  void Cancel(grpc::experimental::TlsCustomVerificationCheckRequest*) override {
  }

 private:
  const ServerCheck check_;
};

// Replaces the check of the host's name by `check`.
void SetCheck(ServerCheck check,
              grpc::experimental::TlsChannelCredentialsOptions& options) {
  options.set_certificate_verifier(
      grpc::experimental::ExternalCertificateVerifier::Create<CheckingVerifier>(
          std::move(check)));
  options.set_check_call_host(false);
}

absl::Status CheckCoordinator(
    const std::string& run,
    const grpc::experimental::TlsCustomVerificationCheckRequest& shown) {
  std::vector<std::string> names;
  for (const auto& list : {shown.uri_names(), shown.dns_names()}) {
    for (const grpc::string_ref& name : list) {
      names.emplace_back(name.data(), name.size());
    }
  }
  ASSIGN_OR_RETURN(const Identity identity, ParseIdentity(names));
  if (identity.role == Role::kCoordinator && identity.run == run) {
    return absl::OkStatus();
  }
  return absl::UnauthenticatedError(
      absl::StrCat("the certificate is for ", Describe(identity), " of run ",
                   identity.run, "; expected: the coordinator of run ", run));
}

// Returns an authority that signs nothing, PEM.
absl::StatusOr<std::string> MakeUnusedAuthority() {
  ASSIGN_OR_RETURN(const PrivateKey key, MakeKey());
  ASSIGN_OR_RETURN(const Certificate certificate,
                   Certify({.subject = "unused",
                            .serial = "\1",
                            .valid_from = absl::UnixEpoch(),
                            .valid_until = absl::UnixEpoch()},
                           *key));
  return CertificatePem(*certificate);
}

std::shared_ptr<grpc::experimental::CertificateProviderInterface> Watch(
    const std::string& key, const std::string& certificate,
    const std::string& authority) {
  return std::make_shared<grpc::experimental::FileWatcherCertificateProvider>(
      key, certificate, authority, kReloadSeconds);
}

ClientTlsFiles FilesOf(const std::string& folder) {
  return {.tls_ca = absl::StrCat(folder, "/", kFolderAuthority),
          .tls_cert = absl::StrCat(folder, "/", kFolderCertificate),
          .tls_key = absl::StrCat(folder, "/", kFolderKey)};
}

}  // namespace

std::string ClientTlsFiles::CertificatePath() const {
  return tls.empty() ? tls_cert : FilesOf(tls).tls_cert;
}

absl::StatusOr<Identity> FolderIdentity(const std::string& folder,
                                        absl::Time now,
                                        absl::string_view flag) {
  const ClientTlsFiles files = FilesOf(folder);
  ASSIGN_OR_RETURN(const Certificate certificate,
                   CheckPair(files.tls_cert, files.tls_key, now, flag, flag));
  return ParseIdentity(FactsOf(*certificate).names);
}

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> MakeServerCredentials(
    const ServerTlsFiles& files, absl::Time now) {
  if (files.tls_cert.empty() && files.tls_key.empty() &&
      files.tls_client_ca.empty()) {
    return grpc::InsecureServerCredentials();
  }
  RETURN_IF_ERROR(CheckPair(files.tls_cert, files.tls_key, now).status());
  const bool mutual = !files.tls_client_ca.empty();
  if (mutual) {
    RETURN_IF_ERROR(CheckAuthority("tls_client_ca", files.tls_client_ca, now));
  }
  grpc::experimental::TlsServerCredentialsOptions options(
      Watch(files.tls_key, files.tls_cert, files.tls_client_ca));
  options.watch_identity_key_cert_pairs();
  if (mutual) options.watch_root_certs();
  options.set_cert_request_type(
      !mutual ? GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE
      : files.client_certificate_optional
          ? GRPC_SSL_REQUEST_CLIENT_CERTIFICATE_AND_VERIFY
          : GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  return grpc::experimental::TlsServerCredentials(options);
}

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>>
MakeChannelCredentials(const ClientTlsFiles& flags, absl::Time now) {
  const bool has_pair = !flags.tls_cert.empty() || !flags.tls_key.empty();
  const std::string folder_flag = absl::StrCat(flags.prefix, "tls");
  const std::string authority_flag = absl::StrCat(flags.prefix, "tls_ca");
  const std::string cert_flag = absl::StrCat(flags.pair_prefix, "tls_cert");
  const std::string key_flag = absl::StrCat(flags.pair_prefix, "tls_key");
  if (!flags.tls.empty() && (has_pair || !flags.tls_ca.empty())) {
    return absl::InvalidArgumentError(
        absl::StrCat("--", folder_flag, " names a folder with all files; --",
                     authority_flag, ", --", cert_flag, " and --", key_flag,
                     " name them one by one: give one or the other"));
  }
  if (flags.tls.empty() && flags.tls_ca.empty()) {
    if (has_pair) {
      return absl::InvalidArgumentError(
          absl::StrCat("--", authority_flag,
                       " is missing: without the server's authority its "
                       "certificate cannot be checked"));
    }
    return grpc::InsecureChannelCredentials();
  }
  const ClientTlsFiles files = flags.tls.empty() ? flags : FilesOf(flags.tls);
  RETURN_IF_ERROR(CheckAuthority(
      flags.tls.empty() ? authority_flag : folder_flag, files.tls_ca, now));
  Identity own;
  if (!flags.tls.empty()) {
    ASSIGN_OR_RETURN(own, FolderIdentity(flags.tls, now, folder_flag));
  } else if (has_pair) {
    RETURN_IF_ERROR(
        CheckPair(files.tls_cert, files.tls_key, now, cert_flag, key_flag)
            .status());
  }
  grpc::experimental::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(
      Watch(files.tls_key, files.tls_cert, files.tls_ca));
  options.watch_root_certs();
  if (has_pair || !flags.tls.empty()) options.watch_identity_key_cert_pairs();
  if (!flags.tls.empty()) {
    // gRPC has checked the certificate against the authority by then. The
    // coordinator's certificate does not name hosts.
    SetCheck([run = own.run](
                 const auto& shown) { return CheckCoordinator(run, shown); },
             options);
  }
  return grpc::experimental::TlsCredentials(options);
}

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> CheckedCredentials(
    ServerCheck check) {
  grpc::experimental::TlsChannelCredentialsOptions options;
  options.set_verify_server_certs(false);
  // Without one, gRPC loads the system's authorities, which a container lacks.
  ASSIGN_OR_RETURN(const std::string authority, MakeUnusedAuthority());
  options.set_certificate_provider(
      std::make_shared<grpc::experimental::StaticDataCertificateProvider>(
          authority));
  options.watch_root_certs();
  SetCheck(std::move(check), options);
  return grpc::experimental::TlsCredentials(options);
}

}  // namespace causeway
