// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// A join token: one word with which a client enrols with a coordinator's own
// authority (proto/trust.proto). It also names the authority's key, by which
// the client recognizes an impostor before it trusts anything.
//
//   causeway1.PIN.ID.SECRET
//
// PIN is the SHA-256 of the authority's key, and SECRET 16 random bytes, both
// in base64url without padding; ID is 12 hexadecimal digits.
#ifndef COMMON_TRANSPORT_JOIN_TOKEN_H_
#define COMMON_TRANSPORT_JOIN_TOKEN_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace causeway {

inline constexpr int kPinBytes = 32;
inline constexpr int kSecretBytes = 16;
inline constexpr int kTokenIdDigits = 12;

struct JoinToken {
  // As KeyDigest (common/transport/x509.h) returns it.
  std::string pin;
  std::string id;
  std::string secret;
};

std::string FormatJoinToken(const JoinToken& token);
// Inverts FormatJoinToken.
//   INVALID_ARGUMENT  `text` is not a join token. The message does not repeat
//                     it.
absl::StatusOr<JoinToken> ParseJoinToken(absl::string_view text);

}  // namespace causeway

#endif  // COMMON_TRANSPORT_JOIN_TOKEN_H_
