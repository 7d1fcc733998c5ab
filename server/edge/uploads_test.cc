// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Tests uploads with protobuf's generated stubs, as another implementation
// would make them: of one stream and of several, with and without a first chunk
// beside the header, and with bytes that are not messages.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/checksum.h"
#include "common/testing/status_matchers.h"
#include "common/transport/chunk.h"
#include "common/transport/grpc_status.h"
#include "gmock/gmock.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "proto/coordinator.grpc.pb.h"
#include "quantization/encoded_object.h"
#include "server/edge/testing/served_engine.h"

namespace causeway {
namespace {

v1::ContributeRequest HeaderOf(const v1::ContributionHeader& header) {
  v1::ContributeRequest request;
  *request.mutable_header() = header;
  return request;
}

class UploadsTest : public testing::Test {
 protected:
  // A Contribute stream through the generated stub.
  struct Upload {
    explicit Upload(v1::Coordinator::Stub& stub)
        : stream(stub.Contribute(&context)) {
      context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(20)));
    }
    v1::ContributeResponse Read() {
      v1::ContributeResponse response;
      EXPECT_TRUE(stream->Read(&response));
      return response;
    }
    // Sends the header and returns the verdict.
    v1::ContributeResponse Offer(const v1::ContributionHeader& header) {
      EXPECT_TRUE(stream->Write(HeaderOf(header)));
      return Read();
    }
    absl::Status End() {
      stream->WritesDone();
      return FromGrpcStatus(stream->Finish());
    }

    grpc::ClientContext context;
    std::unique_ptr<
        grpc::ClientReaderWriter<v1::ContributeRequest, v1::ContributeResponse>>
        stream;
  };

  void SetUp() override {
    ASSERT_OK(driver_.Start(TestRunConfig(
        "membership { min_islands: 1 } synchronization { fragments: 1 }")));
    ASSERT_OK_AND_ASSIGN(identity_, driver_.Join("a"));
    ASSERT_OK_AND_ASSIGN(anchor_, driver_.Fetch(identity_, 0, 0));
    contribution_ = driver_.MakeContribution(identity_, 0, 0, anchor_,
                                             Shifted(anchor_, 0.05f));
    open_header_ = contribution_.header;
    *open_header_.mutable_object() = DescribeOpen({}, anchor_.size());
    ASSERT_OK(driver_.Serve());
    stub_ = v1::Coordinator::NewStub(driver_.channel());
  }

  // Returns at most `bytes` bytes of the contribution, from `offset` on.
  v1::ContributeRequest ChunkOf(uint64_t offset, uint64_t bytes) const {
    v1::ContributeRequest request;
    v1::Chunk& chunk = *request.mutable_chunk();
    chunk.set_offset(offset);
    chunk.set_data(contribution_.bytes.substr(offset, bytes));
    chunk.set_crc32c(Crc32c(chunk.data()));
    return request;
  }
  v1::ContributeRequest Trailer() const {
    v1::ContributeRequest request;
    *request.mutable_trailer() = contribution_.header.object();
    return request;
  }
  // Returns the first message of a further stream.
  v1::ContributeRequest Lane() const {
    v1::ContributeRequest request;
    *request.mutable_lane()->mutable_identity() = identity_;
    return request;
  }
  uint64_t bytes() const { return contribution_.bytes.size(); }
  bool AwaitReceived(uint64_t bytes) {
    return driver_.Await(
        [&] { return driver_.engine().GetRun().bytes_received() == bytes; });
  }

  // Offers with an open description, sends bytes [0, end) and then `request`.
  // Returns how the call ends.
  absl::Status SendBytesAnd(uint64_t end,
                            const v1::ContributeRequest& request) {
    Upload upload(*stub_);
    EXPECT_EQ(upload.Offer(open_header_).verdict(),
              v1::ContributeResponse::UPLOAD);
    if (end > 0) {
      EXPECT_TRUE(upload.stream->Write(ChunkOf(0, end)));
    }
    upload.stream->Write(request);
    v1::ContributeResponse response;
    EXPECT_FALSE(upload.stream->Read(&response));
    return upload.End();
  }

  // Returns the offset from which an upload would be resumed.
  uint64_t ResumesAt() {
    Upload upload(*stub_);
    return upload.Offer(contribution_.header).next_offset();
  }

  ServedEngine driver_;
  v1::IslandIdentity identity_;
  std::vector<float> anchor_;
  TestContribution contribution_;
  v1::ContributionHeader open_header_;
  std::unique_ptr<v1::Coordinator::Stub> stub_;
};

TEST_F(UploadsTest, APlainProtobufIslandContributesAndFetches) {
  Upload upload(*stub_);
  EXPECT_EQ(upload.Offer(contribution_.header).verdict(),
            v1::ContributeResponse::UPLOAD);
  for (uint64_t offset = 0; offset < bytes(); offset += 1000) {
    ASSERT_TRUE(upload.stream->Write(ChunkOf(offset, 1000)));
  }
  EXPECT_EQ(upload.Read().verdict(), v1::ContributeResponse::ACCEPTED);
  EXPECT_OK(upload.End());
  ASSERT_TRUE(driver_.AwaitVersion(0, 1));

  v1::FetchUpdateRequest update_request;
  *update_request.mutable_identity() = identity_;
  update_request.set_contribution_digest(
      contribution_.header.object().digest());
  std::string update;
  v1::EncodedObject object;
  {
    grpc::ClientContext context;
    const auto stream = stub_->FetchUpdate(&context, update_request);
    v1::FetchUpdateResponse message;
    ASSERT_TRUE(stream->Read(&message));
    object = message.object();
    EXPECT_TRUE(message.includes_island());
    EXPECT_EQ(message.head().version(), 1u);
    EXPECT_EQ(message.chunk().offset(), 0);
    EXPECT_EQ(message.chunk().crc32c(), Crc32c(message.chunk().data()));
    update = message.chunk().data();
    EXPECT_FALSE(stream->Read(&message)) << "a small update is one message";
    EXPECT_TRUE(stream->Finish().ok());
  }
  EXPECT_OK(CheckArrival(object, update.size(), Digest128(update)));

  v1::FetchParametersRequest parameters_request;
  *parameters_request.mutable_identity() = identity_;
  parameters_request.set_version(1);
  parameters_request.set_offset(8);
  const auto fetch = [&](const auto& add) {
    grpc::ClientContext context;
    const auto stream = stub_->FetchParameters(&context, parameters_request);
    v1::FetchParametersResponse message;
    std::string parameters;
    while (stream->Read(&message)) {
      if (message.has_chunk()) add(message.chunk(), parameters);
    }
    EXPECT_TRUE(stream->Finish().ok());
    return parameters;
  };
  const std::string parameters =
      fetch([](const v1::Chunk& chunk, std::string& all) {
        EXPECT_EQ(chunk.compression(), v1::Chunk::UNCOMPRESSED);
        all += chunk.data();
      });
  EXPECT_EQ(parameters.size() + 8, anchor_.size() * sizeof(float));
  // A client that asks for compression gets the same in fewer bytes, from the
  // same offset on.
  parameters_request.set_compress(true);
  const std::string decompressed =
      fetch([](const v1::Chunk& chunk, std::string& all) {
        EXPECT_EQ(chunk.offset(), 8 + all.size());
        EXPECT_LT(chunk.data().size(), chunk.raw_bytes());
        const Chunk received = {
            .offset = chunk.offset(),
            .crc32c = chunk.crc32c(),
            .pieces = {chunk.data()},
            .compression = static_cast<uint32_t>(chunk.compression()),
            .raw_bytes = chunk.raw_bytes()};
        std::string memory;
        ASSERT_OK(DecompressChunk(received, memory));
        all += memory;
      });
  EXPECT_TRUE(decompressed == parameters);
}

TEST_F(UploadsTest, AnOpenUploadIsClosedByItsTrailer) {
  Upload upload(*stub_);
  EXPECT_EQ(upload.Offer(open_header_).verdict(),
            v1::ContributeResponse::UPLOAD);
  ASSERT_TRUE(upload.stream->Write(ChunkOf(0, bytes())));
  ASSERT_TRUE(upload.stream->Write(Trailer()));
  EXPECT_EQ(upload.Read().verdict(), v1::ContributeResponse::ACCEPTED);
  EXPECT_OK(upload.End());
  EXPECT_TRUE(driver_.AwaitVersion(0, 1));
}

TEST_F(UploadsTest, WithoutItsTrailerAnOpenUploadIsResumed) {
  {
    Upload upload(*stub_);
    upload.Offer(open_header_);
    ASSERT_TRUE(upload.stream->Write(ChunkOf(0, bytes())));
    EXPECT_THAT(upload.End(), IsCancelled("trailer"));
  }
  // All bytes are there; only their description was missing.
  Upload upload(*stub_);
  EXPECT_EQ(upload.Offer(contribution_.header).verdict(),
            v1::ContributeResponse::ACCEPTED);
  EXPECT_OK(upload.End());
}

TEST_F(UploadsTest, AWrongTrailerMakesTheUploadStartOver) {
  v1::ContributeRequest trailer = Trailer();
  trailer.mutable_trailer()->set_digest(std::string(16, 'x'));
  EXPECT_THAT(SendBytesAnd(bytes(), trailer), IsDataLoss("digest"));
  EXPECT_EQ(ResumesAt(), 0u);

  trailer = Trailer();
  trailer.mutable_trailer()->set_format(v1::BF16);
  EXPECT_THAT(SendBytesAnd(bytes(), trailer),
              IsInvalidArgument("the header said"));
  EXPECT_THAT(SendBytesAnd(100, Trailer()), IsDataLoss("with 100 bytes"));
  EXPECT_EQ(ResumesAt(), 0u);
}

TEST_F(UploadsTest, AChunkBeyondTheMostThereCanBeIsRefused) {
  v1::ContributeRequest beyond = ChunkOf(bytes() - 1, 1);
  beyond.mutable_chunk()->set_offset(bytes());
  EXPECT_THAT(SendBytesAnd(bytes(), beyond), IsInvalidArgument("beyond"));
  Upload upload(*stub_);
  EXPECT_EQ(upload.Offer(contribution_.header).verdict(),
            v1::ContributeResponse::ACCEPTED)
      << "what came before is kept, and it is all";
}

TEST_F(UploadsTest, ADamagedChunkIsSentAgain) {
  v1::ContributeRequest damaged = ChunkOf(100, 100);
  (*damaged.mutable_chunk()->mutable_data())[7] ^= 1;
  EXPECT_THAT(SendBytesAnd(100, damaged), IsDataLoss("CRC"));
  EXPECT_EQ(ResumesAt(), 100u);
}

TEST_F(UploadsTest, OnlyChunksAndATrailerFollowTheHeader) {
  EXPECT_THAT(SendBytesAnd(0, HeaderOf(open_header_)), IsInvalidArgument());
  EXPECT_THAT(SendBytesAnd(0, v1::ContributeRequest()), IsInvalidArgument());

  Upload upload(*stub_);
  upload.stream->Write(ChunkOf(0, 100));
  EXPECT_THAT(upload.End(), IsInvalidArgument("must be the header"));
}

TEST_F(UploadsTest, StreamsThatShareAnUploadTakeTurns) {
  v1::ContributionHeader header = open_header_;
  header.set_streams(2);
  Upload main(*stub_);
  EXPECT_EQ(main.Offer(header).verdict(), v1::ContributeResponse::UPLOAD);
  // All but the first chunk of the first stream must wait for the second.
  const uint64_t third = bytes() / 3;
  main.stream->Write(ChunkOf(0, third));
  main.stream->Write(ChunkOf(2 * third, bytes()));
  main.stream->Write(Trailer());
  Upload further(*stub_);
  further.stream->Write(Lane());
  further.stream->Write(ChunkOf(third, third));
  EXPECT_EQ(main.Read().verdict(), v1::ContributeResponse::ACCEPTED);
  EXPECT_OK(further.End());
  EXPECT_OK(main.End());
  EXPECT_TRUE(driver_.AwaitVersion(0, 1));
}

TEST_F(UploadsTest, WhenAStreamOfAnUploadBreaksItGoesOnFromTheGap) {
  v1::ContributionHeader header = open_header_;
  header.set_streams(2);
  Upload main(*stub_);
  main.Offer(header);
  main.stream->Write(ChunkOf(0, 100));
  main.stream->Write(ChunkOf(200, 100));
  {
    Upload further(*stub_);
    further.stream->Write(Lane());
    further.stream->Write(ChunkOf(100, 50));
    ASSERT_TRUE(AwaitReceived(150));
    further.context.TryCancel();
    further.stream->Finish();
  }
  v1::ContributeResponse response;
  EXPECT_FALSE(main.stream->Read(&response));
  EXPECT_THAT(main.End(), IsCancelled());
  EXPECT_EQ(ResumesAt(), 150u);
}

TEST_F(UploadsTest, ADamagedChunkEndsAllStreamsOfAnUpload) {
  v1::ContributionHeader header = open_header_;
  header.set_streams(3);
  Upload main(*stub_);
  main.Offer(header);
  main.stream->Write(ChunkOf(200, 100));
  Upload further(*stub_);
  further.stream->Write(Lane());
  v1::ContributeRequest damaged = ChunkOf(0, 200);
  (*damaged.mutable_chunk()->mutable_data())[7] ^= 1;
  further.stream->Write(damaged);
  EXPECT_THAT(further.End(), IsDataLoss());
  EXPECT_THAT(main.End(), IsDataLoss());
  EXPECT_EQ(ResumesAt(), 0u);
}

TEST_F(UploadsTest, AStreamCannotJoinAClosedUpload) {
  const auto join = [&](const v1::ContributeRequest& lane) {
    Upload further(*stub_);
    further.stream->Write(lane);
    return further.End();
  };
  EXPECT_THAT(join(Lane()), IsUnavailable());
  v1::ContributionHeader header = open_header_;
  header.set_streams(65);
  Upload upload(*stub_);
  upload.stream->Write(HeaderOf(header));
  EXPECT_THAT(upload.End(), IsInvalidArgument("at most 64"));
  v1::ContributeRequest foreign = Lane();
  foreign.mutable_lane()->mutable_identity()->set_run_id("other");
  EXPECT_THAT(join(foreign), IsFailedPrecondition());
}

TEST_F(UploadsTest, BytesThatAreNoMessageAreRefusedAndChangeNothing) {
  const std::string junk(50, '\xff');
  for (const char* const method :
       {"Contribute", "FetchUpdate", "FetchParameters"}) {
    EXPECT_THAT(driver_.Send(absl::StrCat("Coordinator/", method), {junk}),
                IsInvalidArgument("not the expected message"))
        << method;
  }
  const std::string chunk = ChunkOf(0, 100).SerializeAsString();
  for (const std::string& bad :
       {junk, chunk.substr(0, 60), std::string(3 << 20, 'x')}) {
    EXPECT_THAT(
        driver_.Send("Coordinator/Contribute",
                     {HeaderOf(open_header_).SerializeAsString(), chunk, bad}),
        IsInvalidArgument());
    EXPECT_EQ(ResumesAt(), 100u);
  }
}

TEST_F(UploadsTest, ASmallContributionIsOneMessage) {
  Upload upload(*stub_);
  v1::ContributeRequest request = HeaderOf(contribution_.header);
  *request.mutable_first_chunk() = ChunkOf(0, bytes()).chunk();
  ASSERT_TRUE(upload.stream->Write(request));
  EXPECT_EQ(upload.Read().verdict(), v1::ContributeResponse::ACCEPTED);
  EXPECT_OK(upload.End());
  EXPECT_TRUE(driver_.AwaitVersion(0, 1));
}

TEST_F(UploadsTest, ContinueAfterTheFirstChunk) {
  Upload upload(*stub_);
  v1::ContributeRequest request = HeaderOf(contribution_.header);
  *request.mutable_first_chunk() = ChunkOf(0, 100).chunk();
  ASSERT_TRUE(upload.stream->Write(request));
  const v1::ContributeResponse answer = upload.Read();
  EXPECT_EQ(answer.verdict(), v1::ContributeResponse::UPLOAD);
  EXPECT_EQ(answer.next_offset(), 100u);
  *request.mutable_chunk() = ChunkOf(100, bytes() - 100).chunk();
  request.clear_first_chunk();
  ASSERT_TRUE(upload.stream->Write(request));
  EXPECT_EQ(upload.Read().verdict(), v1::ContributeResponse::ACCEPTED);
  EXPECT_OK(upload.End());
}

TEST_F(UploadsTest, ADamagedChunkBesideTheHeaderIsRefused) {
  Upload upload(*stub_);
  v1::ContributeRequest request = HeaderOf(contribution_.header);
  v1::Chunk& chunk = *request.mutable_first_chunk();
  chunk = ChunkOf(0, bytes()).chunk();
  chunk.set_crc32c(~chunk.crc32c());
  ASSERT_TRUE(upload.stream->Write(request));
  EXPECT_THAT(upload.End(), IsDataLoss());
}

TEST_F(UploadsTest, AreResumedWithMoreStreams) {
  v1::ContributionHeader header = contribution_.header;
  header.set_streams(2);
  ASSERT_OK(driver_.engine().Offer(header));
  ASSERT_OK(driver_.engine().Append(KeyOf(header),
                                    CutChunk(contribution_.bytes, 0, 100)));
  Upload main(*stub_);
  EXPECT_EQ(main.Offer(header).next_offset(), 100);
  main.stream->Write(ChunkOf(100, 200));
  // The trailer waits for the bytes of the other stream.
  main.stream->Write(Trailer());
  ASSERT_TRUE(AwaitReceived(300));
  Upload further(*stub_);
  further.stream->Write(Lane());
  further.stream->Write(ChunkOf(300, bytes()));
  EXPECT_EQ(main.Read().verdict(), v1::ContributeResponse::ACCEPTED);
  EXPECT_OK(further.End());
  EXPECT_OK(main.End());
  // The upload is closed: no stream can join it.
  EXPECT_TRUE(driver_.Await([&] {
    Upload late(*stub_);
    late.stream->Write(Lane());
    return absl::IsUnavailable(late.End());
  }));
}

TEST_F(UploadsTest, OnlyChunksFollowALane) {
  v1::ContributionHeader header = contribution_.header;
  header.set_streams(2);
  for (const v1::ContributeRequest& wrong :
       {Trailer(), Lane(), HeaderOf(header)}) {
    Upload main(*stub_);
    main.Offer(header);
    main.stream->Write(ChunkOf(200, 100));
    Upload further(*stub_);
    further.stream->Write(Lane());
    further.stream->Write(wrong);
    EXPECT_THAT(further.End(), IsInvalidArgument());
    EXPECT_THAT(main.End(), IsInvalidArgument()) << "an error ends all streams";
  }
  // A message with a chunk has nothing else.
  const std::string both =
      Lane().SerializeAsString() + ChunkOf(0, 100).SerializeAsString();
  EXPECT_THAT(driver_.Send("Coordinator/Contribute",
                           {HeaderOf(header).SerializeAsString(), both}),
              IsInvalidArgument());
}

}  // namespace
}  // namespace causeway
