// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/os/file.h"
#include "common/testing/status_matchers.h"
#include "common/transport/credentials.h"
#include "common/transport/testing/certificates.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

TEST(CertificateExpiryTest, FollowsTheFile) {
  absl::Time now = absl::FromUnixSeconds(1'700'000'000);
  const Validity first = {now, now + absl::Hours(1)};
  const Validity second = {now, now + absl::Hours(2)};
  const std::string folder = testing::TempDir();
  TestAuthority authority(absl::StrCat(folder, "/authority"), second);
  const std::string path = absl::StrCat(folder, "/served.crt");
  const auto install = [&](const Validity& validity) {
    ASSERT_OK_AND_ASSIGN(const std::string pem,
                         ReadFile(authority.Sign("a", validity).certificate));
    ASSERT_OK(WriteFileAtomically(path, {absl::string_view(pem)}));
  };
  CertificateExpiry expiry(path, [&now] { return now; });
  EXPECT_EQ(expiry.Get(), absl::InfiniteFuture());
  install(first);
  now += absl::Seconds(10);
  EXPECT_EQ(expiry.Get(), first.until);
  install(second);
  EXPECT_EQ(expiry.Get(), first.until);
  now += absl::Seconds(10);
  EXPECT_EQ(expiry.Get(), second.until);
}

TEST(CertificateExpiryTest, WithoutACertificateNothingExpires) {
  CertificateExpiry expiry("", nullptr);
  EXPECT_EQ(expiry.Get(), absl::InfiniteFuture());
}

}  // namespace
}  // namespace causeway
