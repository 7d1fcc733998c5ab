// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Tests enrolment and renewal against a coordinator with its own authority,
// over real TLS.
#include "common/transport/enrolment.h"

#include <memory>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "common/os/file.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temporary_directory.h"
#include "common/transport/credentials.h"
#include "common/transport/grpc_status.h"
#include "common/transport/identity.h"
#include "common/transport/join_token.h"
#include "common/transport/x509.h"
#include "gmock/gmock.h"
#include "grpcpp/grpcpp.h"
#include "grpcpp/impl/client_unary_call.h"
#include "gtest/gtest.h"
#include "proto/control.grpc.pb.h"
#include "proto/status.grpc.pb.h"
#include "proto/trust.grpc.pb.h"
#include "server/edge/access.h"
#include "server/edge/server.h"
#include "server/edge/testing/served_engine.h"
#include "server/trust/trust.h"

namespace causeway {
namespace {

using absl::StatusCode;

class EnrolmentTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(auto made, TemporaryDirectory::Make("enrolment"));
    directory_ = std::make_unique<TemporaryDirectory>(std::move(made));
    ASSERT_OK(driver_.Start(TestRunConfig()));
    ASSERT_OK_AND_ASSIGN(trust_, Trust::Open({.folder = Path("tls"),
                                              .run = TestRunConfig().name(),
                                              .now = absl::Now}));
    StartServer("127.0.0.1:0", trust_.get());
    address_ = driver_.address();
  }
  // `trust` serves enrolments and renewals, unless it is null.
  void StartServer(const std::string& address, Trust* trust) {
    ServerTlsFiles files = trust_->server_files();
    // A coordinator with --follow_tls demands a certificate of everyone.
    files.client_certificate_optional = trust != nullptr;
    ASSERT_OK_AND_ASSIGN(const auto credentials,
                         MakeServerCredentials(files, absl::Now()));
    ASSERT_OK(driver_.Serve({.address = address,
                             .now = absl::Now,
                             .wall_clock = absl::Now,
                             .credentials = credentials,
                             .client_certificates = true,
                             .check_certificate =
                                 [this](const ClientCertificate& certificate) {
                                   return trust_->Check(certificate.serial);
                                 },
                             .trust = trust}));
  }
  void TearDown() override { driver_.StopServing(); }

  std::string Path(absl::string_view name) const {
    return absl::StrCat(directory_->path(), "/", name);
  }

  std::string Token(const std::string& role) {
    v1::CreateTokenRequest request;
    request.set_role(role);
    request.set_name("a");
    const auto made = trust_->CreateToken(request, "operator o");
    EXPECT_OK(made);
    return made->join_token();
  }

  // Calls two methods with these files.
  absl::Status Watch(const ClientTlsFiles& files) {
    return Call(files, [](auto& channel, auto& context) {
      v1::RunStatus run;
      return v1::Status::NewStub(channel)->GetRun(&context, {}, &run);
    });
  }
  absl::Status Resume(const ClientTlsFiles& files) {
    return Call(files, [](auto& channel, auto& context) {
      v1::ResumeRunResponse response;
      return v1::Control::NewStub(channel)->ResumeRun(&context, {}, &response);
    });
  }
  template <typename Method>
  absl::Status Call(const ClientTlsFiles& files, Method method) {
    const auto credentials = MakeChannelCredentials(files, absl::Now());
    if (!credentials.ok()) return credentials.status();
    const auto channel = grpc::CreateChannel(address_, *credentials);
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(20)));
    return FromGrpcStatus(method(channel, context));
  }

  std::unique_ptr<TemporaryDirectory> directory_;
  ServedEngine driver_;
  std::unique_ptr<Trust> trust_;
  std::string address_;
};

TEST_F(EnrolmentTest, GivesTheRoleOfTheToken) {
  for (const char* role : {"island", "operator", "viewer"}) {
    const std::string folder = Path(role);
    ASSERT_OK(Enrol(address_, Token(role), folder, absl::Now()));
    ASSERT_OK_AND_ASSIGN(const Identity identity,
                         FolderIdentity(folder, absl::Now()));
    EXPECT_EQ(RoleName(identity.role), role);
    EXPECT_OK(Watch({.tls = folder}));
    EXPECT_EQ(Resume({.tls = folder}).code(),
              role == std::string("operator") ? StatusCode::kOk
                                              : StatusCode::kPermissionDenied);
  }
  // The coordinator's machine has an operator's folder.
  EXPECT_OK(Resume({.tls = Path("tls/operator")}));
}

TEST_F(EnrolmentTest, EveryCellOfTheTrustService) {
  const auto& service = *v1::EnrolRequest::descriptor()->file()->service(0);
  for (const char* role : {"island", "operator", "viewer"}) {
    ASSERT_OK(Enrol(address_, Token(role), Path(role), absl::Now()));
    for (int i = 0; i < service.method_count(); ++i) {
      const std::string& name = service.method(i)->name();
      const absl::Status status =
          Call({.tls = Path(role)}, [&](auto& channel, auto& context) {
            // All empty messages are alike.
            v1::ListTokensRequest request;
            v1::ListTokensResponse response;
            const std::string path =
                absl::StrCat("/", service.full_name(), "/", name);
            return grpc::internal::BlockingUnaryCall(
                channel.get(),
                grpc::internal::RpcMethod(
                    path.c_str(), grpc::internal::RpcMethod::NORMAL_RPC),
                &context, request, &response);
          });
      EXPECT_EQ(
          status.code() != StatusCode::kPermissionDenied,
          role == std::string("operator") || name == "Enrol" || name == "Renew")
          << role << " calls " << name << ": " << status;
    }
  }
}

TEST_F(EnrolmentTest, WithoutACertificateOnlyEnrolIsServed) {
  // The coordinator's certificate names no host.
  EXPECT_THAT(Watch({.tls_ca = Path("tls/ca.crt")}), IsUnavailable());
  const auto anonymous = [&](auto method) {
    grpc::SslCredentialsOptions options;
    options.pem_root_certs = *ReadFile(Path("tls/ca.crt"));
    grpc::ChannelArguments arguments;
    arguments.SetSslTargetNameOverride(
        FormatDns({Role::kCoordinator, TestRunConfig().name(), "coordinator"}));
    const auto stub = v1::Trust::NewStub(grpc::CreateCustomChannel(
        address_, grpc::SslCredentials(options), arguments));
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(20)));
    return FromGrpcStatus(method(*stub, context));
  };
  EXPECT_THAT(anonymous([](auto& stub, auto& context) {
                v1::RenewResponse response;
                return stub.Renew(&context, {}, &response);
              }),
              IsUnauthenticated());
  EXPECT_THAT(anonymous([](auto& stub, auto& context) {
                v1::CreateTokenResponse response;
                return stub.CreateToken(&context, {}, &response);
              }),
              IsUnauthenticated());
  EXPECT_THAT(anonymous([](auto& stub, auto& context) {
                v1::EnrolResponse response;
                return stub.Enrol(&context, {}, &response);
              }),
              IsUnauthenticated("no such"));
}

TEST_F(EnrolmentTest, AnotherAuthorityIsNotTrusted) {
  ASSERT_OK_AND_ASSIGN(JoinToken token, ParseJoinToken(Token("island")));
  const JoinToken good = token;
  token.pin[0] ^= 1;
  EXPECT_THAT(Enrol(address_, FormatJoinToken(token), Path("a"), absl::Now()),
              IsUnauthenticated("another key"));
  EXPECT_THAT(ReadFile(Path("a/ca.crt")), IsNotFound());
  // Nothing was sent to it.
  EXPECT_EQ(trust_->ListTokens().tokens(0).uses_left(), 1);
  EXPECT_OK(Enrol(address_, FormatJoinToken(good), Path("a"), absl::Now()));
}

TEST_F(EnrolmentTest, AnAnswerThatGotLostIsGivenAgain) {
  const std::string token = Token("island");
  ASSERT_OK(Enrol(address_, token, Path("a"), absl::Now()));
  ASSERT_OK(RemoveFile(Path("a/tls.crt")));
  EXPECT_OK(Enrol(address_, token, Path("a"), absl::Now()));
  EXPECT_OK(Watch({.tls = Path("a")}));
  EXPECT_THAT(Enrol(address_, token, Path("b"), absl::Now()),
              IsUnauthenticated("used up"));
}

TEST_F(EnrolmentTest, OneOfSeveralAddressesHasTheCoordinator) {
  ASSERT_OK_AND_ASSIGN(const auto other,
                       Trust::Open({.folder = Path("other"),
                                    .run = TestRunConfig().name(),
                                    .now = absl::Now}));
  ASSERT_OK_AND_ASSIGN(
      const auto credentials,
      MakeServerCredentials(other->server_files(), absl::Now()));
  ASSERT_OK_AND_ASSIGN(auto impostor,
                       CoordinatorServer::Start(&driver_.engine(),
                                                {.address = "127.0.0.1:0",
                                                 .now = absl::Now,
                                                 .wall_clock = absl::Now,
                                                 .credentials = credentials,
                                                 .client_certificates = true}));
  const std::string list =
      absl::StrCat("127.0.0.1:1,127.0.0.1:", impostor->port(), ",", address_);
  ASSERT_OK(Enrol(list, Token("island"), Path("a"), absl::Now()));
  EXPECT_OK(Renew(list, Path("a"), absl::Now()));
  EXPECT_OK(Watch({.tls = Path("a")}));
  address_ = list.substr(0, list.rfind(','));
  EXPECT_THAT(Enrol(address_, Token("island"), Path("b"), absl::Now()),
              IsUnauthenticated("another key"));
}

// Islands behind one router have one address.
TEST_F(EnrolmentTest, WrongTokensDoNotLockOutANeighbour) {
  ASSERT_OK_AND_ASSIGN(JoinToken forged, ParseJoinToken(Token("island")));
  forged.secret[0] ^= 1;
  const auto forge = [&] {
    return Enrol(address_, FormatJoinToken(forged), Path("b"), absl::Now());
  };
  EXPECT_THAT(forge(), IsUnauthenticated());
  while (absl::IsUnauthenticated(forge())) {
  }
  EXPECT_THAT(forge(), IsResourceExhausted("this token is wrong"));
  EXPECT_OK(Enrol(address_, Token("island"), Path("a"), absl::Now()));
  EXPECT_OK(Watch({.tls = Path("a")}));
}

TEST_F(EnrolmentTest, ARenewalForAnotherKeyIsRefused) {
  ASSERT_OK(Enrol(address_, Token("island"), Path("a"), absl::Now()));
  const PrivateKey other = *MakeKey();
  EXPECT_THAT(Call({.tls = Path("a")},
                   [&](auto& channel, auto& context) {
                     v1::RenewRequest request;
                     request.set_certificate_request(*MakeRequest(*other));
                     v1::RenewResponse response;
                     return v1::Trust::NewStub(channel)->Renew(
                         &context, request, &response);
                   }),
              IsInvalidArgument("a renewal must keep the key"));
  EXPECT_OK(Renew(address_, Path("a"), absl::Now()));
  EXPECT_OK(Renew(address_, Path("tls/operator"), absl::Now()));
}

TEST_F(EnrolmentTest, WaitsForTheCoordinatorUnlessEnrolled) {
  const std::string token = Token("island");
  int pauses = 0;
  const auto pause = [&](absl::Duration) { return ++pauses < 3; };
  EXPECT_THAT(
      EnrolOnce(address_, token, "b", Path("b"), absl::Now, /*seed=*/1, pause),
      IsInvalidArgument("the token is for island a"));
  EXPECT_THAT(EnrolOnce("127.0.0.1:1", token, "a", Path("a"), absl::Now,
                        /*seed=*/1, pause),
              IsUnavailable("nothing listens there"));
  EXPECT_EQ(pauses, 3);
  EXPECT_OK(
      EnrolOnce(address_, token, "a", Path("a"), absl::Now, /*seed=*/1, pause));
  EXPECT_OK(EnrolOnce("127.0.0.1:1", token, "a", Path("a"), absl::Now,
                      /*seed=*/1, pause));
  EXPECT_EQ(pauses, 3);
  // The old certificate is not valid with another authority.
  ASSERT_OK_AND_ASSIGN(JoinToken other, ParseJoinToken(token));
  other.pin[0] ^= 1;
  EXPECT_THAT(
      EnrolOnce(address_, FormatJoinToken(other), "a", Path("a"), absl::Now,
                /*seed=*/1, pause),
      IsUnauthenticated());
}

TEST_F(EnrolmentTest, ACertificateIsRenewedInTime) {
  const std::string folder = Path("a");
  ASSERT_OK(Enrol(address_, Token("island"), folder, absl::Now()));
  const std::string key = *ReadFile(Path("a/tls.key"));
  const std::string first = *ReadFile(Path("a/tls.crt"));
  ASSERT_OK_AND_ASSIGN(const absl::Time due, FolderRenewalTime(folder));
  // The second look at the clock is past the due time.
  absl::Notification renewed;
  int asked = 0;
  {
    CertificateRenewer renewer(
        address_, folder,
        [&] {
          if (++asked == 1) return due - absl::Milliseconds(1);
          if (*ReadFile(Path("a/tls.crt")) == first) return due;
          if (!renewed.HasBeenNotified()) renewed.Notify();
          return absl::Now();
        },
        /*seed=*/1);
    EXPECT_TRUE(renewed.WaitForNotificationWithTimeout(absl::Seconds(60)));
  }
  EXPECT_GT(asked, 1);
  EXPECT_EQ(*ReadFile(Path("a/tls.key")), key);
  EXPECT_OK(Watch({.tls = folder}));
  EXPECT_EQ(trust_->ListCertificates().certificates_size(), 2);
}

// By a clock that is most of a life ahead, every new certificate is due.
TEST_F(EnrolmentTest, AClockThatIsAheadDoesNotRenewWithoutAPause) {
  const std::string folder = Path("a");
  ASSERT_OK(Enrol(address_, Token("island"), folder, absl::Now()));
  ASSERT_OK_AND_ASSIGN(const absl::Time due, FolderRenewalTime(folder));
  // A certificate is due after two thirds of its life.
  const absl::Duration ahead = 1.2 * (due - absl::Now());
  std::set<std::string> certificates;
  absl::Time first;
  absl::Time second;
  absl::Notification renewed_twice;
  CertificateRenewer renewer(
      address_, folder,
      [&] {
        if (certificates.insert(*ReadFile(Path("a/tls.crt"))).second) {
          if (certificates.size() == 2) first = absl::Now();
          if (certificates.size() == 3) {
            second = absl::Now();
            renewed_twice.Notify();
          }
        }
        return absl::Now() + ahead;
      },
      /*seed=*/1);
  ASSERT_TRUE(renewed_twice.WaitForNotificationWithTimeout(absl::Seconds(60)));
  // The first pause is half a second at least.
  EXPECT_GT(second - first, absl::Milliseconds(400));
}

// After a takeover, the authority is missing until the operator brings it.
TEST_F(EnrolmentTest, ACoordinatorWithoutAnAuthorityIsAskedAgain) {
  const std::string folder = Path("a");
  ASSERT_OK(Enrol(address_, Token("island"), folder, absl::Now()));
  const std::string first = *ReadFile(Path("a/tls.crt"));
  ASSERT_OK_AND_ASSIGN(const absl::Time due, FolderRenewalTime(folder));
  StartServer(address_, nullptr);
  EXPECT_THAT(Renew(address_, folder, absl::Now()),
              IsUnimplemented("no authority"));
  EXPECT_THAT(
      Enrol(address_, Token("island"), Path("b"), absl::Now()).ToString(),
      testing::HasSubstr("has taken the run over, it enrols nobody"));
  absl::Notification asks_again;
  absl::Notification has_authority;
  absl::Notification renewed;
  // Each try looks at the clock twice, so the third look is the second try's.
  int looks = 0;
  CertificateRenewer renewer(
      address_, folder,
      [&] {
        if (++looks == 3) {
          asks_again.Notify();
          has_authority.WaitForNotification();
        }
        if (*ReadFile(Path("a/tls.crt")) == first) return due;
        if (!renewed.HasBeenNotified()) renewed.Notify();
        return absl::Now();
      },
      /*seed=*/1);
  EXPECT_TRUE(asks_again.WaitForNotificationWithTimeout(absl::Seconds(60)));
  StartServer(address_, trust_.get());
  has_authority.Notify();
  EXPECT_TRUE(renewed.WaitForNotificationWithTimeout(absl::Seconds(60)));
}

}  // namespace
}  // namespace causeway
