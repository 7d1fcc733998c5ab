// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Tests the services with protobuf's generated stubs, as another implementation
// would call them.
#include "server/edge/services.h"

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/testing/status_matchers.h"
#include "common/transport/grpc_status.h"
#include "gmock/gmock.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/text_format.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "proto/control.pb.h"
#include "proto/coordinator.grpc.pb.h"
#include "proto/status.grpc.pb.h"
#include "server/edge/access.h"
#include "server/edge/testing/served_engine.h"

namespace causeway {
namespace {

class ServicesTest : public testing::Test {
 protected:
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
    ASSERT_OK(driver_.Serve());
    stub_ = v1::Coordinator::NewStub(driver_.channel());
  }

  ServedEngine driver_;
  v1::IslandIdentity identity_;
  std::vector<float> anchor_;
  TestContribution contribution_;
  std::unique_ptr<v1::Coordinator::Stub> stub_;
};

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

TEST_F(ServicesTest, AnUpdateThatCannotComeIsNotAwaited) {
  // This update is not the next one.
  WaitingFetch ahead(*stub_, identity_, /*from_version=*/1);
  EXPECT_THAT(ahead.End(), IsNotFound());
  v1::IslandIdentity foreign = identity_;
  foreign.set_incarnation(77);
  WaitingFetch fenced(*stub_, foreign, /*from_version=*/0);
  EXPECT_THAT(fenced.End(), IsAborted());
}

TEST_F(ServicesTest, AWaitEndsWithTheMembership) {
  WaitingFetch waiting(*stub_, identity_, /*from_version=*/0);
  ASSERT_OK(driver_.Leave(identity_));
  EXPECT_THAT(waiting.End(), IsAborted());
}

TEST_F(ServicesTest, AWaitEndsWithItsCallAndWithTheServer) {
  WaitingFetch cancelled(*stub_, identity_, /*from_version=*/0);
  cancelled.context.TryCancel();
  EXPECT_THAT(cancelled.End(), IsCancelled());
  WaitingFetch waiting(*stub_, identity_, /*from_version=*/0);
  driver_.server().Shutdown(absl::ZeroDuration());
  EXPECT_FALSE(waiting.End().ok());
}

TEST_F(ServicesTest, EveryMethodIsServed) {
  const StatusSource status;
  CallThreads threads;
  std::set<std::string> served;
  for (const Methods& methods :
       {CoordinatorMethods(&driver_.engine(), nullptr, &threads, ""),
        StatusMethods(&status, &threads),
        ControlMethods(nullptr, nullptr, &threads)}) {
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
  const auto status = v1::Status::NewStub(driver_.channel());
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
