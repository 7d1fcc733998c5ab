// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/transport/identity.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/config/run_config.h"

namespace causeway {
namespace {

constexpr absl::string_view kCoordinator = "coordinator";
constexpr absl::string_view kRoles[] = {"island", "operator", "viewer",
                                        kCoordinator};

// The most names, and bytes of a name, that an error lists.
constexpr size_t kListedNames = 4;
constexpr size_t kListedBytes = 160;

// Returns RUN, ROLE and NAME, unchecked. Returns nothing if `name` is of
// another form.
std::optional<std::vector<std::string>> Split(absl::string_view name) {
  std::vector<std::string> parts;
  if (absl::ConsumePrefix(&name, "spiffe://")) {
    parts = absl::StrSplit(name, '/');
    if (parts.size() < 2 || parts[1] != "causeway") return std::nullopt;
    parts.erase(parts.begin(), parts.begin() + 2);
    return parts;
  }
  if (!absl::ConsumeSuffix(&name, ".causeway")) return std::nullopt;
  parts = absl::StrSplit(name, '.');
  if (parts.size() == 2 && parts[0] == kCoordinator) {
    parts.insert(parts.begin(), std::string(kCoordinator));
  }
  std::reverse(parts.begin(), parts.end());
  return parts;
}

absl::Status Unidentified(absl::Span<const std::string> names,
                          absl::string_view why) {
  std::vector<std::string> listed;
  for (const std::string& name : names.subspan(0, kListedNames)) {
    listed.push_back(absl::CHexEscape(name.substr(0, kListedBytes)));
  }
  return absl::UnauthenticatedError(absl::StrCat(
      "the certificate ", why,
      "; needed: spiffe://DOMAIN/causeway/RUN/ROLE/NAME or "
      "NAME.ROLE.RUN.causeway, where ROLE is one of ",
      absl::StrJoin(kRoles, ", "),
      ", and RUN and NAME are 1 to 64 of [a-z0-9-]; its names are [",
      absl::StrJoin(listed, ", "),
      names.size() > kListedNames ? ", ...]" : "]"));
}

}  // namespace

absl::string_view RoleName(Role role) {
  return kRoles[static_cast<size_t>(role)];
}

absl::StatusOr<Role> ParseRole(absl::string_view name) {
  const auto* const found =
      std::find(std::begin(kRoles), std::end(kRoles), name);
  if (found == std::end(kRoles)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "\"", absl::CHexEscape(name), "\" is not a role; there are ",
        absl::StrJoin(kRoles, ", ")));
  }
  return static_cast<Role>(found - std::begin(kRoles));
}

std::string Describe(const Identity& identity) {
  return absl::StrCat(RoleName(identity.role), " ", identity.name);
}

std::string FormatUri(const Identity& identity) {
  return absl::StrCat("spiffe://causeway/causeway/", identity.run, "/",
                      RoleName(identity.role), "/", identity.name);
}

std::string FormatDns(const Identity& identity) {
  const absl::string_view role = RoleName(identity.role);
  const bool is_short =
      identity.role == Role::kCoordinator && identity.name == kCoordinator;
  return absl::StrCat(is_short ? "" : absl::StrCat(identity.name, "."), role,
                      ".", identity.run, ".causeway");
}

absl::StatusOr<Identity> ParseIdentity(absl::Span<const std::string> names) {
  std::optional<Identity> identity;
  for (const std::string& name : names) {
    const std::optional<std::vector<std::string>> parts = Split(name);
    if (!parts.has_value()) continue;
    const absl::StatusOr<Role> role =
        ParseRole(parts->size() == 3 ? (*parts)[1] : "");
    if (!role.ok() || !IsValidName((*parts)[0]) || !IsValidName((*parts)[2])) {
      return Unidentified(names, "has a name that is not an identity");
    }
    const Identity next = {*role, (*parts)[0], (*parts)[2]};
    if (identity.has_value() && !(*identity == next)) {
      return Unidentified(names, "has several identities");
    }
    identity = next;
  }
  if (!identity.has_value()) return Unidentified(names, "has no identity");
  return *identity;
}

}  // namespace causeway
