// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Identifies the holder of a certificate by one of its alternative names, a URI
// in the form of SPIFFE IDs or a DNS name:
//
//   spiffe://DOMAIN/causeway/RUN/ROLE/NAME    DOMAIN may be anything
//   NAME.ROLE.RUN.causeway
//   coordinator.RUN.causeway                  short for NAME = coordinator
//
// RUN is the run's name (RunConfig.name), ROLE one of island, operator, viewer
// and coordinator, and NAME the name of the island, person or tool. RUN and
// NAME are 1 to 64 of [a-z0-9-].
#ifndef COMMON_TRANSPORT_IDENTITY_H_
#define COMMON_TRANSPORT_IDENTITY_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace causeway {

enum class Role { kIsland, kOperator, kViewer, kCoordinator };

// "island", "operator", "viewer" or "coordinator".
absl::string_view RoleName(Role role);
//   INVALID_ARGUMENT  There is no such role.
absl::StatusOr<Role> ParseRole(absl::string_view name);

struct Identity {
  Role role = Role::kViewer;
  std::string run;
  std::string name;

  friend bool operator==(const Identity& a, const Identity& b) {
    return a.role == b.role && a.run == b.run && a.name == b.name;
  }
};

// Returns, for people, "island east".
std::string Describe(const Identity& identity);

// Return the two forms of a certificate's name.
std::string FormatUri(const Identity& identity);
std::string FormatDns(const Identity& identity);

// Returns the identity that the alternative names of a certificate, URIs and
// DNS names, agree on. Names of other forms do not matter.
//   UNAUTHENTICATED  None of the names is an identity, one is a malformed
//                    identity, or they differ. The message lists them.
absl::StatusOr<Identity> ParseIdentity(absl::Span<const std::string> names);

}  // namespace causeway

#endif  // COMMON_TRANSPORT_IDENTITY_H_
