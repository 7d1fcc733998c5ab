// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// TLS for coordinator, islands and tools: gRPC credentials from PEM files.
//
// The coordinator presents a certificate; with `tls_client_ca`, clients must
// also present one, signed by that authority (mutual TLS). A client checks the
// coordinator's certificate, and the name in it, against `tls_ca`.
//
// The files are checked here, because gRPC would accept any and fail only
// later, at each connection, with a message that names none. Files that change
// later are read again within some seconds, for new connections; gRPC's log
// says if they cannot be used.
//
//   INVALID_ARGUMENT     a file is missing from the set, or is not PEM; a key
//                        does not belong to its certificate.
//   FAILED_PRECONDITION  a certificate is not valid at `now`.
//   NOT_FOUND, ...       a file cannot be read.
// Every message names the flag and the file.
#ifndef COMMON_TRANSPORT_CREDENTIALS_H_
#define COMMON_TRANSPORT_CREDENTIALS_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/transport/identity.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/security/tls_certificate_verifier.h"

namespace causeway {

// Paths of PEM files, named like the programs' flags.
struct ServerTlsFiles {
  // The coordinator's certificate, with the chain up to the authority.
  std::string tls_cert;
  // Its private key.
  std::string tls_key;
  // Certificates of the authorities that sign clients' certificates. If empty,
  // clients need no certificate.
  std::string tls_client_ca;
  // Lets clients without a certificate connect. A certificate that is presented
  // must be valid.
  bool client_certificate_optional = false;
};

struct ClientTlsFiles {
  // Certificates of the authorities that sign the coordinator's certificate.
  std::string tls_ca;
  // The client's certificate and key for mutual TLS: both or none.
  std::string tls_cert;
  std::string tls_key;
  // A folder of kFolderAuthority, kFolderCertificate and kFolderKey, as
  // enrolment writes it (common/transport/enrolment.h). The coordinator must
  // then present a certificate of the run's coordinator, at any address.
  // Excludes the other files, with which the coordinator's certificate must
  // name the dialled host.
  std::string tls;
  // Stand in errors before the names of flags, if a program's have others:
  // before tls and tls_ca, and before tls_cert and tls_key.
  std::string prefix = "";
  std::string pair_prefix = "";

  // Returns whether connections are encrypted.
  bool UsesTls() const { return !tls.empty() || !tls_ca.empty(); }
  // Returns the path of the client's certificate; empty if it shows none.
  std::string CertificatePath() const;
};

inline constexpr char kFolderAuthority[] = "ca.crt";
inline constexpr char kFolderCertificate[] = "tls.crt";
inline constexpr char kFolderKey[] = "tls.key";

// Returns the identity in the certificate of a ClientTlsFiles::tls, which
// `flag` names. Also returns errors of ParseIdentity.
absl::StatusOr<Identity> FolderIdentity(const std::string& folder,
                                        absl::Time now,
                                        absl::string_view flag = "tls");

// Returns credentials for plain text if all files are empty.
absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> MakeServerCredentials(
    const ServerTlsFiles& files, absl::Time now);
absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>>
MakeChannelCredentials(const ClientTlsFiles& files, absl::Time now);

// Checks the certificate that a server shows, on any thread.
using ServerCheck = std::function<absl::Status(
    const grpc::experimental::TlsCustomVerificationCheckRequest& shown)>;

// Returns credentials that accept servers that pass `check`. It replaces gRPC's
// checks, which need an authority.
absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> CheckedCredentials(
    ServerCheck check);

}  // namespace causeway

#endif  // COMMON_TRANSPORT_CREDENTIALS_H_
