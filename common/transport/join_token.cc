// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/transport/join_token.h"

#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace causeway {
namespace {

constexpr absl::string_view kVersion = "causeway1";

bool IsTokenId(absl::string_view id) {
  return id.size() == kTokenIdDigits && absl::c_all_of(id, [](char c) {
           return absl::ascii_isxdigit(c) && !absl::ascii_isupper(c);
         });
}

}  // namespace

std::string FormatJoinToken(const JoinToken& token) {
  return absl::StrCat(kVersion, ".", absl::WebSafeBase64Escape(token.pin), ".",
                      token.id, ".", absl::WebSafeBase64Escape(token.secret));
}

absl::StatusOr<JoinToken> ParseJoinToken(absl::string_view text) {
  const std::vector<absl::string_view> parts = absl::StrSplit(text, '.');
  JoinToken token;
  if (parts.size() == 4 && parts[0] == kVersion && IsTokenId(parts[2]) &&
      absl::WebSafeBase64Unescape(parts[1], &token.pin) &&
      absl::WebSafeBase64Unescape(parts[3], &token.secret)) {
    token.id = std::string(parts[2]);
    // There is one way to write a token: the decoder ignores spaces and unused
    // bits.
    if (token.pin.size() == kPinBytes && token.secret.size() == kSecretBytes &&
        FormatJoinToken(token) == text) {
      return token;
    }
  }
  return absl::InvalidArgumentError(
      "this is not a join token; one has the form causeway1.PIN.ID.SECRET, as "
      "`causeway token create` prints it: was all of it copied?");
}

}  // namespace causeway
