// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/trust/revoked.h"

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/os/file.h"
#include "common/status_macros.h"

namespace causeway {
namespace {

std::string PathIn(const std::string& state_dir) {
  return absl::StrCat(state_dir, "/", kRevokedName);
}

}  // namespace

absl::StatusOr<v1::RevokedCertificates> ReadRevoked(
    const std::string& state_dir) {
  v1::RevokedCertificates revoked;
  const absl::StatusOr<std::string> text = ReadFile(PathIn(state_dir));
  if (absl::IsNotFound(text.status())) return revoked;
  RETURN_IF_ERROR(text.status());
  for (const absl::string_view id :
       absl::StrSplit(*text, '\n', absl::SkipEmpty())) {
    revoked.add_ids(std::string(id));
  }
  return revoked;
}

absl::Status WriteRevoked(const std::string& state_dir,
                          const v1::RevokedCertificates& revoked) {
  std::string text;
  for (const std::string& id : revoked.ids()) absl::StrAppend(&text, id, "\n");
  const std::string path = PathIn(state_dir);
  if (ReadFile(path).value_or("") == text) return absl::OkStatus();
  return WriteFileAtomically(path, {absl::string_view(text)});
}

absl::Status CheckNotRevoked(const v1::RevokedCertificates& revoked,
                             absl::string_view serial) {
  if (absl::c_none_of(revoked.ids(), [&](const std::string& id) {
        return absl::StartsWith(serial, id);
      })) {
    return absl::OkStatus();
  }
  return absl::UnauthenticatedError(
      "this certificate was revoked; remove tls.crt from its --tls folder, and "
      "enrol with a new token of an operator (causeway token create)");
}

}  // namespace causeway
