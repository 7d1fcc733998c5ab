// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/collective/rank_secret.h"

#include <openssl/hmac.h>
#include <openssl/rand.h>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/os/file.h"
#include "common/status_macros.h"
#include "glog/logging.h"

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

std::string KeyOfSecret(absl::string_view secret) {
  static constexpr char kPurpose[] = "causeway ranks";
  std::string key(kRankKeyBytes, '\0');
  CHECK(HMAC(EVP_sha256(), kPurpose, sizeof(kPurpose),
             reinterpret_cast<const unsigned char*>(secret.data()),
             secret.size(), reinterpret_cast<unsigned char*>(&key[0]),
             nullptr) != nullptr);
  return key;
}

std::string RandomKey() {
  std::string key(kRankKeyBytes, '\0');
  CHECK_EQ(RAND_bytes(reinterpret_cast<unsigned char*>(&key[0]), kRankKeyBytes),
           1);
  return key;
}

}  // namespace causeway
