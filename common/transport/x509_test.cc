// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/transport/x509.h"

#include <string>
#include <vector>

#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

using absl::StatusCode;
using testing::ElementsAre;

// `openssl req -newkey rsa:2048` made it.
constexpr char kRsaRequest[] = R"(-----BEGIN CERTIFICATE REQUEST-----
MIICUTCCATkCAQAwDDEKMAgGA1UEAwwBeDCCASIwDQYJKoZIhvcNAQEBBQADggEP
ADCCAQoCggEBALoJtXpOHbqhlJbg8Ko3AFvhT7+BeKMufmJkX8MlFiWQTyxoOCS0
fAMnbaO9fwl13Uo3hzvYna6RR1FQCOPGcRbHV78Iky51HUpN9aBm0qe6WQu7BVgK
HxALQYKgjNi7ik8WX5o1/IAw+ynkbql1ihGhcn/5Otha8Mw0NKWNgJx0IQs+mRJO
X2zjm3WwE/sc7oLGsVdRHI1jnbQTO8K2ljVH5dX6Cn13h9y61kBT8zQquKarg5kD
Z903d4xnYkMjkwecItF2EVfYdoQTYgeJ89ppqqsSogX6N0Ra0HIH7aY7MDmOsxad
E08QIdIOz6x8v0Mm+VZWHmlU8d5dsHfXNWkCAwEAAaAAMA0GCSqGSIb3DQEBCwUA
A4IBAQBH7G8AFrNw3cdzg1uKSMe1kBKtdu0qaS+VM24L93mosOaeMY1tGjQU9iHV
ORQrVk93+lxEczQLnWqaj5Il9sdzCyzcBDaUK6IuyoXH2UCr2IpTLOQxlN3irfO8
lajozsSiPMUGEVYBgbALBi7Xev51xJtKkCRquKTpAARhHQzfIHAwhAjlZ1U/PdN4
S7yZ7SgbodAyjddwcguDZeYbo+0BzG4J1QMGfElbOe/A6EmYEZbiR7Y4cI9+zI2l
9R3Si27Uo7Eb7LfOUZMmOMrXJuYxwCJoEDvdakMIyepolNeW+95ANn+veL9pWNow
UAy3QTtqQztltTSjabCm3Air8RM3
-----END CERTIFICATE REQUEST-----
)";

class X509Test : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(issuer_.key, MakeKey());
    ASSERT_OK_AND_ASSIGN(issuer_.certificate,
                         Certify({.use = CertificateUse::kAuthority,
                                  .subject = "an authority",
                                  .serial = "\x01",
                                  .valid_from = from_,
                                  .valid_until = until_},
                                 *issuer_.key));
    ASSERT_OK_AND_ASSIGN(key_, MakeKey());
  }

  // Returns a certificate for key_.
  Certificate Issue(CertificateUse use) {
    absl::StatusOr<Certificate> issued =
        Certify({.use = use,
                 .subject = "somebody",
                 .serial = "\x5a\x01\xff",
                 .valid_from = from_,
                 .valid_until = until_,
                 .names = {"spiffe://d/x", "host.example,DNS:evil"}},
                *key_, issuer_);
    EXPECT_OK(issued);
    return *std::move(issued);
  }

  const absl::Time from_ = absl::FromUnixSeconds(1'800'000'000);
  const absl::Time until_ = from_ + absl::Hours(3);
  Issuer issuer_;
  PrivateKey key_;
};

TEST_F(X509Test, ACertificateSaysWhatItWasMadeWith) {
  const Certificate made = Issue(CertificateUse::kClient);
  ASSERT_OK_AND_ASSIGN(const std::vector<Certificate> read,
                       ParseCertificates(CertificatePem(*made)));
  ASSERT_EQ(read.size(), 1);
  const CertificateFacts facts = FactsOf(*read[0]);
  EXPECT_EQ(facts.serial, "5a01ff");
  EXPECT_EQ(facts.valid_from, from_);
  EXPECT_EQ(facts.valid_until, until_);
  // A comma in a name does not split it.
  EXPECT_THAT(facts.names,
              ElementsAre("spiffe://d/x", "host.example,DNS:evil"));
  EXPECT_EQ(RenewalTime(facts), from_ + absl::Hours(2));
  EXPECT_TRUE(BelongTogether(*read[0], *key_));
  EXPECT_FALSE(BelongTogether(*read[0], *issuer_.key));
}

TEST_F(X509Test, AKeySurvivesItsFile) {
  ASSERT_OK_AND_ASSIGN(const PrivateKey read, ParseKey(KeyPem(*key_)));
  EXPECT_EQ(KeyDigest(*read), KeyDigest(*key_));
  EXPECT_NE(KeyDigest(*read), KeyDigest(*issuer_.key));
  EXPECT_THAT(ParseKey("junk"), IsInvalidArgument());
}

TEST_F(X509Test, ARequestProvesItsKey) {
  ASSERT_OK_AND_ASSIGN(const std::string request, MakeRequest(*key_));
  ASSERT_OK_AND_ASSIGN(const PublicKey key, RequestedKey(request));
  EXPECT_EQ(KeyDigest(*key), KeyDigest(*key_));

  EXPECT_THAT(RequestedKey("junk"), IsInvalidArgument());
  // One bit of the signature, which is at the end.
  std::string forged = request;
  const size_t end = forged.find("\n-----END");
  forged[end - 8] = forged[end - 8] == 'A' ? 'B' : 'A';
  EXPECT_THAT(RequestedKey(forged), IsInvalidArgument());
  EXPECT_THAT(RequestedKey(kRsaRequest), IsInvalidArgument("P-256"));
}

TEST_F(X509Test, OnlyAServerOfTheAuthorityIsOne) {
  X509& authority = *issuer_.certificate;
  const absl::Time now = from_ + absl::Hours(1);
  const Certificate server = Issue(CertificateUse::kServer);
  EXPECT_OK(CheckServer(*server, authority, now));
  EXPECT_THAT(CheckServer(*Issue(CertificateUse::kClient), authority, now),
              IsUnauthenticated());
  for (const absl::Time time :
       {from_ - absl::Seconds(1), until_ + absl::Seconds(1)}) {
    EXPECT_THAT(CheckServer(*server, authority, time), IsUnauthenticated());
  }
  // Another authority of the same name.
  ASSERT_OK_AND_ASSIGN(const PrivateKey other_key, MakeKey());
  ASSERT_OK_AND_ASSIGN(const Certificate other,
                       Certify({.subject = "an authority",
                                .serial = "\x01",
                                .valid_from = from_,
                                .valid_until = until_},
                               *other_key));
  EXPECT_THAT(CheckServer(*server, *other, now), IsUnauthenticated());
}

TEST_F(X509Test, ACertificateHasItsTime) {
  EXPECT_OK(CheckTime(*issuer_.certificate, "c", until_));
  EXPECT_THAT(CheckTime(*issuer_.certificate, "c", until_ + absl::Seconds(1)),
              StatusIs(StatusCode::kFailedPrecondition,
                       "the certificate c has expired"));
  EXPECT_THAT(CheckTime(*issuer_.certificate, "c", from_ - absl::Seconds(1)),
              IsFailedPrecondition());
}

}  // namespace
}  // namespace causeway
