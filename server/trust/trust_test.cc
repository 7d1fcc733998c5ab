// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/trust/trust.h"

#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/os/file.h"
#include "common/proto_time.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temporary_directory.h"
#include "common/transport/identity.h"
#include "common/transport/join_token.h"
#include "common/transport/x509.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/rules/quiet_count.h"

namespace {

// Syncs wait while `disk_stands_still` is true; `waiting_syncs` counts them.
std::atomic<bool> disk_stands_still = false;
std::atomic<int> waiting_syncs = 0;
// While it is true, files cannot be written.
std::atomic<bool> disk_is_full = false;

}  // namespace

// The program's calls of fsync(2) come here.
extern "C" int fsync(int descriptor) {
  ++waiting_syncs;
  waiting_syncs.notify_all();
  disk_stands_still.wait(true);
  --waiting_syncs;
  struct stat file = {};
  if (disk_is_full && fstat(descriptor, &file) == 0 && S_ISREG(file.st_mode)) {
    errno = ENOSPC;
    return -1;
  }
  return static_cast<int>(syscall(SYS_fsync, descriptor));
}

namespace causeway {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

class TrustTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(auto made, TemporaryDirectory::Make("trust"));
    directory_ = std::make_unique<TemporaryDirectory>(std::move(made));
    ASSERT_OK_AND_ASSIGN(key_, MakeKey());
    ASSERT_OK(Start());
  }

  // Starts, or starts again.
  absl::Status Start() {
    trust_.reset();
    auto opened = Trust::Open({.folder = Folder(),
                               .run = "r",
                               .certificate_life = absl::Hours(3),
                               .now = [this] { return now_; },
                               .record =
                                   [this](const CoordinatorEvent& event) {
                                     events_.push_back(absl::StrCat(
                                         event.kind, " ", event.island_id));
                                     texts_.push_back(event.text);
                                   },
                               .revoked =
                                   [this](v1::RevokedCertificates revoked) {
                                     revoked_ = std::move(revoked);
                                   },
                               .kept = kept_});
    if (opened.ok()) trust_ = *std::move(opened);
    return opened.status();
  }
  std::string Folder() const {
    return absl::StrCat(directory_->path(), "/tls");
  }
  std::string Path(absl::string_view name) const {
    return absl::StrCat(Folder(), "/", name);
  }

  // Makes a token for island a.
  JoinToken Token(uint32_t uses = 1, absl::Duration ttl = absl::Hours(1)) {
    v1::CreateTokenRequest request;
    request.set_role("island");
    request.set_name("a");
    request.set_uses(uses);
    request.mutable_ttl()->set_seconds(absl::ToInt64Seconds(ttl));
    const auto made = trust_->CreateToken(request, "operator o");
    EXPECT_OK(made);
    return *ParseJoinToken(made->join_token());
  }

  absl::StatusOr<v1::EnrolResponse> Enrol(const JoinToken& token, EVP_PKEY& key,
                                          const std::string& from = "1.2.3.4",
                                          const std::string& island = "") {
    v1::EnrolRequest request;
    request.set_island_id(island);
    request.set_token_id(token.id);
    request.set_secret(token.secret);
    request.set_certificate_request(*MakeRequest(key));
    return trust_->Enrol(request, from);
  }
  // Enrols, and returns the certificate's contents.
  CertificateFacts Enrolled(const JoinToken& token, EVP_PKEY& key) {
    const auto response = Enrol(token, key);
    EXPECT_OK(response);
    return FactsOf(*ParseCertificates(response->certificate())->front());
  }
  static PrivateKey NewKey() { return *MakeKey(); }

  absl::Time now_ = absl::FromUnixSeconds(1'800'000'000);
  std::unique_ptr<TemporaryDirectory> directory_;
  std::vector<std::string> events_;
  std::vector<std::string> texts_;
  v1::RevokedCertificates revoked_;
  v1::RevokedCertificates kept_;
  PrivateKey key_;
  std::unique_ptr<Trust> trust_;
};

TEST_F(TrustTest, ATokenGetsTheCertificateThatItSays) {
  const CertificateFacts facts = Enrolled(Token(), *key_);
  ASSERT_OK_AND_ASSIGN(const Identity identity, ParseIdentity(facts.names));
  EXPECT_EQ(identity, (Identity{Role::kIsland, "r", "a"}));
  EXPECT_EQ(facts.valid_until, now_ + absl::Hours(3));
  EXPECT_OK(trust_->Check(facts.serial));
  EXPECT_THAT(events_, ElementsAre("token_created a", "enrolled a"));
  // Its pin is of the authority that has signed.
  const auto authority = ParseCertificates(*ReadFile(Path("ca.crt")));
  EXPECT_EQ(X509_verify(ParseCertificates(Enrol(Token(), *key_)->certificate())
                            ->front()
                            .get(),
                        X509_get0_pubkey(authority->front().get())),
            1);
  EXPECT_EQ(KeyDigest(*X509_get0_pubkey(authority->front().get())),
            Token().pin);
}

TEST_F(TrustTest, ATokenServesOnceButForTheSameKey) {
  const JoinToken token = Token();
  const CertificateFacts first = Enrolled(token, *key_);
  const CertificateFacts again = Enrolled(token, *key_);
  EXPECT_EQ(first.serial.substr(0, 16), again.serial.substr(0, 16));
  EXPECT_NE(first.serial, again.serial);
  EXPECT_THAT(Enrol(token, *NewKey()), IsUnauthenticated("used up"));
  // A restart changes none of this, but a revocation does.
  ASSERT_OK(Start());
  EXPECT_THAT(Enrol(token, *NewKey()), IsUnauthenticated());
  EXPECT_OK(Enrol(token, *key_));
  v1::RevokeCertificateRequest revoke;
  revoke.set_id(first.serial.substr(0, 16));
  ASSERT_OK(trust_->RevokeCertificate(revoke, "operator o"));
  EXPECT_THAT(Enrol(token, *key_), IsUnauthenticated());

  const JoinToken twice = Token(2);
  EXPECT_OK(Enrol(twice, *NewKey()));
  EXPECT_OK(Enrol(twice, *NewKey()));
  EXPECT_THAT(Enrol(twice, *NewKey()), IsUnauthenticated());
}

TEST_F(TrustTest, AnIslandDoesNotUseUpTheTokenOfAnother) {
  const JoinToken token = Token();
  EXPECT_THAT(Enrol(token, *key_, "1.2.3.4", "b"),
              IsInvalidArgument("for island a, and not for island b"));
  EXPECT_EQ(trust_->ListTokens().tokens(0).uses_left(), 1);
  EXPECT_OK(Enrol(token, *key_, "1.2.3.4", "a"));
  v1::CreateTokenRequest request;
  request.set_role("operator");
  request.set_name("a");
  ASSERT_OK_AND_ASSIGN(const auto made, trust_->CreateToken(request, "o"));
  EXPECT_THAT(Enrol(*ParseJoinToken(made.join_token()), *key_, "1.2.3.4", "a"),
              IsInvalidArgument("for operator a, and not for island a"));
}

TEST_F(TrustTest, WrongTokensAreCountedAndRightOnesServeMeanwhile) {
  JoinToken forged = Token();
  forged.secret[15] ^= 1;
  for (int i = 0; i < AttemptLimiter::kMostFailures; ++i) {
    EXPECT_THAT(Enrol(forged, *key_), IsUnauthenticated());
  }
  EXPECT_THAT(Enrol(forged, *key_), IsResourceExhausted());
  EXPECT_OK(Enrol(Token(), *key_));
  EXPECT_THAT(Enrol(forged, *key_), IsResourceExhausted());
  EXPECT_THAT(Enrol(forged, *key_, "5.6.7.8"), IsUnauthenticated());
  now_ += absl::Minutes(1);
  for (int i = 0; i < AttemptLimiter::kMostFailures; ++i) {
    EXPECT_THAT(Enrol(forged, *key_), IsUnauthenticated());
  }
  EXPECT_THAT(Enrol(forged, *key_), IsResourceExhausted());
  // A clock that is put back does not keep a minute from ending.
  now_ -= absl::Hours(1);
  EXPECT_THAT(Enrol(forged, *key_), IsUnauthenticated());
}

TEST_F(TrustTest, ARefusedEnrolmentIsAnEventAndStrangersDoNotFloodTheLog) {
  const JoinToken token = Token();
  JoinToken forged = token;
  forged.secret[15] ^= 1;
  for (int i = 0; i < 20; ++i) {
    EXPECT_FALSE(Enrol(forged, *key_, absl::StrCat("6.6.6.", i)).ok());
  }
  EXPECT_THAT(events_, ElementsAre("token_created a", "enrolment_refused "));
  EXPECT_THAT(texts_.back(),
              StartsWith("an enrolment from 6.6.6.0 is refused: there is no"));
  // Strangers do not suppress events about an island with a token.
  EXPECT_OK(Enrol(token, *key_));
  EXPECT_FALSE(Enrol(token, *NewKey()).ok());
  EXPECT_EQ(events_.back(), "enrolment_refused a");
  EXPECT_THAT(texts_.back(),
              AllOf(HasSubstr("from 1.2.3.4 with token"), HasSubstr(token.id),
                    HasSubstr("of island a is refused: the token is used up")));
  EXPECT_FALSE(Enrol(token, *NewKey()).ok());
  EXPECT_EQ(events_.size(), 4);
  now_ += QuietCount::kQuiet;
  EXPECT_FALSE(Enrol(forged, *key_).ok());
  EXPECT_EQ(events_.size(), 5);
  EXPECT_THAT(texts_.back(), EndsWith("; so were 19 before it"));
  now_ -= absl::Hours(1);
  EXPECT_FALSE(Enrol(forged, *key_).ok());
  EXPECT_EQ(events_.size(), 6) << "the clock was put back";
}

TEST_F(TrustTest, ATokenHasATimeAndCanBeRevoked) {
  const JoinToken late = Token();
  now_ += absl::Hours(1);
  EXPECT_THAT(Enrol(late, *key_), IsUnauthenticated());
  const JoinToken token = Token();
  ASSERT_EQ(trust_->ListTokens().tokens_size(), 1);
  EXPECT_EQ(trust_->ListTokens().tokens(0).id(), token.id);
  v1::RevokeTokenRequest revoke;
  revoke.set_id(token.id);
  EXPECT_OK(trust_->RevokeToken(revoke, "operator o"));
  EXPECT_THAT(trust_->RevokeToken(revoke, "operator o"), IsNotFound());
  EXPECT_EQ(trust_->ListTokens().tokens_size(), 0);
  EXPECT_THAT(Enrol(token, *key_), IsUnauthenticated());
}

TEST_F(TrustTest, WithoutADiskNoTokenIsMadeAndARevocationIsDoneAgain) {
  const JoinToken token = Token();
  v1::RevokeTokenRequest revoke;
  revoke.set_id(token.id);
  v1::CreateTokenRequest create;
  create.set_role("viewer");
  create.set_name("v");
  const std::string away = Folder() + "_away";
  std::filesystem::rename(Folder(), away);
  EXPECT_FALSE(trust_->RevokeToken(revoke, "operator o").ok());
  EXPECT_FALSE(trust_->CreateToken(create, "operator o").ok());
  std::filesystem::rename(away, Folder());
  EXPECT_THAT(Enrol(token, *key_), IsUnauthenticated("used up"));
  EXPECT_EQ(trust_->ListTokens().tokens_size(), 0);
  EXPECT_OK(trust_->RevokeToken(revoke, "operator o"));
  ASSERT_OK(Start());
  EXPECT_THAT(Enrol(token, *key_), IsUnauthenticated("no such token"));
  v1::TrustRecords records;
  ASSERT_TRUE(records.ParseFromString(*ReadFile(Path("records"))));
  EXPECT_EQ(records.tokens_size(), 0);
}

TEST_F(TrustTest, ADiskThatStandsStillDelaysNoCheck) {
  const CertificateFacts facts = Enrolled(Token(), *key_);
  v1::RenewRequest request;
  request.set_certificate_request(*MakeRequest(*key_));
  disk_stands_still = true;
  std::thread renewal([&] { EXPECT_OK(trust_->Renew(request, facts.serial)); });
  waiting_syncs.wait(0);
  EXPECT_OK(trust_->Check(facts.serial));
  EXPECT_EQ(trust_->ListCertificates().certificates_size(), 2);
  trust_->Tend();
  disk_stands_still = false;
  disk_stands_still.notify_all();
  renewal.join();
}

TEST_F(TrustTest, ARevocationDoesNotWaitForTheDisk) {
  const CertificateFacts facts = Enrolled(Token(), *key_);
  v1::RevokeCertificateRequest revoke;
  revoke.set_id(facts.serial.substr(0, 16));
  disk_stands_still = true;
  std::thread revocation(
      [&] { EXPECT_OK(trust_->RevokeCertificate(revoke, "operator o")); });
  waiting_syncs.wait(0);
  EXPECT_THAT(trust_->Check(facts.serial), IsUnauthenticated("was revoked"));
  EXPECT_THAT(revoked_.ids(), ElementsAre(revoke.id()));
  disk_stands_still = false;
  disk_stands_still.notify_all();
  revocation.join();
}

TEST_F(TrustTest, RefusesTokensThatAreOutOfBounds) {
  const auto create = [&](const char* role, const char* name, int64_t seconds,
                          uint32_t uses) {
    v1::CreateTokenRequest request;
    request.set_role(role);
    request.set_name(name);
    request.mutable_ttl()->set_seconds(seconds);
    request.set_uses(uses);
    return trust_->CreateToken(request, "operator o").status();
  };
  EXPECT_OK(create("viewer", "v", 60, 1000));
  for (const absl::Status& refused :
       {create("root", "a", 60, 1), create("island", "", 60, 1),
        create("island", "A", 60, 1), create("island", "a", 59, 1),
        create("island", "a", 2'592'001, 1),
        create("island", "a", INT64_MIN, 1), create("island", "a", 60, 1001)}) {
    EXPECT_THAT(refused, IsInvalidArgument());
  }
  v1::TrustRecords records;
  ASSERT_TRUE(records.ParseFromString(*ReadFile(Path("records"))));
  while (records.tokens_size() < Trust::kMostTokens - 1) {
    *records.add_tokens() = records.tokens(0);
  }
  ASSERT_OK(
      WriteSecretAtomically(Path("records"), records.SerializeAsString()));
  ASSERT_OK(Start());
  EXPECT_OK(create("island", "a", 60, 1));
  EXPECT_THAT(create("island", "a", 60, 1), IsResourceExhausted());
  // Expired ones make room.
  now_ += absl::Minutes(1);
  EXPECT_OK(create("island", "a", 60, 1));
}

TEST_F(TrustTest, AClockThatIsAheadForAWhileCostsNoToken) {
  const JoinToken token = Token();
  JoinToken forged = token;
  forged.secret[15] ^= 1;
  now_ += absl::Hours(24 * 365);
  EXPECT_THAT(Enrol(forged, *key_), IsUnauthenticated());
  EXPECT_THAT(Enrol(token, *key_), IsUnauthenticated("has expired"));
  EXPECT_EQ(trust_->ListTokens().tokens_size(), 0);
  const JoinToken other = Token();
  EXPECT_OK(Enrol(other, *key_));
  now_ -= absl::Hours(24 * 365);
  ASSERT_OK(Start());
  EXPECT_OK(Enrol(token, *NewKey()));
}

TEST_F(TrustTest, ACertificateIsRenewedUntilItIsRevoked) {
  const CertificateFacts first = Enrolled(Token(), *key_);
  now_ += absl::Hours(2);
  v1::RenewRequest request;
  request.set_certificate_request(*MakeRequest(*key_));
  ASSERT_OK_AND_ASSIGN(const v1::RenewResponse renewed,
                       trust_->Renew(request, first.serial));
  const CertificateFacts second =
      FactsOf(*ParseCertificates(renewed.certificate())->front());
  EXPECT_EQ(second.names, first.names);
  EXPECT_EQ(second.valid_until, now_ + absl::Hours(3));
  EXPECT_OK(trust_->Check(first.serial));
  EXPECT_OK(trust_->Check(second.serial));
  const v1::ListCertificatesResponse list = trust_->ListCertificates();
  ASSERT_EQ(list.certificates_size(), 2);
  EXPECT_EQ(list.certificates(0).name(), "local");
  EXPECT_EQ(list.certificates(1).name(), "a");
  EXPECT_EQ(ToTime(list.certificates(1).expires_at()), second.valid_until);

  ASSERT_OK_AND_ASSIGN(const std::string backup, ReadFile(Path("records")));
  v1::RevokeCertificateRequest revoke;
  revoke.set_id(list.certificates(1).id());
  ASSERT_OK(trust_->RevokeCertificate(revoke, "operator o"));
  EXPECT_THAT(revoked_.ids(), ElementsAre(revoke.id()));
  revoked_.Clear();
  ASSERT_OK(Start());
  EXPECT_THAT(revoked_.ids(), ElementsAre(revoke.id()));
  for (const std::string& serial : {first.serial, second.serial}) {
    EXPECT_THAT(trust_->Check(serial), IsUnauthenticated("was revoked"));
    EXPECT_THAT(trust_->Renew(request, serial), IsUnauthenticated());
  }
  EXPECT_THAT(trust_->Check(std::string(32, '7')),
              IsUnauthenticated("no record"));
  EXPECT_THAT(trust_->Check(""), IsUnauthenticated());

  // The backup does not know of the revocation, but a former follower does.
  kept_ = revoked_;
  kept_.add_ids("another");
  ASSERT_OK(WriteFileAtomically(Path("records"), {absl::string_view(backup)}));
  ASSERT_OK(Start());
  EXPECT_THAT(trust_->Check(second.serial), IsUnauthenticated("was revoked"));
  EXPECT_THAT(revoked_.ids(), ElementsAre(revoke.id(), "another"));
}

TEST_F(TrustTest, ARenewalKeepsTheKey) {
  const std::string serial = Enrolled(Token(), *key_).serial;
  v1::RenewRequest request;
  request.set_certificate_request(*MakeRequest(*NewKey()));
  EXPECT_THAT(trust_->Renew(request, serial),
              IsInvalidArgument("a renewal must keep the key"));
  request.set_certificate_request(*MakeRequest(*key_));
  ASSERT_OK(Start());
  EXPECT_OK(trust_->Renew(request, serial));
  // The operator of this machine has enrolled with no token.
  const std::string own =
      FactsOf(*ParseCertificates(*ReadFile(Path("operator/tls.crt")))->front())
          .serial;
  EXPECT_THAT(trust_->Renew(request, own), IsInvalidArgument());
  const PrivateKey own_key = *ParseKey(*ReadFile(Path("operator/tls.key")));
  request.set_certificate_request(*MakeRequest(*own_key));
  EXPECT_OK(trust_->Renew(request, own));
}

TEST_F(TrustTest, ARevocationEndsTheTokenThatGaveTheCertificate) {
  const JoinToken token = Token(5);
  const PrivateKey second_key = NewKey();
  const std::string first = Enrolled(token, *key_).serial;
  const std::string second = Enrolled(token, *second_key).serial;
  const JoinToken other = Token(5);
  v1::RevokeCertificateRequest revoke;
  revoke.set_id(first.substr(0, 16));
  ASSERT_OK(trust_->RevokeCertificate(revoke, "operator o"));
  EXPECT_THAT(Enrol(token, *key_), IsUnauthenticated());
  EXPECT_THAT(Enrol(token, *NewKey()), IsUnauthenticated("used up"));
  ASSERT_OK(Start());
  EXPECT_THAT(Enrol(token, *NewKey()), IsUnauthenticated());
  // Its other holder, and other tokens, are not affected.
  EXPECT_OK(trust_->Check(second));
  EXPECT_OK(Enrol(token, *second_key));
  EXPECT_OK(Enrol(other, *key_));
}

TEST_F(TrustTest, ExpiredCertificatesMakeRoom) {
  const JoinToken late = Token(1, absl::Hours(72));
  const std::string first = Enrolled(Token(), *key_).serial;
  now_ += absl::Hours(3);
  EXPECT_EQ(trust_->ListCertificates().certificates_size(), 1);
  EXPECT_OK(trust_->Check(first));
  now_ += absl::Hours(25);
  const std::string second = Enrolled(late, *NewKey()).serial;
  EXPECT_OK(trust_->Check(first)) << "the clock may be wrong";
  EXPECT_OK(trust_->Check(second));
  const v1::ListCertificatesResponse list = trust_->ListCertificates();
  ASSERT_EQ(list.certificates_size(), 2);
  EXPECT_EQ(list.certificates(1).id(), second.substr(0, 16));

  v1::TrustRecords records;
  ASSERT_TRUE(records.ParseFromString(*ReadFile(Path("records"))));
  while (records.certificates_size() < Trust::kMostCertificates) {
    *records.add_certificates() = records.certificates(2);
  }
  ASSERT_EQ(records.certificates(2).certificate().id(), second.substr(0, 16));
  ASSERT_OK(
      WriteSecretAtomically(Path("records"), records.SerializeAsString()));
  ASSERT_OK(Start());
  const std::string third = Enrolled(Token(), *NewKey()).serial;
  EXPECT_THAT(trust_->Check(first), IsUnauthenticated("no record"));
  EXPECT_OK(trust_->Check(second));
  EXPECT_OK(trust_->Check(third));
  EXPECT_THAT(Enrol(Token(), *NewKey()), IsResourceExhausted());
}

TEST_F(TrustTest, OnlyHashesOfSecretsAreKeptAndOnlyTheOwnerReads) {
  const JoinToken token = Token();
  const std::string records = *ReadFile(Path("records"));
  EXPECT_TRUE(absl::StrContains(records, token.id));
  EXPECT_FALSE(absl::StrContains(records, token.secret));
  EXPECT_FALSE(
      absl::StrContains(records, absl::WebSafeBase64Escape(token.secret)));
  const auto mode = [](const std::string& path) {
    struct stat entry = {};
    EXPECT_EQ(stat(path.c_str(), &entry), 0) << path;
    return entry.st_mode & 0777;
  };
  EXPECT_EQ(mode(Folder()), 0700);
  EXPECT_EQ(mode(Path("operator")), 0700);
  for (const char* name :
       {"ca.key", "coordinator.key", "operator/tls.key", "records"}) {
    EXPECT_EQ(mode(Path(name)), 0600) << name;
  }
}

TEST_F(TrustTest, TheOwnCertificatesAreRenewed) {
  const auto end_of = [&](const char* name) {
    return FactsOf(*ParseCertificates(*ReadFile(Path(name)))->front())
        .valid_until;
  };
  for (const char* name : {"coordinator.crt", "operator/tls.crt"}) {
    EXPECT_EQ(end_of(name), now_ + Trust::kOwnLife);
  }
  const absl::Time first = end_of("coordinator.crt");
  now_ += Trust::kOwnLife * 2 / 3 - absl::Seconds(1);
  trust_->Tend();
  EXPECT_EQ(end_of("coordinator.crt"), first);
  now_ += absl::Seconds(2);
  trust_->Tend();
  for (const char* name : {"coordinator.crt", "operator/tls.crt"}) {
    EXPECT_EQ(end_of(name), now_ + Trust::kOwnLife);
  }
  // One operator, however often it is renewed.
  ASSERT_OK(Start());
  EXPECT_EQ(trust_->ListCertificates().certificates_size(), 1);
}

TEST_F(TrustTest, AStartOnAFullDiskUsesTheCertificatesThatAreThere) {
  const std::string serial = Enrolled(Token(), *key_).serial;
  const auto server = [&] { return *ReadFile(Path("coordinator.crt")); };
  const std::string before = server();
  disk_is_full = true;
  EXPECT_OK(Start());
  disk_is_full = false;
  EXPECT_EQ(server(), before);
  EXPECT_OK(trust_->Check(serial));
  now_ += absl::Minutes(2);
  trust_->Tend();
  EXPECT_NE(server(), before);
}

// A machine may begin in 1970, or years ahead, until it hears the time.
TEST_F(TrustTest, AClockThatIsWrongForAWhileLosesNothing) {
  const std::string serial = Enrolled(Token(), *key_).serial;
  const auto server = [&] {
    return FactsOf(
        *ParseCertificates(*ReadFile(Path("coordinator.crt")))->front());
  };
  const absl::Time truth = now_;
  for (const absl::Time wrong :
       {absl::FromUnixSeconds(100), truth + absl::Hours(24 * 3650)}) {
    for (const bool starts_wrong : {false, true}) {
      now_ = wrong;
      if (starts_wrong) {
        ASSERT_OK(Start());
      }
      trust_->Tend();
      EXPECT_GT(server().valid_until, truth);
      // Operators of this machine and strangers get through meanwhile.
      JoinToken forged = Token();
      forged.secret[15] ^= 1;
      EXPECT_FALSE(Enrol(forged, *key_).ok());
      now_ = truth;
      trust_->Tend();
      EXPECT_LE(server().valid_from, truth);
      EXPECT_GT(server().valid_until, truth + Trust::kOwnLife * 2 / 3);
      EXPECT_OK(trust_->Check(serial));
    }
  }
}

TEST_F(TrustTest, NoAuthorityIsMadeWhileTheClockIsWrong) {
  trust_.reset();
  std::filesystem::remove_all(Folder());
  const absl::Time truth = now_;
  now_ = absl::FromUnixSeconds(100);
  EXPECT_THAT(Start(), StatusIs(absl::StatusCode::kUnavailable,
                                HasSubstr("the system's clock says 1970")));
  now_ = truth;
  EXPECT_OK(Start());
}

TEST_F(TrustTest, ALostPartIsNotMadeAnew) {
  Enrolled(Token(), *key_);
  for (const char* lost : {"ca.key", "ca.crt", "records"}) {
    const std::string kept = *ReadFile(Path(lost));
    ASSERT_OK(RemoveFile(Path(lost)));
    EXPECT_FALSE(Start().ok()) << lost;
    EXPECT_THAT(ReadFile(Path(lost)), IsNotFound());
    ASSERT_OK(WriteSecretAtomically(Path(lost), "junk"));
    EXPECT_THAT(Start(), IsFailedPrecondition()) << lost;
    ASSERT_OK(WriteSecretAtomically(Path(lost), kept));
  }
  EXPECT_OK(Start());
  // The operator's folder has a copy of the authority's certificate.
  ASSERT_OK(RemoveFile(Path("ca.crt")));
  EXPECT_THAT(Start(), IsFailedPrecondition("copy " + Path("operator/ca.crt")));
  std::filesystem::copy_file(Path("operator/ca.crt"), Path("ca.crt"));
  EXPECT_OK(Start());
  // Only the key is left of the authority.
  for (const char* lost : {"ca.crt", "records"}) {
    ASSERT_OK(RemoveFile(Path(lost)));
    EXPECT_THAT(Start(), IsFailedPrecondition()) << lost;
  }
}

TEST_F(TrustTest, AnInterruptedFirstStartContinues) {
  trust_.reset();
  ASSERT_OK(WriteSecretAtomically(Path("records"), ""));
  ASSERT_OK(RemoveFile(Path("ca.crt")));
  EXPECT_OK(Start());
  EXPECT_OK(Enrol(Token(), *key_));
}

}  // namespace
}  // namespace causeway
