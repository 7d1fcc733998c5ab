// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Tests uploads whose first chunk comes with the header.
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/checksum.h"
#include "common/clock.h"
#include "common/testing/status_matchers.h"
#include "common/transport/grpc_status.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "proto/coordinator.grpc.pb.h"
#include "server/edge/server.h"
#include "server/testing/engine_driver.h"

namespace causeway {
namespace {

class FirstChunkTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK(driver_.Start(TestRunConfig(
        "membership { min_islands: 1 } synchronization { fragments: 1 }")));
    ASSERT_OK_AND_ASSIGN(identity_, driver_.Join("a"));
    ASSERT_OK_AND_ASSIGN(const std::vector<float> anchor,
                         driver_.Fetch(identity_, 0, 0));
    contribution_ = driver_.MakeContribution(identity_, 0, 0, anchor,
                                             Shifted(anchor, 0.05f));
    ASSERT_OK_AND_ASSIGN(
        server_, CoordinatorServer::Start(
                     &driver_.engine(),
                     {.address = "127.0.0.1:0", .now = SteadyWallClock()}));
    stub_ = v1::Coordinator::NewStub(
        grpc::CreateChannel(absl::StrCat("127.0.0.1:", server_->port()),
                            grpc::InsecureChannelCredentials()));
    context_.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(20)));
    stream_ = stub_->Contribute(&context_);
    *request_.mutable_header() = contribution_.header;
  }

  v1::Chunk ChunkOf(uint64_t offset, uint64_t bytes) const {
    v1::Chunk chunk;
    chunk.set_offset(offset);
    chunk.set_data(contribution_.bytes.substr(offset, bytes));
    chunk.set_crc32c(Crc32c(chunk.data()));
    return chunk;
  }
  uint64_t bytes() const { return contribution_.bytes.size(); }

  v1::ContributeResponse Read() {
    v1::ContributeResponse response;
    EXPECT_TRUE(stream_->Read(&response));
    return response;
  }
  absl::Status End() {
    stream_->WritesDone();
    return FromGrpcStatus(stream_->Finish());
  }

  EngineDriver driver_;
  v1::IslandIdentity identity_;
  TestContribution contribution_;
  std::unique_ptr<CoordinatorServer> server_;
  std::unique_ptr<v1::Coordinator::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<
      grpc::ClientReaderWriter<v1::ContributeRequest, v1::ContributeResponse>>
      stream_;
  // Has the header.
  v1::ContributeRequest request_;
};

TEST_F(FirstChunkTest, ASmallContributionIsOneMessage) {
  *request_.mutable_first_chunk() = ChunkOf(0, bytes());
  ASSERT_TRUE(stream_->Write(request_));
  EXPECT_EQ(Read().verdict(), v1::ContributeResponse::ACCEPTED);
  EXPECT_OK(End());
  EXPECT_TRUE(driver_.AwaitVersion(0, 1));
}

TEST_F(FirstChunkTest, TheUploadGoesOnBehindIt) {
  *request_.mutable_first_chunk() = ChunkOf(0, 100);
  ASSERT_TRUE(stream_->Write(request_));
  const v1::ContributeResponse answer = Read();
  EXPECT_EQ(answer.verdict(), v1::ContributeResponse::UPLOAD);
  EXPECT_EQ(answer.next_offset(), 100u);
  *request_.mutable_chunk() = ChunkOf(100, bytes() - 100);
  request_.clear_first_chunk();
  ASSERT_TRUE(stream_->Write(request_));
  EXPECT_EQ(Read().verdict(), v1::ContributeResponse::ACCEPTED);
  EXPECT_OK(End());
}

TEST_F(FirstChunkTest, ADamagedOneIsRefused) {
  v1::Chunk& chunk = *request_.mutable_first_chunk();
  chunk = ChunkOf(0, bytes());
  chunk.set_crc32c(~chunk.crc32c());
  ASSERT_TRUE(stream_->Write(request_));
  EXPECT_THAT(End(), IsDataLoss());
}

}  // namespace
}  // namespace causeway
