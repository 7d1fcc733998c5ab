// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Tests downloads from a coordinator that sends other bytes than it announces.
// Each chunk is sound: only the digest of the whole shows the damage.
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "common/checksum.h"
#include "common/clock.h"
#include "common/testing/grpc_server.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "proto/coordinator.grpc.pb.h"
#include "worker/sync/coordinator_client.h"
#include "worker/sync/grpc_coordinator_client.h"
#include "worker/sync/near_follower.h"
#include "worker/sync/testing/warnings.h"

namespace causeway {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::UnorderedElementsAreArray;

constexpr uint64_t kBytes = 1000;

// Sends `bytes`, but announces the digest of `announced`.
class FalseCoordinator : public v1::Coordinator::Service {
 public:
  std::string announced = std::string(kBytes, 'a');
  std::string bytes = announced;
  // Called before an update that is waited for is sent.
  std::function<void()> before_update = [] {};
  // Changes the description of an update.
  std::function<void(v1::FetchUpdateResponse&)> describe =
      [](v1::FetchUpdateResponse&) {};
  // The follower that islands of a region are sent to.
  std::string follower;
  // A call ends after this many bytes.
  uint64_t most_bytes = kBytes;

  std::vector<v1::FetchParametersRequest> parameters_requests() const {
    absl::MutexLock lock(&mu_);
    return parameters_requests_;
  }
  std::vector<v1::FetchUpdateRequest> update_requests() const {
    absl::MutexLock lock(&mu_);
    return update_requests_;
  }

  grpc::Status FetchParameters(
      grpc::ServerContext*, const v1::FetchParametersRequest* request,
      grpc::ServerWriter<v1::FetchParametersResponse>* writer) override {
    {
      absl::MutexLock lock(&mu_);
      parameters_requests_.push_back(*request);
    }
    v1::FetchParametersResponse response;
    response.mutable_head()->set_version(request->version());
    response.mutable_head()->set_digest(Digest128(announced));
    response.set_total_bytes(bytes.size());
    if (request->stream().index() == 0) {
      *response.mutable_chunk() = ChunkFrom(request->offset());
    }
    response.set_follower(FollowerFor(request->region()));
    if (!response.follower().empty()) response.clear_chunk();
    writer->Write(response);
    return grpc::Status::OK;
  }

  grpc::Status FetchUpdate(
      grpc::ServerContext*, const v1::FetchUpdateRequest* request,
      grpc::ServerWriter<v1::FetchUpdateResponse>* writer) override {
    {
      absl::MutexLock lock(&mu_);
      update_requests_.push_back(*request);
    }
    if (request->wait()) before_update();
    v1::FetchUpdateResponse response;
    response.mutable_head()->set_version(request->from_version() + 1);
    v1::EncodedObject& object = *response.mutable_object();
    object.set_format(v1::FP32);
    object.set_size(kBytes / sizeof(float));
    object.set_encoded_bytes(bytes.size());
    object.set_digest(Digest128(announced));
    describe(response);
    response.set_follower(FollowerFor(request->region()));
    if (response.follower().empty()) {
      *response.mutable_chunk() = ChunkFrom(request->offset());
    }
    writer->Write(response);
    return grpc::Status::OK;
  }

 private:
  std::string FollowerFor(const std::string& region) const {
    return region.empty() ? "" : follower;
  }
  // Returns the rest from `offset` on.
  v1::Chunk ChunkFrom(uint64_t offset) const {
    v1::Chunk chunk;
    chunk.set_offset(offset);
    chunk.set_data(bytes.substr(offset, most_bytes));
    chunk.set_crc32c(Crc32c(chunk.data()));
    return chunk;
  }

  mutable absl::Mutex mu_;
  std::vector<v1::FetchParametersRequest> parameters_requests_
      ABSL_GUARDED_BY(mu_);
  std::vector<v1::FetchUpdateRequest> update_requests_ ABSL_GUARDED_BY(mu_);
};

class GrpcDownloadsTest : public testing::Test {
 protected:
  static absl::Status FetchUpdate(CoordinatorClient& client, bool wait,
                                  UpdateDownload& download) {
    v1::FetchUpdateRequest request;
    request.set_wait(wait);
    return client.FetchUpdate(request, kBytes, download)->Receive(download, [] {
      return absl::OkStatus();
    });
  }
  absl::Status FetchUpdate(UpdateDownload& download) {
    return FetchUpdate(*client_, /*wait=*/false, download);
  }

  FalseCoordinator coordinator_;
  const LocalGrpcServer server_{{.services = {&coordinator_}}};
  const std::string address_ = server_.address();
  std::unique_ptr<CoordinatorClient> client_ =
      NewGrpcCoordinatorClient({.address = address_, .now = SteadyWallClock()});
};

TEST_F(GrpcDownloadsTest, ParametersMustHaveTheirDigest) {
  coordinator_.bytes[kBytes - 1] = 'b';
  ParametersDownload download;
  EXPECT_THAT(client_->FetchParameters({}, kBytes, download),
              IsDataLoss("its digest differs"));
  // The client keeps none of the bytes: the next try starts over.
  EXPECT_EQ(download.bytes.received().size(), 0);
  coordinator_.bytes = coordinator_.announced;
  EXPECT_OK(client_->FetchParameters({}, kBytes, download));
  EXPECT_EQ(download.bytes.received(), coordinator_.announced);
}

TEST_F(GrpcDownloadsTest, AnUpdateMustHaveItsDigest) {
  coordinator_.bytes[kBytes - 1] = 'b';
  UpdateDownload download;
  EXPECT_THAT(FetchUpdate(download), IsDataLoss("digest"));
  EXPECT_EQ(download.bytes.received().size(), 0);
  coordinator_.bytes = coordinator_.announced;
  EXPECT_OK(FetchUpdate(download));
  EXPECT_EQ(download.bytes.received(), coordinator_.announced);
}

// An update that comes in one message has no rate, either.
TEST_F(GrpcDownloadsTest, WaitingForAnUpdateDoesNotCountAsTimeOnTheLink) {
  std::atomic<int64_t> seconds = 0;
  std::atomic<int64_t> looks = 0;
  const auto client =
      NewGrpcCoordinatorClient({.address = address_, .now = [&] {
                                  return absl::UnixEpoch() +
                                         absl::Seconds(seconds.load()) +
                                         absl::Nanoseconds(++looks);
                                }});
  coordinator_.before_update = [&] { seconds += 100; };
  // Tries often, because the coordinator may be ready before the client waits.
  for (int i = 0; i < 20; ++i) {
    UpdateDownload download;
    EXPECT_OK(FetchUpdate(*client, /*wait=*/true, download));
  }
  v1::IslandProgress progress;
  client->ReportLinks(progress);
  EXPECT_LT(progress.downlink().busy_seconds(), 1);
  EXPECT_EQ(progress.downlink().bytes_per_second(), 0);
  EXPECT_EQ(client->bytes_down(), 20 * kBytes);
}

void DescribeMerge(v1::FetchUpdateResponse& response) {
  response.set_includes_island(true);
  response.set_other_tokens(30);
  response.set_other_inner_steps(3);
}

TEST_F(GrpcDownloadsTest, AnUpdateSaysWhatIsMergedIntoIt) {
  coordinator_.describe = DescribeMerge;
  UpdateDownload download;
  EXPECT_OK(FetchUpdate(download));
  EXPECT_EQ(download.description.head().version(), 1);
  EXPECT_TRUE(download.description.includes_island());
  EXPECT_EQ(download.description.other_tokens(), 30);
  EXPECT_EQ(download.description.other_inner_steps(), 3);
  EXPECT_EQ(download.description.object().size(), kBytes / sizeof(float));
}

TEST_F(GrpcDownloadsTest, TheMergeIsKnownWhenTheUpdateIsNoLongerKept) {
  coordinator_.bytes.clear();
  coordinator_.describe = [](v1::FetchUpdateResponse& response) {
    DescribeMerge(response);
    response.clear_object();
  };
  UpdateDownload download;
  EXPECT_THAT(FetchUpdate(download),
              IsNotFound("no longer keeps the update to version 1"));
  EXPECT_EQ(download.description.head().version(), 1);
  EXPECT_TRUE(download.description.includes_island());
  EXPECT_EQ(download.description.other_tokens(), 30);
}

TEST_F(GrpcDownloadsTest, AnUpdateThatIsMadeAgainBeginsAnew) {
  coordinator_.most_bytes = 400;
  UpdateDownload download;
  EXPECT_THAT(FetchUpdate(download), IsUnavailable("early"));
  EXPECT_EQ(download.bytes.received().size(), 400);
  coordinator_.announced[0] = 'b';
  coordinator_.bytes = coordinator_.announced;
  EXPECT_THAT(FetchUpdate(download), IsAborted("changed between"));
  EXPECT_EQ(download.bytes.received().size(), 0);
  coordinator_.most_bytes = kBytes;
  EXPECT_OK(FetchUpdate(download));
  EXPECT_EQ(download.bytes.received(), coordinator_.announced);
  std::vector<uint64_t> offsets;
  for (const auto& request : coordinator_.update_requests()) {
    offsets.push_back(request.offset());
  }
  EXPECT_THAT(offsets, ElementsAre(0, 400, 0));
}

TEST_F(GrpcDownloadsTest, ParametersThatBreakOffAreResumed) {
  coordinator_.most_bytes = 600;
  ParametersDownload download;
  EXPECT_THAT(client_->FetchParameters({}, kBytes, download),
              IsUnavailable("early"));
  EXPECT_OK(client_->FetchParameters({}, kBytes, download));
  EXPECT_EQ(download.bytes.received(), coordinator_.announced);
  const auto requests = coordinator_.parameters_requests();
  ASSERT_EQ(requests.size(), 2);
  EXPECT_EQ(requests[0].offset(), 0);
  EXPECT_EQ(requests[1].offset(), 600);
  EXPECT_EQ(client_->bytes_down(), kBytes);
}

// The coordinator no longer has the version whose download broke off.
TEST_F(GrpcDownloadsTest, ParametersOfAnotherVersionBeginAnew) {
  coordinator_.most_bytes = 600;
  ParametersDownload download;
  EXPECT_THAT(client_->FetchParameters({}, kBytes, download),
              IsUnavailable("early"));
  coordinator_.announced[0] = 'b';
  coordinator_.bytes = coordinator_.announced;
  coordinator_.most_bytes = kBytes;
  EXPECT_THAT(client_->FetchParameters({}, kBytes, download),
              IsAborted("changed between"));
  EXPECT_EQ(client_->bytes_down(), 600) << "no byte of it is mixed in";
  EXPECT_OK(client_->FetchParameters({}, kBytes, download));
  EXPECT_EQ(download.bytes.received(), coordinator_.announced);
}

TEST_F(GrpcDownloadsTest, ParametersAreCompressedUnlessTheLinkIsFaster) {
  for (const double rate : {0.0, 249e6, 250e6, 1e9}) {
    const auto client =
        NewGrpcCoordinatorClient({.address = address_,
                                  .downlink_bytes_per_second = rate,
                                  .now = SteadyWallClock()});
    ParametersDownload download;
    EXPECT_OK(client->FetchParameters({}, kBytes, download));
    const v1::FetchParametersRequest request =
        coordinator_.parameters_requests().back();
    EXPECT_EQ(request.compress(), rate < 250e6) << rate;
    EXPECT_EQ(request.stream().pace_bytes_per_second(), rate);
  }
}

// Each stream asks for its part.
TEST_F(GrpcDownloadsTest, DownloadsUseAsManyStreamsAsTheyHaveChunks) {
  const auto client = NewGrpcCoordinatorClient(
      {.address = address_, .bulk_connections = 3, .now = SteadyWallClock()});
  constexpr uint64_t kChunk = 256 << 10;
  for (const auto& [bytes, streams] :
       std::vector<std::pair<uint64_t, uint32_t>>{
           {kChunk, 1}, {kChunk + 1, 2}, {2 * kChunk + 1, 3}, {1 << 30, 3}}) {
    const size_t before = coordinator_.parameters_requests().size();
    ParametersDownload download;
    EXPECT_OK(client->FetchParameters({}, bytes, download));
    const auto requests = coordinator_.parameters_requests();
    std::vector<uint32_t> indexes;
    for (size_t i = before; i < requests.size(); ++i) {
      EXPECT_EQ(requests[i].stream().count(), streams);
      EXPECT_EQ(requests[i].stream().chunk_bytes(), kChunk);
      indexes.push_back(requests[i].stream().index());
    }
    std::vector<uint32_t> all(streams);
    std::iota(all.begin(), all.end(), 0);
    EXPECT_THAT(indexes, UnorderedElementsAreArray(all)) << bytes;
  }
}

// A coordinator with a follower, and an island of its region.
class NearDownloadsTest : public GrpcDownloadsTest {
 protected:
  NearDownloadsTest() {
    coordinator_.follower = follower_server_.address();
    coordinator_.describe = DescribeMerge;
    client_ = NewGrpcCoordinatorClient(
        {.address = address_, .region = "b", .now = [this] {
           return absl::FromUnixMillis(now_);
         }});
  }
  ~NearDownloadsTest() override { client_.reset(); }

  // Fetches an update, which must be the announced one.
  void ExpectUpdate() {
    UpdateDownload download;
    EXPECT_OK(FetchUpdate(*client_, /*wait=*/true, download));
    EXPECT_EQ(download.bytes.received(), coordinator_.announced);
    EXPECT_TRUE(download.description.includes_island())
        << "the coordinator's word";
  }
  // Expects the last update, and those until the pause is over, to come from
  // the coordinator.
  void ExpectPause(absl::Duration pause) {
    const size_t asked = follower_.update_requests().size();
    EXPECT_EQ(coordinator_.update_requests().back().region(), "");
    now_ += absl::ToInt64Milliseconds(pause) - 1;
    ExpectUpdate();
    EXPECT_EQ(coordinator_.update_requests().back().region(), "");
    EXPECT_EQ(follower_.update_requests().size(), asked);
    ++now_;
  }

  // Milliseconds.
  std::atomic<int64_t> now_ = 0;
  FalseCoordinator follower_;
  LocalGrpcServer follower_server_{{.services = {&follower_}}};
};

TEST_F(NearDownloadsTest, BytesComeFromTheFollower) {
  ExpectUpdate();
  EXPECT_EQ(coordinator_.update_requests().back().region(), "b");
  ASSERT_EQ(follower_.update_requests().size(), 1);
  EXPECT_EQ(follower_.update_requests()[0].region(), "");
  ParametersDownload download;
  EXPECT_OK(client_->FetchParameters({}, kBytes, download));
  EXPECT_EQ(download.bytes.received(), coordinator_.announced);
  ASSERT_EQ(follower_.parameters_requests().size(), 1);
  EXPECT_LE(follower_.parameters_requests()[0].stream().chunk_bytes(), 64 << 10)
      << "a slow link brings each chunk within NearFollower::kPatience";
}

TEST_F(NearDownloadsTest, TheRestComesFromTheCoordinatorIfTheFollowerFails) {
  follower_.most_bytes = 600;
  ExpectUpdate();
  EXPECT_EQ(coordinator_.update_requests().back().offset(), 600);
  EXPECT_EQ(client_->bytes_down(), kBytes) << "no byte comes twice";
  ExpectPause(absl::Seconds(5));
  // The follower is tried again, and then avoided for longer.
  ExpectUpdate();
  ExpectPause(absl::Seconds(10));
  follower_.most_bytes = kBytes;
  ExpectUpdate();
  EXPECT_EQ(coordinator_.update_requests().back().region(), "b");
  // A success resets the pause.
  follower_.most_bytes = 600;
  ExpectUpdate();
  ExpectPause(absl::Seconds(5));
}

// An actor that only asks what is merged needs no bytes.
TEST_F(NearDownloadsTest, ADownloadThatIsNotWantedAnyMoreEnds) {
  UpdateDownload download;
  EXPECT_THAT(
      client_->FetchUpdate({}, kBytes, download)
          ->Receive(download, [] { return absl::CancelledError("described"); }),
      IsCancelled("described"));
  EXPECT_EQ(follower_.update_requests().size(), 1);
  EXPECT_EQ(coordinator_.update_requests().size(), 1);
}

TEST_F(NearDownloadsTest, AFollowerThatIsGoneCostsNoUpdate) {
  follower_server_.Shutdown();
  Warnings warnings;
  ExpectUpdate();
  EXPECT_THAT(warnings.lines(),
              ElementsAre(HasSubstr("cannot reach the follower at " +
                                    coordinator_.follower)));
  ExpectPause(absl::Seconds(5));
}

// The download must not wait for each connection in turn.
TEST_F(NearDownloadsTest, AFollowerThatIsGoneIsGivenUpOnAllConnectionsAtOnce) {
  follower_server_.Shutdown();
  const Clock clock = SteadyWallClock();
  const auto client = NewGrpcCoordinatorClient({.address = address_,
                                                .region = "b",
                                                .bulk_connections = 8,
                                                .now = clock});
  const absl::Time began = clock();
  ParametersDownload download;
  EXPECT_OK(client->FetchParameters({}, 1 << 30, download));
  EXPECT_LT(clock() - began, NearFollower::kPatience);
  EXPECT_EQ(download.bytes.received(), coordinator_.announced);
  const auto requests = coordinator_.parameters_requests();
  EXPECT_EQ(requests.back().stream().count(), 8);
  EXPECT_EQ(requests.back().region(), "");
}

TEST_F(NearDownloadsTest, AFollowerWithAnotherVersionIsNotBelieved) {
  follower_.describe = [](v1::FetchUpdateResponse& response) {
    response.mutable_head()->set_digest("another");
  };
  ExpectUpdate();
  ExpectPause(absl::Seconds(5));
}

TEST_F(NearDownloadsTest, AFollowerWithWrongBytesIsNotBelieved) {
  follower_.bytes[7] = 'b';
  UpdateDownload download;
  EXPECT_THAT(FetchUpdate(download), IsDataLoss());
  ExpectUpdate();
  ExpectPause(absl::Seconds(5));
}

TEST_F(NearDownloadsTest, AFollowerThatSaysNothingIsGivenUp) {
  absl::Notification done;
  follower_.before_update = [&] { done.WaitForNotification(); };
  ExpectUpdate();
  done.Notify();
  ExpectPause(absl::Seconds(5));
  // The call must have left `done` before it is destroyed.
  follower_server_.Shutdown();
}

}  // namespace
}  // namespace causeway
