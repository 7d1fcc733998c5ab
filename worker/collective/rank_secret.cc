// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/collective/rank_secret.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/file.h"
#include "common/status_macros.h"

namespace causeway {
namespace {

// Enough even if the bytes are hexadecimal digits, with 4 random bits each.
constexpr size_t kShortestSecret = 32;

}  // namespace

absl::StatusOr<std::string> ReadRankSecret(const std::string& path) {
  ASSIGN_OR_RETURN(std::string secret, ReadFile(path));
  absl::StripTrailingAsciiWhitespace(&secret);
  if (secret.size() >= kShortestSecret) return secret;
  return absl::InvalidArgumentError(absl::StrCat(
      "the secret in \"", path, "\" has ", secret.size(), " bytes; needed: ",
      kShortestSecret, " or more, as from `head -c 32 /dev/urandom | base64`"));
}

}  // namespace causeway
