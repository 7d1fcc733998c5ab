// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The revoked certificates of a run whose authority is elsewhere. A follower
// keeps those that its leader reports in its state directory, so that they stay
// revoked if it takes over, or is restarted while no leader answers.
#ifndef SERVER_TRUST_REVOKED_H_
#define SERVER_TRUST_REVOKED_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/replication.pb.h"

namespace causeway {

// The file in the state directory, with one id a line.
inline constexpr char kRevokedName[] = "revoked";

// Returns none if there is no file.
absl::StatusOr<v1::RevokedCertificates> ReadRevoked(
    const std::string& state_dir);
// Writes the file, unless it has these already.
absl::Status WriteRevoked(const std::string& state_dir,
                          const v1::RevokedCertificates& revoked);

// Checks a client's certificate. `serial` is in lower-case hexadecimal digits.
//   UNAUTHENTICATED  It was revoked.
absl::Status CheckNotRevoked(const v1::RevokedCertificates& revoked,
                             absl::string_view serial);

}  // namespace causeway

#endif  // SERVER_TRUST_REVOKED_H_
