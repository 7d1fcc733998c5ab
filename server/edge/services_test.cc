// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Tests the services with protobuf's generated stubs, as another implementation
// would call them, and with bytes that are not messages.
#include "server/edge/services.h"

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/checksum.h"
#include "common/clock.h"
#include "common/testing/status_matchers.h"
#include "common/transport/bulk_stream.h"
#include "common/transport/chunk.h"
#include "common/transport/grpc_status.h"
#include "gmock/gmock.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/text_format.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "proto/control.pb.h"
#include "proto/coordinator.grpc.pb.h"
#include "proto/status.grpc.pb.h"
#include "quantization/encoded_object.h"
#include "server/edge/access.h"
#include "server/edge/server.h"
#include "server/testing/engine_driver.h"

namespace causeway {
namespace {

v1::ContributeRequest ChunkOf(const std::string& object, uint64_t offset,
                              uint64_t bytes) {
  v1::ContributeRequest request;
  v1::Chunk& chunk = *request.mutable_chunk();
  chunk.set_offset(offset);
  chunk.set_data(object.substr(offset, bytes));
  chunk.set_crc32c(Crc32c(chunk.data()));
  return request;
}

class ServicesTest : public testing::Test {
 protected:
  // A Contribute stream through the generated stub.
  struct Upload {
    explicit Upload(v1::Coordinator::Stub& stub)
        : stream(stub.Contribute(&context)) {
      context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(20)));
    }
    // Sends the header and returns the verdict.
    v1::ContributeResponse Offer(const v1::ContributionHeader& header) {
      v1::ContributeRequest request;
      *request.mutable_header() = header;
      v1::ContributeResponse response;
      EXPECT_TRUE(stream->Write(request));
      EXPECT_TRUE(stream->Read(&response));
      return response;
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

  // A waiting FetchUpdate through the generated stub.
  struct WaitingFetch {
    WaitingFetch(v1::Coordinator::Stub& stub,
                 const v1::IslandIdentity& identity, uint64_t from_version) {
      v1::FetchUpdateRequest request;
      *request.mutable_identity() = identity;
      request.set_from_version(from_version);
      request.set_wait(true);
      context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(20)));
      stream = stub.FetchUpdate(&context, request);
    }
    ~WaitingFetch() { context.TryCancel(); }
    absl::Status End() { return FromGrpcStatus(stream->Finish()); }

    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReader<v1::FetchUpdateResponse>> stream;
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
    ASSERT_OK_AND_ASSIGN(
        server_, CoordinatorServer::Start(
                     &driver_.engine(),
                     {.address = "127.0.0.1:0", .now = SteadyWallClock()}));
    channel_ = grpc::CreateChannel(absl::StrCat("127.0.0.1:", server_->port()),
                                   grpc::InsecureChannelCredentials());
    stub_ = v1::Coordinator::NewStub(channel_);
  }
  void TearDown() override { server_.reset(); }

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

  // Offers with an open description, sends [0, end) and then `request`; returns
  // how the call ends.
  absl::Status SendBytesAnd(uint64_t end,
                            const v1::ContributeRequest& request) {
    Upload upload(*stub_);
    EXPECT_EQ(upload.Offer(open_header_).verdict(),
              v1::ContributeResponse::UPLOAD);
    if (end > 0) {
      EXPECT_TRUE(upload.stream->Write(ChunkOf(contribution_.bytes, 0, end)));
    }
    upload.stream->Write(request);
    v1::ContributeResponse response;
    EXPECT_FALSE(upload.stream->Read(&response));
    return upload.End();
  }

  // Returns where an upload of the whole description would continue.
  uint64_t ResumesAt() {
    Upload upload(*stub_);
    return upload.Offer(contribution_.header).next_offset();
  }

  EngineDriver driver_;
  v1::IslandIdentity identity_;
  std::vector<float> anchor_;
  TestContribution contribution_;
  v1::ContributionHeader open_header_;
  std::unique_ptr<CoordinatorServer> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::Coordinator::Stub> stub_;
};

TEST_F(ServicesTest, APlainProtobufIslandContributesAndFetches) {
  Upload upload(*stub_);
  EXPECT_EQ(upload.Offer(contribution_.header).verdict(),
            v1::ContributeResponse::UPLOAD);
  for (uint64_t offset = 0; offset < bytes(); offset += 1000) {
    ASSERT_TRUE(
        upload.stream->Write(ChunkOf(contribution_.bytes, offset, 1000)));
  }
  v1::ContributeResponse response;
  ASSERT_TRUE(upload.stream->Read(&response));
  EXPECT_EQ(response.verdict(), v1::ContributeResponse::ACCEPTED);
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

TEST_F(ServicesTest, AnOpenUploadIsClosedByItsTrailer) {
  Upload upload(*stub_);
  EXPECT_EQ(upload.Offer(open_header_).verdict(),
            v1::ContributeResponse::UPLOAD);
  ASSERT_TRUE(upload.stream->Write(ChunkOf(contribution_.bytes, 0, bytes())));
  ASSERT_TRUE(upload.stream->Write(Trailer()));
  v1::ContributeResponse response;
  ASSERT_TRUE(upload.stream->Read(&response));
  EXPECT_EQ(response.verdict(), v1::ContributeResponse::ACCEPTED);
  EXPECT_OK(upload.End());
  EXPECT_TRUE(driver_.AwaitVersion(0, 1));
}

TEST_F(ServicesTest, WithoutItsTrailerAnOpenUploadIsResumed) {
  {
    Upload upload(*stub_);
    upload.Offer(open_header_);
    ASSERT_TRUE(upload.stream->Write(ChunkOf(contribution_.bytes, 0, bytes())));
    EXPECT_THAT(upload.End(), IsCancelled("trailer"));
  }
  // All bytes are there; only their description was missing.
  Upload upload(*stub_);
  EXPECT_EQ(upload.Offer(contribution_.header).verdict(),
            v1::ContributeResponse::ACCEPTED);
  EXPECT_OK(upload.End());
}

TEST_F(ServicesTest, AWrongTrailerMakesTheUploadStartOver) {
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

TEST_F(ServicesTest, AChunkBeyondTheMostThereCanBeIsRefused) {
  const std::string longer = contribution_.bytes + "x";
  EXPECT_THAT(SendBytesAnd(bytes(), ChunkOf(longer, bytes(), 1)),
              IsInvalidArgument("beyond"));
  Upload upload(*stub_);
  EXPECT_EQ(upload.Offer(contribution_.header).verdict(),
            v1::ContributeResponse::ACCEPTED)
      << "what came before is kept, and it is all";
}

TEST_F(ServicesTest, ADamagedChunkIsSentAgain) {
  v1::ContributeRequest damaged = ChunkOf(contribution_.bytes, 100, 100);
  (*damaged.mutable_chunk()->mutable_data())[7] ^= 1;
  EXPECT_THAT(SendBytesAnd(100, damaged), IsDataLoss("CRC"));
  EXPECT_EQ(ResumesAt(), 100u);
}

TEST_F(ServicesTest, OnlyChunksAndATrailerFollowTheHeader) {
  v1::ContributeRequest header;
  *header.mutable_header() = open_header_;
  EXPECT_THAT(SendBytesAnd(0, header), IsInvalidArgument());
  EXPECT_THAT(SendBytesAnd(0, v1::ContributeRequest()), IsInvalidArgument());

  Upload upload(*stub_);
  upload.stream->Write(ChunkOf(contribution_.bytes, 0, 100));
  EXPECT_THAT(upload.End(), IsInvalidArgument("must be the header"));
}

TEST_F(ServicesTest, StreamsThatShareAnUploadTakeTurns) {
  v1::ContributionHeader header = open_header_;
  header.set_streams(2);
  Upload main(*stub_);
  EXPECT_EQ(main.Offer(header).verdict(), v1::ContributeResponse::UPLOAD);
  // Everything on the first stream has to wait for the second.
  const uint64_t third = bytes() / 3;
  main.stream->Write(ChunkOf(contribution_.bytes, 0, third));
  main.stream->Write(ChunkOf(contribution_.bytes, 2 * third, bytes()));
  main.stream->Write(Trailer());
  Upload further(*stub_);
  further.stream->Write(Lane());
  further.stream->Write(ChunkOf(contribution_.bytes, third, third));
  v1::ContributeResponse response;
  ASSERT_TRUE(main.stream->Read(&response));
  EXPECT_EQ(response.verdict(), v1::ContributeResponse::ACCEPTED);
  EXPECT_OK(further.End());
  EXPECT_OK(main.End());
  EXPECT_TRUE(driver_.AwaitVersion(0, 1));
}

TEST_F(ServicesTest, WhenAStreamOfAnUploadBreaksItGoesOnFromTheGap) {
  v1::ContributionHeader header = open_header_;
  header.set_streams(2);
  Upload main(*stub_);
  main.Offer(header);
  main.stream->Write(ChunkOf(contribution_.bytes, 0, 100));
  main.stream->Write(ChunkOf(contribution_.bytes, 200, 100));
  {
    Upload further(*stub_);
    further.stream->Write(Lane());
    further.stream->Write(ChunkOf(contribution_.bytes, 100, 50));
    ASSERT_TRUE(driver_.Await(
        [&] { return driver_.engine().GetRun().bytes_received() == 150; }));
    further.context.TryCancel();
    further.stream->Finish();
  }
  v1::ContributeResponse response;
  EXPECT_FALSE(main.stream->Read(&response));
  EXPECT_THAT(main.End(), IsCancelled());
  EXPECT_EQ(ResumesAt(), 150u);
}

TEST_F(ServicesTest, ADamagedChunkEndsAllStreamsOfAnUpload) {
  v1::ContributionHeader header = open_header_;
  header.set_streams(3);
  Upload main(*stub_);
  main.Offer(header);
  main.stream->Write(ChunkOf(contribution_.bytes, 200, 100));
  Upload further(*stub_);
  further.stream->Write(Lane());
  v1::ContributeRequest damaged = ChunkOf(contribution_.bytes, 0, 200);
  (*damaged.mutable_chunk()->mutable_data())[7] ^= 1;
  further.stream->Write(damaged);
  EXPECT_THAT(further.End(), IsDataLoss());
  EXPECT_THAT(main.End(), IsDataLoss());
  EXPECT_EQ(ResumesAt(), 0u);
}

TEST_F(ServicesTest, AStreamCannotJoinWhatIsNotOpen) {
  const auto join = [&](const v1::ContributeRequest& lane) {
    Upload further(*stub_);
    further.stream->Write(lane);
    return further.End();
  };
  EXPECT_THAT(join(Lane()), IsUnavailable());
  v1::ContributionHeader header = open_header_;
  header.set_streams(65);
  Upload upload(*stub_);
  v1::ContributeRequest request;
  *request.mutable_header() = header;
  upload.stream->Write(request);
  EXPECT_THAT(upload.End(), IsInvalidArgument("at most 64"));
  v1::ContributeRequest foreign = Lane();
  foreign.mutable_lane()->mutable_identity()->set_run_id("other");
  EXPECT_THAT(join(foreign), IsFailedPrecondition());
}

TEST_F(ServicesTest, DownloadsCheckHowTheyAreToBeSent) {
  const auto fetch = [&](const char* options, uint64_t offset = 0) {
    v1::FetchParametersRequest request;
    *request.mutable_identity() = identity_;
    request.set_offset(offset);
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
        options, request.mutable_stream()));
    grpc::ClientContext context;
    const auto stream = stub_->FetchParameters(&context, request);
    v1::FetchParametersResponse message;
    std::string received;
    while (stream->Read(&message)) received += message.chunk().data();
    const absl::Status status = FromGrpcStatus(stream->Finish());
    return status.ok() ? absl::StatusOr<std::string>(received) : status;
  };
  ASSERT_OK_AND_ASSIGN(const std::string all, fetch(""));
  // Chunks 1 and 4 of 40 bytes each.
  ASSERT_GT(all.size(), 200u);
  ASSERT_OK_AND_ASSIGN(const std::string striped,
                       fetch("index: 1 count: 3 chunk_bytes: 40"));
  EXPECT_EQ(striped.substr(0, 80), all.substr(40, 40) + all.substr(160, 40));
  EXPECT_THAT(fetch("index: 63 count: 64 chunk_bytes: 1048576"),
              IsOkAndHolds(""));
  // No chunk takes more than a minute.
  EXPECT_THAT(fetch("pace_bytes_per_second: 17477"), IsOkAndHolds(all));
  EXPECT_THAT(fetch("pace_bytes_per_second: 1000 chunk_bytes: 40", all.size()),
              IsOkAndHolds(""));
  // The call may have broken off after the last byte.
  EXPECT_THAT(fetch("", all.size()), IsOkAndHolds(""));
  // The description tells whether the caller's bytes are of this object.
  for (const uint64_t beyond : {all.size() + 1, UINT64_MAX}) {
    EXPECT_THAT(fetch("", beyond), IsOkAndHolds(""));
    EXPECT_THAT(fetch("index: 2 count: 3 chunk_bytes: 40", beyond),
                IsOkAndHolds(""));
  }
  for (const char* const wrong :
       {"index: 1", "index: 3 count: 3", "count: 65", "chunk_bytes: 1048577",
        "pace_bytes_per_second: 17476",
        "pace_bytes_per_second: 999 chunk_bytes: 40",
        "pace_bytes_per_second: -1", "pace_bytes_per_second: nan"}) {
    EXPECT_THAT(fetch(wrong), IsInvalidArgument()) << wrong;
  }
}

TEST_F(ServicesTest, AnUpdateIsWaitedForUntilItIsMade) {
  WaitingFetch waiting(*stub_, identity_, /*from_version=*/0);
  // Other news changes nothing.
  ASSERT_OK(driver_.Heartbeat(identity_));
  ASSERT_OK(driver_.Contribute(contribution_));
  v1::FetchUpdateResponse response;
  ASSERT_TRUE(waiting.stream->Read(&response));
  EXPECT_EQ(response.head().version(), 1u);
  EXPECT_EQ(response.object().size(), anchor_.size());
  EXPECT_FALSE(response.includes_island()) << "no contribution was named";
  while (waiting.stream->Read(&response)) {
  }
  EXPECT_OK(waiting.End());
  // The update is there now.
  WaitingFetch again(*stub_, identity_, /*from_version=*/0);
  ASSERT_TRUE(again.stream->Read(&response));
  EXPECT_EQ(response.head().version(), 1u);
}

TEST_F(ServicesTest, NobodyWaitsForAnUpdateThatCannotCome) {
  // This update is not the next one.
  WaitingFetch ahead(*stub_, identity_, /*from_version=*/1);
  EXPECT_THAT(ahead.End(), IsNotFound());
  v1::IslandIdentity foreign = identity_;
  foreign.set_incarnation(77);
  WaitingFetch fenced(*stub_, foreign, /*from_version=*/0);
  EXPECT_THAT(fenced.End(), IsAborted());
}

TEST_F(ServicesTest, WhoWaitsHearsOfTheEndOfItsMembership) {
  WaitingFetch waiting(*stub_, identity_, /*from_version=*/0);
  ASSERT_OK(driver_.Leave(identity_));
  EXPECT_THAT(waiting.End(), IsAborted());
}

TEST_F(ServicesTest, AWaitEndsWithItsCallAndWithTheServer) {
  WaitingFetch cancelled(*stub_, identity_, /*from_version=*/0);
  cancelled.context.TryCancel();
  EXPECT_THAT(cancelled.End(), IsCancelled());
  WaitingFetch waiting(*stub_, identity_, /*from_version=*/0);
  server_->Shutdown(absl::ZeroDuration());
  EXPECT_FALSE(waiting.End().ok());
}

TEST_F(ServicesTest, BytesThatAreNoMessageAreRefusedAndChangeNothing) {
  grpc::GenericStub raw(channel_);
  const auto send = [&](const char* method,
                        const std::vector<std::string>& messages) {
    grpc::ClientContext context;
    BulkStream stream(raw, absl::StrCat("/causeway.v1.Coordinator/", method),
                      &context);
    for (const std::string& message : messages) {
      const grpc::Slice slice(message);
      stream.Write(grpc::ByteBuffer(&slice, 1));
    }
    stream.WritesDone();
    return FromGrpcStatus(stream.Finish());
  };
  const std::string junk(50, '\xff');
  for (const char* const method :
       {"Contribute", "FetchUpdate", "FetchParameters"}) {
    EXPECT_THAT(send(method, {junk}),
                IsInvalidArgument("not the message that is expected"))
        << method;
  }
  v1::ContributeRequest header;
  *header.mutable_header() = open_header_;
  const std::string chunk =
      ChunkOf(contribution_.bytes, 0, 100).SerializeAsString();
  for (const std::string& bad :
       {junk, chunk.substr(0, 60), std::string(3 << 20, 'x')}) {
    EXPECT_THAT(send("Contribute", {header.SerializeAsString(), chunk, bad}),
                IsInvalidArgument());
    EXPECT_EQ(ResumesAt(), 100u);
  }
}

TEST_F(ServicesTest, EveryMethodIsServed) {
  const StatusSource status;
  std::set<std::string> served;
  for (const Methods& methods :
       {CoordinatorMethods(&driver_.engine(), nullptr, nullptr, ""),
        StatusMethods(&status), ControlMethods(nullptr, nullptr)}) {
    for (const auto& [path, method] : methods) {
      served.insert(path);
      EXPECT_TRUE(Access::Knows(path)) << path;
    }
  }
  std::set<std::string> declared;
  for (const google::protobuf::FileDescriptor* file :
       {v1::JoinRequest::descriptor()->file(),
        v1::GetRunRequest::descriptor()->file(),
        v1::PauseRunRequest::descriptor()->file()}) {
    const google::protobuf::ServiceDescriptor& service = *file->service(0);
    for (int i = 0; i < service.method_count(); ++i) {
      declared.insert(absl::StrCat("/", service.full_name(), "/",
                                   service.method(i)->name()));
    }
  }
  EXPECT_EQ(served, declared);
}

TEST_F(ServicesTest, ATextThatIsNotUtf8IsRefusedByName) {
  v1::JoinRequest request;
  request.set_island_id("b");
  request.set_instance_id(1);
  request.set_description("caf\xe9");
  grpc::ClientContext context;
  v1::JoinResponse response;
  EXPECT_THAT(FromGrpcStatus(stub_->Join(&context, request, &response)),
              IsInvalidArgument("JoinRequest.description is not UTF-8"));
}

TEST_F(ServicesTest, RequestsThatAreTooLongAreRefused) {
  const auto join = [&](size_t name_bytes, size_t description_bytes) {
    v1::JoinRequest request;
    request.set_island_id(std::string(name_bytes, 'b'));
    request.set_instance_id(1);
    request.set_description(std::string(description_bytes, 'x'));
    grpc::ClientContext context;
    v1::JoinResponse response;
    return FromGrpcStatus(stub_->Join(&context, request, &response));
  };
  EXPECT_OK(join(64, 256));
  EXPECT_THAT(join(65, 256),
              IsInvalidArgument("JoinRequest.island_id has 65 bytes"));
  EXPECT_THAT(join(64, 257),
              IsInvalidArgument("JoinRequest.description has 257 bytes"));
  // The size is checked before parsing.
  EXPECT_THAT(join(64, 65536), IsInvalidArgument("at most 65536 are allowed"));
}

TEST_F(ServicesTest, TheHistoryTellsWhenUpdatesWereSentAndDelivered) {
  const auto status = v1::Status::NewStub(channel_);
  const auto fragments = [&] {
    grpc::ClientContext context;
    v1::ListFragmentsResponse response;
    EXPECT_TRUE(status->ListFragments(&context, {}, &response).ok());
    return response.fragments(0);
  };
  ASSERT_OK(driver_.Contribute(contribution_).status());
  ASSERT_TRUE(driver_.AwaitVersion(0, 1));
  EXPECT_FALSE(fragments().last_round().has_delivered_at());
  WaitingFetch fetch(*stub_, identity_, 0);
  v1::FetchUpdateResponse part;
  while (fetch.stream->Read(&part)) {
  }
  ASSERT_OK(fetch.End());
  EXPECT_TRUE(fragments().last_round().has_sent_at());
  EXPECT_TRUE(fragments().last_round().has_delivered_at());
  grpc::ClientContext context;
  v1::GetHistoryResponse history;
  ASSERT_TRUE(status->GetHistory(&context, {}, &history).ok());
  ASSERT_EQ(history.training_size(), 1);
  EXPECT_EQ(history.training(0).participation().merged(), 1);
  EXPECT_FALSE(history.more());
}

}  // namespace
}  // namespace causeway
