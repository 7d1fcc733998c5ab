// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Tests downloads from a coordinator that sends other bytes than it announces.
// Each chunk is sound: only the digest of the whole shows the damage.
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/checksum.h"
#include "common/clock.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "proto/coordinator.grpc.pb.h"
#include "worker/sync/coordinator_client.h"
#include "worker/sync/grpc_coordinator_client.h"

namespace causeway {
namespace {

using testing::HasSubstr;

constexpr uint64_t kBytes = 1000;

// Sends `bytes`, and claims that their digest is that of `announced`.
class FalseCoordinator : public v1::Coordinator::Service {
 public:
  std::string announced = std::string(kBytes, 'a');
  std::string bytes = announced;
  // Called before an update that is waited for is sent.
  std::function<void()> before_update = [] {};

  grpc::Status FetchParameters(
      grpc::ServerContext*, const v1::FetchParametersRequest* request,
      grpc::ServerWriter<v1::FetchParametersResponse>* writer) override {
    v1::FetchParametersResponse response;
    response.mutable_head()->set_version(request->version());
    response.mutable_head()->set_digest(Digest128(announced));
    response.set_total_bytes(bytes.size());
    *response.mutable_chunk() = ChunkFrom(request->offset());
    writer->Write(response);
    return grpc::Status::OK;
  }

  grpc::Status FetchUpdate(
      grpc::ServerContext*, const v1::FetchUpdateRequest* request,
      grpc::ServerWriter<v1::FetchUpdateResponse>* writer) override {
    if (request->wait()) before_update();
    v1::FetchUpdateResponse response;
    response.mutable_head()->set_version(request->from_version() + 1);
    v1::EncodedObject& object = *response.mutable_object();
    object.set_format(v1::FP32);
    object.set_size(kBytes / sizeof(float));
    object.set_encoded_bytes(bytes.size());
    object.set_digest(Digest128(announced));
    *response.mutable_chunk() = ChunkFrom(request->offset());
    writer->Write(response);
    return grpc::Status::OK;
  }

 private:
  // Returns the rest from `offset` on.
  v1::Chunk ChunkFrom(uint64_t offset) const {
    v1::Chunk chunk;
    chunk.set_offset(offset);
    chunk.set_data(bytes.substr(offset));
    chunk.set_crc32c(Crc32c(chunk.data()));
    return chunk;
  }
};

class GrpcDownloadsTest : public testing::Test {
 protected:
  GrpcDownloadsTest() {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                             &port);
    builder.RegisterService(&coordinator_);
    server_ = builder.BuildAndStart();
    address_ = absl::StrCat("127.0.0.1:", port);
    client_ = NewGrpcCoordinatorClient(
        {.address = address_, .now = SteadyWallClock()});
    coordinator_.bytes[kBytes - 1] = 'b';
  }
  ~GrpcDownloadsTest() override {
    client_.reset();
    server_->Shutdown();
  }

  FalseCoordinator coordinator_;
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
  std::unique_ptr<CoordinatorClient> client_;
};

TEST_F(GrpcDownloadsTest, ParametersMustHaveTheirDigest) {
  ParametersDownload download;
  EXPECT_THAT(client_->FetchParameters({}, kBytes, download),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("do not match their digest")));
  // The client keeps none of the bytes: the next try starts over.
  EXPECT_EQ(download.bytes.received().size(), 0);
  coordinator_.bytes = coordinator_.announced;
  EXPECT_OK(client_->FetchParameters({}, kBytes, download));
  EXPECT_EQ(download.bytes.received(), coordinator_.announced);
}

TEST_F(GrpcDownloadsTest, AnUpdateMustHaveItsDigest) {
  const auto nothing = [] { return absl::OkStatus(); };
  UpdateDownload download;
  EXPECT_THAT(
      client_->FetchUpdate({}, kBytes, download)->Receive(download, nothing),
      StatusIs(absl::StatusCode::kDataLoss, HasSubstr("digest")));
  EXPECT_EQ(download.encoded.received().size(), 0);
  coordinator_.bytes = coordinator_.announced;
  EXPECT_OK(
      client_->FetchUpdate({}, kBytes, download)->Receive(download, nothing));
  EXPECT_EQ(download.encoded.received(), coordinator_.announced);
}

TEST_F(GrpcDownloadsTest, WaitingForAnUpdateDoesNotCountAsTimeOnTheLink) {
  std::atomic<int64_t> seconds = 0;
  const auto client = NewGrpcCoordinatorClient(
      {.address = address_, .now = [&] {
         return absl::UnixEpoch() + absl::Seconds(seconds.load());
       }});
  coordinator_.bytes = coordinator_.announced;
  coordinator_.before_update = [&] { seconds += 100; };
  v1::FetchUpdateRequest request;
  request.set_wait(true);
  // Several, as the coordinator may be ready before the client waits.
  for (int i = 0; i < 20; ++i) {
    UpdateDownload download;
    EXPECT_OK(
        client->FetchUpdate(request, kBytes, download)->Receive(download, [] {
          return absl::OkStatus();
        }));
  }
  v1::IslandProgress progress;
  client->ReportLinks(progress);
  EXPECT_EQ(progress.downlink().busy_seconds(), 0);
}

}  // namespace
}  // namespace causeway
