// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/transport/identity.h"

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr Role kAllRoles[] = {Role::kIsland, Role::kOperator, Role::kViewer,
                              Role::kCoordinator};

TEST(IdentityTest, RolesHaveNames) {
  for (const Role role : kAllRoles) {
    ASSERT_OK_AND_ASSIGN(const Role parsed, ParseRole(RoleName(role)));
    EXPECT_EQ(parsed, role);
  }
  EXPECT_THAT(ParseRole("admin"),
              IsInvalidArgument("island, operator, viewer, coordinator"));
}

TEST(IdentityTest, IsTheSameInBothForms) {
  const Identity east = {Role::kIsland, "my-run", "east"};
  EXPECT_EQ(Describe(east), "island east");
  EXPECT_EQ(FormatUri(east), "spiffe://causeway/causeway/my-run/island/east");
  EXPECT_EQ(FormatDns(east), "east.island.my-run.causeway");
  for (const Role role : kAllRoles) {
    for (const char* const name : {"east", "island", "coordinator", "-1"}) {
      const Identity identity = {role, std::string(64, 'r'), name};
      for (const std::vector<std::string>& names :
           {std::vector<std::string>{FormatUri(identity)},
            {FormatDns(identity)},
            {"host.example", FormatDns(identity), FormatUri(identity)}}) {
        ASSERT_OK_AND_ASSIGN(const Identity parsed, ParseIdentity(names));
        EXPECT_EQ(parsed, identity);
      }
    }
  }
}

TEST(IdentityTest, ACoordinatorHasAShortDnsName) {
  const Identity coordinator = {Role::kCoordinator, "r", "coordinator"};
  EXPECT_EQ(FormatDns(coordinator), "coordinator.r.causeway");
  ASSERT_OK_AND_ASSIGN(const Identity long_form,
                       ParseIdentity({"coordinator.coordinator.r.causeway"}));
  EXPECT_EQ(long_form, coordinator);
}

TEST(IdentityTest, TheDomainMayBeAnything) {
  ASSERT_OK_AND_ASSIGN(
      const Identity identity,
      ParseIdentity({"spiffe://prod.example.org/causeway/r/viewer/page"}));
  EXPECT_EQ(identity, (Identity{Role::kViewer, "r", "page"}));
}

TEST(IdentityTest, NamesOfOtherFormsAreNone) {
  for (const char* const name :
       {"", "causeway", "host.example", "east.island.r.causeway.example",
        "https://x/causeway/r/island/east", "spiffe://x/other/r/island/east",
        "spiffe://x"}) {
    EXPECT_THAT(
        ParseIdentity({name}),
        IsUnauthenticated("no identity; needed: ", "NAME.ROLE.RUN.causeway",
                          absl::StrCat("[", name, "]")));
  }
  EXPECT_THAT(ParseIdentity({}), IsUnauthenticated());
}

TEST(IdentityTest, NamesThatAreNearlyOneSpoilTheCertificate) {
  const std::string nul("ea\0st.island.r.causeway", 23);
  for (const std::string& name :
       {std::string("East.island.r.causeway"),
        std::string("*.island.r.causeway"), std::string(".island.r.causeway"),
        std::string("east.island..causeway"), std::string("island.r.causeway"),
        std::string("a.east.island.r.causeway"),
        std::string("east.admin.r.causeway"), std::string("r.causeway"),
        std::string("spiffe://x/causeway"),
        std::string("spiffe://x/causeway/r"),
        std::string("spiffe://x/causeway/r/island/"),
        std::string("spiffe://x/causeway/r/island/east/"),
        std::string("spiffe://x/causeway/r/island/ea%73t"),
        std::string("spiffe://x/causeway/r/Island/east"),
        std::string("spiffe://x/causeway//island/east"),
        absl::StrCat(std::string(65, 'a'), ".island.r.causeway"), nul}) {
    EXPECT_THAT(ParseIdentity({"east.island.r.causeway", name}),
                IsUnauthenticated("a name that is not an identity"))
        << name;
  }
}

TEST(IdentityTest, SeveralIdentitiesAreNone) {
  EXPECT_THAT(
      ParseIdentity({"east.island.r.causeway", "west.island.r.causeway"}),
      IsUnauthenticated("several identities"));
  EXPECT_THAT(ParseIdentity({"east.island.r.causeway",
                             "spiffe://x/causeway/other/island/east"}),
              IsUnauthenticated("several identities"));
}

TEST(IdentityTest, ErrorsAreShortAndPrintable) {
  const std::vector<std::string> names(1000, std::string(1000, '\x1b'));
  const absl::Status status = ParseIdentity(names).status();
  EXPECT_THAT(
      std::string(status.message()),
      AllOf(HasSubstr("\\x1b"), HasSubstr("..."), Not(HasSubstr("\x1b"))));
  EXPECT_LT(status.message().size(), 3000);
}

}  // namespace
}  // namespace causeway
