// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Tests who may call a coordinator that demands clients' certificates. A gRPC
// client learns only from its first call that TLS 1.3 refused it, so the tests
// make calls.
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/clock.h"
#include "common/grpc_status.h"
#include "common/testing/status_matchers.h"
#include "common/transport/credentials.h"
#include "common/transport/testing/certificates.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "proto/coordinator.grpc.pb.h"
#include "proto/status.grpc.pb.h"
#include "server/edge/server.h"
#include "server/testing/engine_driver.h"

namespace causeway {
namespace {

class ServerTlsTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK(driver_.Start(TestRunConfig()));
    const TestIdentity identity = authority_.Sign(kHost, valid_);
    ASSERT_OK_AND_ASSIGN(
        const auto credentials,
        MakeServerCredentials({.tls_cert = identity.certificate,
                               .tls_key = identity.key,
                               .tls_client_ca = authority_.certificate()},
                              now_));
    ASSERT_OK_AND_ASSIGN(
        server_, CoordinatorServer::Start(&driver_.engine(),
                                          {.address = "127.0.0.1:0",
                                           .now = SteadyWallClock(),
                                           .credentials = credentials}));
  }
  void TearDown() override { server_.reset(); }

  static std::string Path(const std::string& name) {
    return absl::StrCat(testing::TempDir(), "/", name);
  }

  // Joins as an island and asks for the run's status, with certificates of
  // these files. Expects that both calls end alike.
  absl::Status Call(const ClientTlsFiles& files) {
    const auto credentials = MakeChannelCredentials(files, now_);
    if (!credentials.ok()) return credentials.status();
    grpc::ChannelArguments arguments;
    arguments.SetSslTargetNameOverride(kHost);
    const auto channel = grpc::CreateCustomChannel(
        absl::StrCat("127.0.0.1:", server_->port()), *credentials, arguments);
    const auto deadline = absl::ToChronoTime(absl::Now() + absl::Seconds(20));
    grpc::ClientContext join_context;
    join_context.set_deadline(deadline);
    v1::JoinRequest join;
    join.set_island_id("a");
    join.set_instance_id(1);
    v1::JoinResponse joined;
    const absl::Status status = FromGrpcStatus(
        v1::Coordinator::NewStub(channel)->Join(&join_context, join, &joined));
    grpc::ClientContext context;
    context.set_deadline(deadline);
    v1::RunStatus run;
    EXPECT_EQ(
        FromGrpcStatus(v1::Status::NewStub(channel)->GetRun(&context, {}, &run))
            .code(),
        status.code());
    return status;
  }

  static constexpr char kHost[] = "coordinator.example";
  const absl::Time now_ = absl::Now();
  const Validity valid_ = {now_ - absl::Hours(1), now_ + absl::Hours(1)};
  TestAuthority authority_{Path("authority"), valid_};
  EngineDriver driver_;
  std::unique_ptr<CoordinatorServer> server_;
};

TEST_F(ServerTlsTest, WhoShowsACertificateOfTheAuthorityIsServed) {
  const TestIdentity island = authority_.Sign("island.example", valid_);
  EXPECT_OK(Call({.tls_ca = authority_.certificate(),
                  .tls_cert = island.certificate,
                  .tls_key = island.key}));
}

TEST_F(ServerTlsTest, WhoShowsNoCertificateIsRefused) {
  EXPECT_THAT(Call({.tls_ca = authority_.certificate()}),
              StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_EQ(driver_.engine().ListIslands(true).islands_size(), 0);
}

TEST_F(ServerTlsTest, WhoShowsACertificateOfAnotherAuthorityIsRefused) {
  TestAuthority foreign(Path("foreign"), valid_);
  const TestIdentity island = foreign.Sign("island.example", valid_);
  EXPECT_THAT(Call({.tls_ca = authority_.certificate(),
                    .tls_cert = island.certificate,
                    .tls_key = island.key}),
              StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_EQ(driver_.engine().ListIslands(true).islands_size(), 0);
}

}  // namespace
}  // namespace causeway
