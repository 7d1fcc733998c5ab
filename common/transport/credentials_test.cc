// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/transport/credentials.h"

#include <cstdlib>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/os/file.h"
#include "common/testing/grpc_server.h"
#include "common/testing/status_matchers.h"
#include "common/transport/testing/certificates.h"
#include "gmock/gmock.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

class CredentialsTest : public testing::Test {
 protected:
  std::string Path(const std::string& name) const {
    return absl::StrCat(testing::TempDir(), "/", name);
  }
  std::string Write(const std::string& name, const std::string& content) {
    EXPECT_OK(WriteFileAtomically(Path(name), {absl::string_view(content)}));
    return Path(name);
  }

  // Returns whether a client with one set of files can talk to a server with
  // the other.
  bool Connects(const ServerTlsFiles& server_files,
                const ClientTlsFiles& client_files) {
    return ConnectsWith(MakeChannelCredentials(client_files, now_),
                        server_files);
  }
  bool ConnectsWith(
      const absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>>&
          client_credentials,
      const ServerTlsFiles& server_files) {
    const auto server_credentials = MakeServerCredentials(server_files, now_);
    EXPECT_OK(server_credentials);
    EXPECT_OK(client_credentials);
    const LocalGrpcServer server(
        {.credentials = *server_credentials, .has_health = true});
    grpc::ChannelArguments arguments;
    // The name that the certificates are for.
    arguments.SetSslTargetNameOverride(kHost);
    const auto channel = grpc::CreateCustomChannel(
        server.address(), *client_credentials, arguments);
    grpc_connectivity_state state = channel->GetState(/*try_to_connect=*/true);
    while (state != GRPC_CHANNEL_READY &&
           state != GRPC_CHANNEL_TRANSIENT_FAILURE) {
      channel->WaitForStateChange(state, gpr_inf_future(GPR_CLOCK_REALTIME));
      state = channel->GetState(/*try_to_connect=*/true);
    }
    return state == GRPC_CHANNEL_READY;
  }

  static constexpr char kHost[] = "coordinator.example";
  const absl::Time now_ = absl::Now();
  const Validity valid_ = {now_ - absl::Hours(1), now_ + absl::Hours(1)};
  TestAuthority authority_{Path("authority"), valid_};
  const TestIdentity server_ = authority_.Sign(kHost, valid_);
  const TestIdentity client_ = authority_.Sign("island.example", valid_);
  const ServerTlsFiles server_files_ = {server_.certificate, server_.key};
  const ClientTlsFiles client_files_ = {.tls_ca = authority_.certificate()};
};

TEST_F(CredentialsTest, WithoutFilesItIsPlainText) {
  EXPECT_TRUE(Connects({}, {}));
}

TEST_F(CredentialsTest, AClientThatKnowsTheAuthorityConnects) {
  EXPECT_TRUE(Connects(server_files_, client_files_));
}

TEST_F(CredentialsTest, BothSidesMustSpeakTls) {
  EXPECT_FALSE(Connects({}, client_files_));
}

TEST_F(CredentialsTest, AServerOfAnotherAuthorityOrNameIsNotTrusted) {
  TestAuthority other(Path("other"), valid_);
  EXPECT_FALSE(Connects(server_files_, {.tls_ca = other.certificate()}));
  const TestIdentity other_name = authority_.Sign("elsewhere.example", valid_);
  EXPECT_FALSE(
      Connects({other_name.certificate, other_name.key}, client_files_));
}

TEST_F(CredentialsTest, MutualTlsWantsACertificateOfTheRightAuthority) {
  ServerTlsFiles mutual = server_files_;
  mutual.tls_client_ca = authority_.certificate();
  ClientTlsFiles client = client_files_;
  // Only the connection that must work is checked: a gRPC client learns with
  // its first call, and not before, that TLS 1.3 refused it.
  client.tls_cert = client_.certificate;
  client.tls_key = client_.key;
  EXPECT_TRUE(Connects(mutual, client));
}

TEST_F(CredentialsTest, SaysWhichFileCannotBeRead) {
  EXPECT_THAT(MakeServerCredentials({"/no/such.crt", server_.key}, now_),
              IsNotFound("\"/no/such.crt\" (--tls_cert)"));
  EXPECT_THAT(
      MakeServerCredentials({server_.certificate, "/no/such.key"}, now_),
      IsNotFound("\"/no/such.key\" (--tls_key)"));
  EXPECT_THAT(MakeServerCredentials(
                  {server_.certificate, server_.key, "/no/such.crt"}, now_),
              IsNotFound("(--tls_client_ca)"));
  EXPECT_THAT(MakeChannelCredentials({.tls_ca = "/no/such.crt"}, now_),
              IsNotFound("\"/no/such.crt\" (--tls_ca)"));
}

TEST_F(CredentialsTest, SaysWhatIsMissingFromTheSet) {
  EXPECT_THAT(MakeServerCredentials({server_.certificate, ""}, now_),
              IsInvalidArgument("--tls_key is missing"));
  EXPECT_THAT(MakeServerCredentials({"", server_.key}, now_),
              IsInvalidArgument("--tls_cert is missing"));
  EXPECT_THAT(MakeServerCredentials({"", "", authority_.certificate()}, now_),
              IsInvalidArgument("--tls_cert is missing"));
  EXPECT_THAT(
      MakeChannelCredentials({"", client_.certificate, client_.key}, now_),
      IsInvalidArgument("--tls_ca is missing"));
  EXPECT_THAT(
      MakeChannelCredentials({authority_.certificate(), "", client_.key}, now_),
      IsInvalidArgument("--tls_cert is missing"));
}

TEST_F(CredentialsTest, FlagsWithAPrefixAreNamedByIt) {
  EXPECT_THAT(MakeChannelCredentials(
                  {.tls_ca = "/no/such.crt", .prefix = "etcd_"}, now_),
              IsNotFound("\"/no/such.crt\" (--etcd_tls_ca)"));
  EXPECT_THAT(
      MakeChannelCredentials({.tls = "/no/folder", .prefix = "follow_"}, now_),
      IsNotFound("(--follow_tls)"));
  ClientTlsFiles files = {.tls_ca = authority_.certificate(),
                          .tls_cert = client_.certificate,
                          .prefix = "etcd_",
                          .pair_prefix = "etcd_"};
  EXPECT_THAT(MakeChannelCredentials(files, now_),
              IsInvalidArgument("--etcd_tls_key is missing"));
  files.tls_ca.clear();
  EXPECT_THAT(MakeChannelCredentials(files, now_),
              IsInvalidArgument("--etcd_tls_ca is missing"));
}

TEST_F(CredentialsTest, SaysWhichFileIsNotPem) {
  const std::string junk = Write("junk.pem", "no certificate, no key\n");
  EXPECT_THAT(MakeServerCredentials({junk, server_.key}, now_),
              IsInvalidArgument("junk.pem\" (--tls_cert)",
                                "no certificate in PEM format"));
  EXPECT_THAT(MakeServerCredentials({server_.certificate, junk}, now_),
              IsInvalidArgument("junk.pem\" (--tls_key)",
                                "no private key in PEM format"));
  EXPECT_THAT(MakeChannelCredentials({.tls_ca = junk}, now_),
              IsInvalidArgument("(--tls_ca)"));
}

TEST_F(CredentialsTest, RefusesTheKeyOfAnotherCertificate) {
  EXPECT_THAT(MakeServerCredentials({server_.certificate, client_.key}, now_),
              IsInvalidArgument("does not belong to"));
  EXPECT_THAT(
      MakeChannelCredentials(
          {authority_.certificate(), client_.certificate, server_.key}, now_),
      IsInvalidArgument("does not belong to"));
}

TEST_F(CredentialsTest, RefusesCertificatesOutsideTheirTime) {
  const absl::Time late = valid_.until + absl::Minutes(1);
  const absl::Time early = valid_.from - absl::Minutes(1);
  EXPECT_THAT(MakeServerCredentials(server_files_, late),
              IsFailedPrecondition("(--tls_cert)", "has expired"));
  EXPECT_THAT(MakeServerCredentials(server_files_, early),
              IsFailedPrecondition("is not valid yet"));
  EXPECT_THAT(MakeChannelCredentials(client_files_, late),
              IsFailedPrecondition("(--tls_ca)", "has expired"));
}

TEST_F(CredentialsTest, FilesThatChangeAreReadAgain) {
  const std::string certificate = Write("changing.crt", "");
  const std::string key = Write("changing.key", "");
  const std::string client_ca = Write("changing-ca.crt", "");
  const auto install = [&](const TestAuthority& authority,
                           const TestIdentity& identity) {
    Write("changing.key", *ReadFile(identity.key));
    Write("changing.crt", *ReadFile(identity.certificate));
    Write("changing-ca.crt", *ReadFile(authority.certificate()));
  };
  install(authority_, server_);
  ASSERT_OK_AND_ASSIGN(
      const auto server_credentials,
      MakeServerCredentials({certificate, key, client_ca}, now_));
  const LocalGrpcServer server(
      {.credentials = server_credentials, .has_health = true});

  // This client does not know the first authority.
  TestAuthority next(Path("next"), valid_);
  const TestIdentity client = next.Sign("island.example", valid_);
  const TestIdentity next_server = next.Sign(kHost, valid_);
  ASSERT_OK_AND_ASSIGN(
      const auto credentials,
      MakeChannelCredentials(
          {next.certificate(), client.certificate, client.key}, now_));
  grpc::ChannelArguments arguments;
  arguments.SetSslTargetNameOverride(kHost);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 200);
  const auto channel =
      grpc::CreateCustomChannel(server.address(), credentials, arguments);
  EXPECT_FALSE(channel->WaitForConnected(
      absl::ToChronoTime(absl::Now() + absl::Milliseconds(500))));
  install(next, next_server);
  EXPECT_TRUE(channel->WaitForConnected(
      absl::ToChronoTime(absl::Now() + absl::Seconds(60))));
}

TEST_F(CredentialsTest, AFolderTakesNoOtherFiles) {
  EXPECT_THAT(
      MakeChannelCredentials(
          {.tls_ca = authority_.certificate(), .tls = "/no/folder"}, now_),
      IsInvalidArgument("--tls names a"));
  EXPECT_THAT(MakeChannelCredentials({.tls = "/no/folder"}, now_),
              IsNotFound("\"/no/folder/ca.crt\" (--tls)",
                         "; a join token (--join, join_token) gets"));
}

TEST_F(CredentialsTest, AFolderTrustsTheCoordinatorOfItsRunOnly) {
  const auto folder = [&](const TestIdentity& own) {
    const std::string path = Path("folder");
    EXPECT_OK(CreateDirectory(path));
    Write("folder/ca.crt", *ReadFile(authority_.certificate()));
    Write("folder/tls.crt", *ReadFile(own.certificate));
    Write("folder/tls.key", *ReadFile(own.key));
    return path;
  };
  const ClientTlsFiles files = {
      .tls = folder(authority_.Sign("a.island.r.causeway", valid_))};
  const auto connects = [&](const std::string& name) {
    const TestIdentity server = authority_.Sign(name, valid_);
    return Connects({server.certificate, server.key}, files);
  };
  EXPECT_TRUE(connects("coordinator.r.causeway"));
  EXPECT_FALSE(connects("coordinator.other.causeway"));
  EXPECT_FALSE(connects("b.island.r.causeway"));
  EXPECT_FALSE(connects(kHost));
}

// A container's image has no authorities of its system.
TEST_F(CredentialsTest, AServerIsCheckedWithoutTheSystemsAuthorities) {
  setenv("GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
         Write("junk.pem", "no certificate\n").c_str(), 1);
  for (const absl::Status& verdict :
       {absl::OkStatus(), absl::UnauthenticatedError("an impostor")}) {
    EXPECT_EQ(
        ConnectsWith(CheckedCredentials([=](const auto&) { return verdict; }),
                     server_files_),
        verdict.ok());
  }
}

TEST_F(CredentialsTest, ABundleMayHoldAnAuthorityThatHasExpired) {
  const TestAuthority old(Path("old"),
                          {now_ - absl::Hours(9), now_ - absl::Hours(8)});
  const std::string bundle =
      Write("bundle.pem",
            *ReadFile(old.certificate()) + *ReadFile(authority_.certificate()));
  EXPECT_TRUE(Connects(server_files_, {.tls_ca = bundle}));
}

}  // namespace
}  // namespace causeway
