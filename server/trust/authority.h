// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The coordinator's own certificate authority, in a folder that only its owner
// may enter:
//
//   ca.key, ca.crt                    the authority, for ten years
//   coordinator.key, coordinator.crt  what the coordinator shows
//   operator/                         ClientTlsFiles::tls for this machine
#ifndef SERVER_TRUST_AUTHORITY_H_
#define SERVER_TRUST_AUTHORITY_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/transport/credentials.h"
#include "common/transport/identity.h"
#include "common/transport/x509.h"

namespace causeway {

// A certificate's serial is its holder's id, then a random number.
inline constexpr int kHolderIdBytes = 8;
std::string NewHolderId();

inline constexpr absl::Duration kAuthorityLife = absl::Hours(24 * 3650);

// Thread-safe, except for WriteServerPair and WriteOperatorPair.
class Authority {
 public:
  // Returns whether the folder has an authority's certificate, or its key.
  static bool Exists(const std::string& folder);
  // Opens the authority of a run, and makes what is missing if `may_make`. The
  // folder must exist.
  //   NOT_FOUND            The key is missing. It is not made if ca.crt is
  //                        there.
  //   FAILED_PRECONDITION  The certificate is missing, or one of the two is
  //                        damaged.
  //   UNAVAILABLE          The system's clock is wrong.
  static absl::StatusOr<Authority> Open(const std::string& folder,
                                        const std::string& run, bool may_make,
                                        absl::Time now);

  // The digest of the authority's key, which join tokens carry.
  std::string pin() const { return KeyDigest(*issuer_.key); }
  absl::Time valid_from() const {
    return FactsOf(*issuer_.certificate).valid_from;
  }

  // Returns a client's certificate, PEM. It is valid from shortly before `now`,
  // for clocks that are behind.
  absl::StatusOr<std::string> Sign(const Identity& identity,
                                   absl::string_view holder_id, EVP_PKEY& key,
                                   absl::Time now, absl::Duration life) const;

  // Writes a new certificate for the coordinator, and its key if there is none.
  absl::Status WriteServerPair(absl::Time now, absl::Duration life) const;
  // Returns the key of this machine's operator; makes it if it is missing.
  absl::StatusOr<PrivateKey> OperatorKey() const;
  // Writes a new certificate for the operator's key, and the authority's beside
  // it.
  absl::Status WriteOperatorPair(const Identity& identity,
                                 absl::string_view holder_id, EVP_PKEY& key,
                                 absl::Time now, absl::Duration life) const;
  // The files for MakeServerCredentials.
  ServerTlsFiles server_files() const;

 private:
  Authority(std::string folder, std::string run, Issuer issuer)
      : folder_(std::move(folder)),
        run_(std::move(run)),
        issuer_(std::move(issuer)) {}

  std::string Path(absl::string_view name) const;

  std::string folder_;
  std::string run_;
  Issuer issuer_;
};

}  // namespace causeway

#endif  // SERVER_TRUST_AUTHORITY_H_
