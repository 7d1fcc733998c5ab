// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/sync/link_rate.h"

#include <optional>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

TEST(LinkRateTest, IsANumberOrAuto) {
  LinkRate rate;
  EXPECT_EQ(rate.bytes_per_second(), 0);
  std::string error;
  for (const char* const text : {"0", "0.2", "190", "auto"}) {
    EXPECT_TRUE(AbslParseFlag(text, &rate, &error)) << text;
    EXPECT_EQ(AbslUnparseFlag(rate), text);
  }
  EXPECT_EQ(rate.bytes_per_second(), std::nullopt);
  EXPECT_TRUE(AbslParseFlag("8", &rate, &error));
  EXPECT_EQ(rate.bytes_per_second(), 1e6);
}

TEST(LinkRateTest, WhatCannotBeIsRefused) {
  LinkRate rate;
  for (const char* const text :
       {"", "0.1", "-1", "nan", "inf", "10M", "measured"}) {
    std::string error;
    EXPECT_FALSE(AbslParseFlag(text, &rate, &error)) << text;
    EXPECT_THAT(error, testing::HasSubstr("auto"));
    EXPECT_EQ(rate.bytes_per_second(), 0);
  }
}

}  // namespace
}  // namespace causeway
