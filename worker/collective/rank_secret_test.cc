// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/collective/rank_secret.h"

#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

std::string Write(const std::string& text) {
  const std::string path = absl::StrCat(testing::TempDir(), "/secret");
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

TEST(RankSecretTest, IsWhatTheFileHas) {
  const std::string secret = std::string(16, '\0') + std::string(16, 'x');
  EXPECT_THAT(ReadRankSecret(Write(secret)), IsOkAndHolds(secret));
  EXPECT_THAT(ReadRankSecret(Write(secret + " \r\n")), IsOkAndHolds(secret));
}

TEST(RankSecretTest, MustBeLongAndReadable) {
  EXPECT_THAT(ReadRankSecret(Write(std::string(31, 'x') + "\n")),
              IsInvalidArgument("has 31 bytes; needed: 32"));
  EXPECT_THAT(ReadRankSecret("/no/such/file"), IsNotFound("/no/such"));
}

TEST(RankSecretTest, DependsOnAllOfTheSecret) {
  EXPECT_EQ(KeyOfSecret("secret"), KeyOfSecret("secret"));
  EXPECT_NE(KeyOfSecret("secret"), KeyOfSecret("secret."));
  EXPECT_NE(KeyOfSecret(std::string("a\0b", 3)),
            KeyOfSecret(std::string("a\0c", 3)));
  EXPECT_NE(RandomKey(), RandomKey());
}

}  // namespace
}  // namespace causeway
