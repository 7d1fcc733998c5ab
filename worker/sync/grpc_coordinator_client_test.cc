// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Tests the client with a real coordinator over loopback.
#include "worker/sync/grpc_coordinator_client.h"

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "common/clock.h"
#include "common/testing/grpc_server.h"
#include "common/testing/status_matchers.h"
#include "common/transport/chunk.h"
#include "common/transport/credentials.h"
#include "common/transport/testing/certificates.h"
#include "gmock/gmock.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "outer_optimizer/mixing.h"
#include "proto/coordinator.grpc.pb.h"
#include "quantization/encoded_object.h"
#include "quantization/strips/layout.h"
#include "server/edge/testing/served_engine.h"
#include "worker/sync/incoming_bytes.h"
#include "worker/sync/testing/encoding.h"

namespace causeway {
namespace {

class GrpcCoordinatorClientTest : public testing::Test {
 protected:
  // The model is one fragment of several strips and chunks.
  void SetUp() override {
    ASSERT_OK(driver_.Start(TestRunConfig(R"pb(
      model { hidden_size: 256 intermediate_size: 512 }
      training { total_steps: 50 }
      synchronization { fragments: 1 }
      membership { min_islands: 1 outlier_factor: 0 }
    )pb")));
    ASSERT_OK_AND_ASSIGN(identity_, driver_.Join("a"));
    ASSERT_OK_AND_ASSIGN(anchor_, driver_.Fetch(identity_, 0, 0));
    ASSERT_GT(anchor_.size(), 4 * kStripValues);
    contribution_ = driver_.MakeContribution(identity_, 0, 0, anchor_,
                                             Shifted(anchor_, 0.1f));
    ASSERT_GT(contribution_.bytes.size(), 2 * kMaxChunkBytes);
    Listen({}, {});
  }

  void Listen(const ServerTlsFiles& server_files,
              const ClientTlsFiles& client_files) {
    ASSERT_OK_AND_ASSIGN(const auto server_credentials,
                         MakeServerCredentials(server_files, absl::Now()));
    ASSERT_OK(driver_.Serve({.credentials = server_credentials}));
    ASSERT_OK_AND_ASSIGN(const auto client_credentials,
                         MakeChannelCredentials(client_files, absl::Now()));
    client_options_.address = driver_.address();
    client_options_.credentials = client_credentials;
    client_options_.tls = client_files.UsesTls();
    client_options_.now = SteadyWallClock();
    client_ = NewGrpcCoordinatorClient(client_options_);
  }
  void Stripe(int bulk_connections) {
    client_options_.bulk_connections = bulk_connections;
    client_ = NewGrpcCoordinatorClient(client_options_);
  }

  // Fetches the committed values with the client.
  std::vector<float> FetchAll(uint64_t version) {
    v1::FetchParametersRequest request;
    *request.mutable_identity() = identity_;
    request.set_version(version);
    ParametersDownload download;
    EXPECT_OK(client_->FetchParameters(request, anchor_.size() * sizeof(float),
                                       download));
    std::vector<float> values(anchor_.size());
    if (download.bytes.received().size() == values.size() * sizeof(float)) {
      std::memcpy(values.data(), download.bytes.received().data(),
                  values.size() * sizeof(float));
    }
    return values;
  }

  StreamedEncoding Encoding() const {
    std::vector<float> pseudo_gradient(anchor_.size());
    PseudoGradient(anchor_, Shifted(anchor_, 0.1f),
                   absl::MakeSpan(pseudo_gradient));
    return StreamValues({}, std::move(pseudo_gradient));
  }

  // Contributes to round `version`, and returns the verdict.
  v1::ContributeResponse::Verdict Contribute(StreamedEncoding& encoding,
                                             uint64_t version = 0) {
    v1::ContributionHeader header = contribution_.header;
    header.set_base_version(version);
    const auto response = client_->Contribute(header, encoding, [] {});
    EXPECT_OK(response);
    return response.ok() ? response->verdict()
                         : v1::ContributeResponse::VERDICT_UNSPECIFIED;
  }
  // Makes the coordinator see an upload break off after this chunk.
  void BreakOff(const Chunk& chunk) {
    v1::ContributionHeader open = contribution_.header;
    *open.mutable_object() = DescribeOpen({}, anchor_.size());
    ASSERT_OK(driver_.engine().Offer(open));
    ASSERT_OK(driver_.engine().Append(KeyOf(open), chunk));
  }

  v1::FetchUpdateRequest UpdateRequest() const {
    v1::FetchUpdateRequest request;
    *request.mutable_identity() = identity_;
    return request;
  }
  static absl::Status GoOn() { return absl::OkStatus(); }

  ServedEngine driver_;
  v1::IslandIdentity identity_;
  std::vector<float> anchor_;
  TestContribution contribution_;
  GrpcCoordinatorClientOptions client_options_;
  std::unique_ptr<CoordinatorClient> client_;
};

TEST_F(GrpcCoordinatorClientTest, SendsWhileItEncodes) {
  StreamedEncoding encoding = Encoding();
  EXPECT_EQ(Contribute(encoding), v1::ContributeResponse::ACCEPTED);
  EXPECT_TRUE(encoding.complete());
  EXPECT_EQ(client_->bytes_up(), contribution_.bytes.size());
  EXPECT_TRUE(driver_.AwaitVersion(0, 1));
  // A repeated contribution counts once, and nothing is sent.
  EXPECT_EQ(Contribute(encoding), v1::ContributeResponse::LATE);
  EXPECT_EQ(client_->bytes_up(), contribution_.bytes.size());
}

TEST_F(GrpcCoordinatorClientTest, AnUpdateCanBeAskedForBeforeItIsMade) {
  StreamedEncoding encoding = Encoding();
  v1::FetchUpdateRequest request = UpdateRequest();
  request.set_wait(true);
  const uint64_t bytes = anchor_.size() * sizeof(float);
  UpdateDownload download;
  std::unique_ptr<UpdateStream> update;
  ASSERT_OK_AND_ASSIGN(
      const v1::ContributeResponse response,
      client_->Contribute(contribution_.header, encoding, [&] {
        EXPECT_TRUE(encoding.complete());
        request.set_contribution_digest(encoding.object().digest());
        update = client_->FetchUpdate(request, bytes, download);
      }));
  EXPECT_EQ(response.verdict(), v1::ContributeResponse::ACCEPTED);
  ASSERT_NE(update, nullptr);
  EXPECT_OK(update->Receive(download, GoOn));
  EXPECT_EQ(download.description.head().version(), 1u);
  EXPECT_TRUE(download.description.includes_island());
  EXPECT_EQ(download.bytes.received().size(), bytes);
}

TEST_F(GrpcCoordinatorClientTest, AnUpdateThatNeverComesCanBeGivenUp) {
  v1::FetchUpdateRequest request = UpdateRequest();
  request.set_wait(true);
  UpdateDownload download;
  client_->FetchUpdate(request, 1 << 30, download).reset();
  const auto waiting = client_->FetchUpdate(request, 1 << 30, download);
  client_->Shutdown();
  EXPECT_THAT(waiting->Receive(download, GoOn), IsCancelled());
}

TEST_F(GrpcCoordinatorClientTest, AnUploadDoesNotWaitForTheVerdictBefore) {
  StreamedEncoding first = Encoding();
  StreamedEncoding second = Encoding();
  v1::ContributionHeader fenced = contribution_.header;
  fenced.mutable_identity()->set_incarnation(77);
  absl::Status other;
  ASSERT_OK(client_->Contribute(contribution_.header, first, [&] {
    other = client_->Contribute(fenced, second, [] {}).status();
  }));
  EXPECT_THAT(other, IsAborted());
}

TEST_F(GrpcCoordinatorClientTest, WhatTheCoordinatorDoesNotWantIsNotAllSent) {
  // Another contribution of the island closes the round.
  ASSERT_OK(driver_.Contribute(contribution_));
  ASSERT_TRUE(driver_.AwaitVersion(0, 1));
  StreamedEncoding encoding = Encoding();
  bool all_sent = false;
  client_options_.uplink_bytes_per_second = 1e6;
  client_ = NewGrpcCoordinatorClient(client_options_);
  ASSERT_OK_AND_ASSIGN(const v1::ContributeResponse response,
                       client_->Contribute(contribution_.header, encoding,
                                           [&] { all_sent = true; }));
  EXPECT_EQ(response.verdict(), v1::ContributeResponse::LATE);
  EXPECT_FALSE(all_sent);
  EXPECT_LT(client_->bytes_up(), contribution_.bytes.size());
}

TEST_F(GrpcCoordinatorClientTest, ResumesWhatBrokeOffWhileItWasEncoded) {
  const Chunk first = CutChunk(contribution_.bytes, 0);
  BreakOff(first);

  StreamedEncoding encoding = Encoding();
  encoding.Await(encoding.max_bytes());
  EXPECT_EQ(Contribute(encoding), v1::ContributeResponse::ACCEPTED);
  EXPECT_EQ(client_->bytes_up(), contribution_.bytes.size() - first.size());
  EXPECT_TRUE(driver_.AwaitVersion(0, 1));
}

TEST_F(GrpcCoordinatorClientTest, StartsOverIfOtherBytesWereThere) {
  const std::string other(kMaxChunkBytes, 'x');
  BreakOff(CutChunk(other, 0));

  StreamedEncoding encoding = Encoding();
  encoding.Await(encoding.max_bytes());
  EXPECT_THAT(client_->Contribute(contribution_.header, encoding, [] {}),
              IsDataLoss("digest"));
  EXPECT_EQ(Contribute(encoding), v1::ContributeResponse::ACCEPTED);
}

TEST_F(GrpcCoordinatorClientTest, SaysWhyAContributionIsRefused) {
  StreamedEncoding encoding = Encoding();
  v1::ContributionHeader header = contribution_.header;
  header.set_base_version(5);
  EXPECT_THAT(client_->Contribute(header, encoding, [] {}),
              IsOutOfRange("is at version 0"));
  header = contribution_.header;
  header.mutable_identity()->set_incarnation(77);
  EXPECT_THAT(client_->Contribute(header, encoding, [] {}), IsAborted());
}

TEST_F(GrpcCoordinatorClientTest, DownloadsComeInPieces) {
  StreamedEncoding encoding = Encoding();
  Contribute(encoding);
  ASSERT_TRUE(driver_.AwaitVersion(0, 1));

  v1::FetchUpdateRequest request = UpdateRequest();
  request.set_contribution_digest(encoding.object().digest());
  UpdateDownload download;
  // We end the first try after two pieces.
  int pieces = 0;
  const uint64_t bytes = anchor_.size() * sizeof(float);
  EXPECT_THAT(client_->FetchUpdate(request, bytes, download)
                  ->Receive(download,
                            [&]() -> absl::Status {
                              return ++pieces < 2
                                         ? absl::OkStatus()
                                         : absl::UnavailableError("enough");
                            }),
              IsUnavailable("enough"));
  EXPECT_EQ(download.bytes.received().size(), 2 * kMaxChunkBytes);
  // The second try continues from there.
  ASSERT_OK(
      client_->FetchUpdate(request, bytes, download)->Receive(download, [&] {
        ++pieces;
        return absl::OkStatus();
      }));
  EXPECT_EQ(pieces, (bytes + kMaxChunkBytes - 1) / kMaxChunkBytes);
  EXPECT_EQ(client_->bytes_down(), bytes);
  EXPECT_TRUE(download.description.includes_island());
  EXPECT_OK(CheckArrival(download.description.object(),
                         download.bytes.received().size(),
                         download.bytes.digest()));

  v1::FetchParametersRequest parameters_request;
  *parameters_request.mutable_identity() = identity_;
  parameters_request.set_version(1);
  ParametersDownload parameters;
  ASSERT_OK(client_->FetchParameters(parameters_request, bytes, parameters));
  ASSERT_OK_AND_ASSIGN(const std::vector<float> stored,
                       driver_.Fetch(identity_, 0, 1));
  const absl::string_view want(reinterpret_cast<const char*>(stored.data()),
                               bytes);
  EXPECT_EQ(parameters.bytes.received(), want);
  // Parameters came compressed; over a link that is faster than compression
  // they do not.
  EXPECT_LT(client_->bytes_down(), 2 * bytes);
  client_options_.downlink_bytes_per_second = 1e9;
  client_ = NewGrpcCoordinatorClient(client_options_);
  parameters = {};
  ASSERT_OK(client_->FetchParameters(parameters_request, bytes, parameters));
  EXPECT_EQ(parameters.bytes.received(), want);
  EXPECT_EQ(client_->bytes_down(), bytes);
}

// A coordinator was lost with the update whose download broke off, and the next
// coordinator has made a shorter update.
TEST_F(GrpcCoordinatorClientTest, AnUpdateThatIsShorterThanWhatCameBeginsAnew) {
  StreamedEncoding encoding = Encoding();
  EXPECT_EQ(Contribute(encoding), v1::ContributeResponse::ACCEPTED);
  ASSERT_TRUE(driver_.AwaitVersion(0, 1));
  const uint64_t bytes = anchor_.size() * sizeof(float);
  for (const int connections : {1, 3}) {
    Stripe(connections);
    const std::string longer(bytes + 10, 'x');
    UpdateDownload download;
    download.description.mutable_object()->set_digest("another");
    download.bytes = IncomingBytes(longer.size());
    const auto came = absl::string_view(longer).substr(0, bytes + 5);
    for (uint64_t at = 0; at < came.size(); at += kMaxChunkBytes) {
      ASSERT_OK(download.bytes.Add(CutChunk(came, at)));
    }
    const auto receive = [&] {
      return client_->FetchUpdate(UpdateRequest(), longer.size(), download)
          ->Receive(download, GoOn);
    };
    EXPECT_THAT(receive(), IsAborted("changed between two tries"));
    EXPECT_OK(receive());
    EXPECT_EQ(download.bytes.received().size(), bytes);
  }
}

TEST_F(GrpcCoordinatorClientTest, SeveralConnectionsCarryTheSameBytes) {
  for (const int connections : {2, 3, 64}) {
    SCOPED_TRACE(connections);
    Stripe(connections);
    const uint64_t version = driver_.Head(0).version();
    ASSERT_OK_AND_ASSIGN(const std::vector<float> anchor,
                         driver_.Fetch(identity_, 0, version));
    EXPECT_EQ(FetchAll(version), anchor);
    const uint64_t before = client_->bytes_down();

    StreamedEncoding encoding = Encoding();
    // Some encodings are sent while they are made, others once they are
    // complete.
    if (connections == 3) encoding.Await(encoding.max_bytes());
    EXPECT_EQ(Contribute(encoding, version), v1::ContributeResponse::ACCEPTED);
    EXPECT_EQ(client_->bytes_up(), contribution_.bytes.size());
    ASSERT_TRUE(driver_.AwaitVersion(0, version + 1));

    v1::FetchUpdateRequest request = UpdateRequest();
    request.set_from_version(version);
    request.set_contribution_digest(encoding.object().digest());
    UpdateDownload download;
    // We end the first try in the middle; the next continues from there.
    int pieces = 0;
    const auto enough = [&]() -> absl::Status {
      return ++pieces < 4 ? absl::OkStatus() : absl::UnavailableError("enough");
    };
    const uint64_t bytes = anchor_.size() * sizeof(float);
    EXPECT_THAT(client_->FetchUpdate(request, bytes, download)
                    ->Receive(download, enough),
                IsUnavailable("enough"));
    EXPECT_OK(client_->FetchUpdate(request, bytes, download)
                  ->Receive(download, GoOn));
    EXPECT_TRUE(download.description.includes_island());
    EXPECT_EQ(client_->bytes_down() - before, bytes);
  }
}

TEST_F(GrpcCoordinatorClientTest, StripedUploadsGoOnWhereTheyBrokeOff) {
  const Chunk first = CutChunk(contribution_.bytes, 0, 100'000);
  BreakOff(first);

  Stripe(4);
  StreamedEncoding encoding = Encoding();
  encoding.set_sent(300'000);
  encoding.Await(encoding.max_bytes());
  EXPECT_EQ(Contribute(encoding), v1::ContributeResponse::ACCEPTED);
  EXPECT_EQ(client_->bytes_up(), contribution_.bytes.size() - first.size());
  v1::IslandProgress progress;
  client_->ReportLinks(progress);
  // The chunk in which the sent part ends counts as a whole.
  EXPECT_EQ(progress.uplink().bytes_sent_again(), 256u << 10);
  EXPECT_GT(progress.uplink().bytes_per_second(), 0);
  EXPECT_GT(progress.uplink().busy_seconds(), 0);
}

TEST_F(GrpcCoordinatorClientTest, KeepsToItsRateBothWays) {
  client_options_.uplink_bytes_per_second = 20e6;
  client_options_.downlink_bytes_per_second = 20e6;
  Stripe(2);
  const absl::Time start = absl::Now();
  EXPECT_EQ(FetchAll(0), anchor_);
  const absl::Time fetched = absl::Now();
  StreamedEncoding encoding = Encoding();
  EXPECT_EQ(Contribute(encoding), v1::ContributeResponse::ACCEPTED);
  // All chunks but the first burst and the last one had to wait.
  const auto least = [](uint64_t bytes) {
    return absl::Seconds(static_cast<double>(bytes) / 20e6 - 0.05);
  };
  EXPECT_GT(fetched - start, least(client_->bytes_down()));
  EXPECT_GT(absl::Now() - fetched, least(client_->bytes_up()));
  v1::IslandProgress progress;
  client_->ReportLinks(progress);
  EXPECT_EQ(progress.uplink().pace_bytes_per_second(), 20e6);
  EXPECT_GT(progress.uplink().paced_seconds(), 0);
}

TEST_F(GrpcCoordinatorClientTest, RefusesMoreThanItAskedFor) {
  v1::FetchParametersRequest request;
  *request.mutable_identity() = identity_;
  ParametersDownload parameters;
  EXPECT_THAT(client_->FetchParameters(request, anchor_.size(), parameters),
              IsInvalidArgument("it can have at most"));
  request.set_version(9);
  EXPECT_THAT(client_->FetchParameters(request, 1 << 30, parameters),
              IsNotFound());
}

// The coordinator refuses longer texts.
TEST_F(GrpcCoordinatorClientTest, CutsTheProseOfEveryRequest) {
  const std::string text(5000, 'x');
  v1::JoinRequest join;
  join.set_island_id("b");
  join.set_instance_id(2);
  join.set_description(text);
  ASSERT_OK_AND_ASSIGN(const v1::JoinResponse joined, client_->Join(join));
  const std::unique_ptr<ControlStream> stream = client_->OpenSession();
  v1::SessionRequest heartbeat;
  *heartbeat.mutable_identity() = joined.identity();
  heartbeat.mutable_progress()->set_activity(text);
  v1::SessionResponse view;
  ASSERT_TRUE(stream->Write(heartbeat));
  EXPECT_TRUE(stream->Read(&view));
  stream->Cancel();
  stream->Finish().IgnoreError();
  v1::LeaveRequest leave;
  *leave.mutable_identity() = joined.identity();
  leave.set_reason(text);
  EXPECT_OK(client_->Leave(leave));
}

// Ignores a chunk that comes with the header.
class OlderCoordinator : public v1::Coordinator::Service {
 public:
  // The bytes of the chunks.
  std::string received;

 private:
  grpc::Status Contribute(
      grpc::ServerContext*,
      grpc::ServerReaderWriter<v1::ContributeResponse, v1::ContributeRequest>*
          stream) override {
    v1::ContributeRequest request;
    stream->Read(&request);
    v1::ContributeResponse response;
    response.set_verdict(v1::ContributeResponse::UPLOAD);
    stream->Write(response);
    while (stream->Read(&request)) received += request.chunk().data();
    response.set_verdict(v1::ContributeResponse::ACCEPTED);
    stream->Write(response);
    return grpc::Status::OK;
  }
};

class GrpcCoordinatorClientVersionTest : public testing::Test {
 protected:
  OlderCoordinator coordinator_;
  const LocalGrpcServer server_{{.services = {&coordinator_}}};
  const std::unique_ptr<CoordinatorClient> client_ = NewGrpcCoordinatorClient(
      {.address = server_.address(), .now = SteadyWallClock()});
};

TEST_F(GrpcCoordinatorClientVersionTest,
       AnOlderCoordinatorGetsASmallContributionInAChunk) {
  StreamedEncoding encoding = StreamValues({}, std::vector<float>(100, 1));
  int sent = 0;
  ASSERT_OK_AND_ASSIGN(const v1::ContributeResponse response,
                       client_->Contribute({}, encoding, [&] { ++sent; }));
  EXPECT_EQ(response.verdict(), v1::ContributeResponse::ACCEPTED);
  EXPECT_EQ(coordinator_.received, encoding.Await(0));
  EXPECT_EQ(sent, 1);
  // The bytes were sent with the header, and again in a chunk.
  EXPECT_EQ(client_->bytes_up(), 2 * encoding.Await(0).size());
}

TEST_F(GrpcCoordinatorClientTest, ShutdownEndsAndRefusesCalls) {
  client_->Shutdown();
  StreamedEncoding encoding = Encoding();
  EXPECT_THAT(client_->Contribute(contribution_.header, encoding, [] {}),
              IsCancelled());
}

TEST_F(GrpcCoordinatorClientTest, SpeaksTls) {
  const Validity valid = {absl::Now() - absl::Hours(1),
                          absl::Now() + absl::Hours(1)};
  TestAuthority authority(testing::TempDir() + "/client-test", valid);
  const TestIdentity server = authority.Sign("127.0.0.1", valid);
  const TestIdentity island = authority.Sign("island.example", valid);
  const ServerTlsFiles tls = {server.certificate, server.key};
  const ServerTlsFiles mutual = {server.certificate, server.key,
                                 authority.certificate()};
  const ClientTlsFiles trusting = {.tls_ca = authority.certificate()};
  const ClientTlsFiles known = {authority.certificate(), island.certificate,
                                island.key};
  v1::JoinRequest join;
  join.set_island_id("b");
  join.set_instance_id(2);

  Listen(tls, {});
  EXPECT_THAT(client_->Join(join), IsUnauthenticated())
      << "plain text to a coordinator with TLS";
  // A member tries again.
  join.set_expected_run_id("r");
  EXPECT_THAT(client_->Join(join), IsUnavailable());
  join.clear_expected_run_id();
  Listen(mutual, trusting);
  EXPECT_THAT(client_->Join(join), IsUnavailable())
      << "no certificate to a coordinator that wants one";
  Listen(tls, trusting);
  EXPECT_OK(client_->Join(join));
  Listen(mutual, known);
  EXPECT_OK(client_->Join(join));
  StreamedEncoding encoding = Encoding();
  EXPECT_EQ(Contribute(encoding), v1::ContributeResponse::ACCEPTED);
}

}  // namespace
}  // namespace causeway
