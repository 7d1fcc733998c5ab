// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/transport/join_token.h"

#include <string>

#include "absl/strings/str_replace.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

using testing::HasSubstr;
using testing::Not;

const JoinToken kToken = {.pin = std::string(32, '\xfb'),
                          .id = "0123456789ab",
                          .secret = std::string(16, '\xff')};

TEST(JoinTokenTest, IsOneWord) {
  const std::string text = FormatJoinToken(kToken);
  EXPECT_EQ(text,
            "causeway1.-_v7-_v7-_v7-_v7-_v7-_v7-_v7-_v7-_v7-_v7-_s."
            "0123456789ab._____________________w");
  ASSERT_OK_AND_ASSIGN(const JoinToken read, ParseJoinToken(text));
  EXPECT_EQ(read.pin, kToken.pin);
  EXPECT_EQ(read.id, kToken.id);
  EXPECT_EQ(read.secret, kToken.secret);
}

TEST(JoinTokenTest, RefusesEverythingElse) {
  const std::string text = FormatJoinToken(kToken);
  for (const std::string& wrong :
       {std::string(), std::string("causeway1..."), text.substr(1),
        text.substr(0, text.size() - 1), text + "A", text + " ", text + ".x",
        absl::StrReplaceAll(text, {{"causeway1", "causeway2"}}),
        absl::StrReplaceAll(text, {{"0123456789ab", "0123456789AB"}}),
        absl::StrReplaceAll(text, {{"0123456789ab", "0123456789a"}}),
        // Base64 ignores the last bits, which must be zeros, and spaces.
        absl::StrReplaceAll(text, {{"___w", "___x"}}),
        absl::StrReplaceAll(text, {{"causeway1.-", "causeway1. -"}})}) {
    EXPECT_THAT(ParseJoinToken(wrong),
                IsInvalidArgument(Not(HasSubstr("_v7-"))))
        << wrong;
  }
}

}  // namespace
}  // namespace causeway
