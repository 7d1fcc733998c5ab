// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/transport/certificate_expiry.h"

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/os/file.h"
#include "common/testing/status_matchers.h"
#include "common/transport/testing/certificates.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class CertificateExpiryTest : public testing::Test {
 protected:
  void Install(const Validity& validity) {
    ASSERT_OK_AND_ASSIGN(const std::string pem,
                         ReadFile(authority_.Sign("a", validity).certificate));
    ASSERT_OK(WriteFileAtomically(path_, {absl::string_view(pem)}));
  }

  absl::Time now_ = absl::FromUnixSeconds(1'700'000'000);
  const std::string path_ = testing::TempDir() + "/served.crt";
  TestAuthority authority_{testing::TempDir() + "/authority",
                           {now_, now_ + absl::Hours(10'000)}};
  CertificateExpiry expiry_{path_, [this] { return now_; }};
};

TEST_F(CertificateExpiryTest, FollowsTheFile) {
  const Validity first = {now_, now_ + absl::Hours(1)};
  const Validity second = {now_, now_ + absl::Hours(2)};
  EXPECT_EQ(expiry_.Get(), absl::InfiniteFuture());
  Install(first);
  now_ += absl::Seconds(10);
  EXPECT_EQ(expiry_.Get(), first.until);
  Install(second);
  EXPECT_EQ(expiry_.Get(), first.until);
  now_ += absl::Seconds(10);
  EXPECT_EQ(expiry_.Get(), second.until);
  // A clock that is put back does not keep it from being read.
  Install(first);
  now_ -= absl::Seconds(1);
  EXPECT_EQ(expiry_.Get(), first.until);
}

TEST_F(CertificateExpiryTest, GivesNoticeInGoodTime) {
  EXPECT_THAT(expiry_.Check().text, IsEmpty());
  const absl::Time begin = now_;
  for (const auto& [life, before] :
       {std::pair(absl::Hours(24 * 365), absl::Hours(48)),
        std::pair(absl::Hours(10), absl::Hours(1))}) {
    now_ = begin;
    Install({begin, begin + life});
    now_ = begin + life - before - absl::Minutes(1);
    EXPECT_THAT(expiry_.Check().text, IsEmpty());
    now_ = begin + life - before;
    const CertificateExpiry::Notice notice = expiry_.Check();
    EXPECT_THAT(notice.text, AllOf(HasSubstr(path_), HasSubstr(" expires at "),
                                   HasSubstr("put a new one in its place")));
    EXPECT_FALSE(notice.has_expired);
    EXPECT_EQ(notice.since, now_);
    now_ = begin + life;
    EXPECT_THAT(expiry_.Check().text, HasSubstr(" expired at "));
    EXPECT_TRUE(expiry_.Check().has_expired);
  }
}

TEST_F(CertificateExpiryTest, TheWatchLogsIt) {
  Install({now_ - absl::Hours(2), now_ - absl::Hours(1)});
  testing::internal::CaptureStderr();
  std::make_unique<CertificateWatch>(&expiry_).reset();
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr(" expired at "));
  Install({now_, now_ + absl::Hours(9)});
  now_ += absl::Minutes(1);
  testing::internal::CaptureStderr();
  std::make_unique<CertificateWatch>(&expiry_).reset();
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              Not(HasSubstr("the certificate")));
}

TEST(NoCertificateTest, NothingExpires) {
  CertificateExpiry expiry("", nullptr);
  EXPECT_EQ(expiry.Get(), absl::InfiniteFuture());
  EXPECT_THAT(expiry.Check().text, IsEmpty());
}

}  // namespace
}  // namespace causeway
