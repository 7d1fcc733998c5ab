// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "cli/watch/watch.h"

#include <cstdint>
#include <sstream>

#include "common/testing/grpc_server.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "proto/status.grpc.pb.h"

namespace causeway {
namespace {

using testing::HasSubstr;

TEST(WatchTest, SilenceCountsFromTheLastAnswer) {
  absl::Time now = absl::UnixEpoch();
  int updates = 0;
  std::ostringstream out;
  Watch(
      [&](WatchedRun&) {
        return ++updates < 3 ? absl::OkStatus()
                             : absl::UnavailableError("gone");
      },
      absl::Seconds(20),
      {.now = [&] { return now; },
       .time_zone = absl::UTCTimeZone(),
       .out = out,
       .sleep =
           [&](absl::Duration interval) {
             now += interval;
             return updates < 3;
           }});
  EXPECT_THAT(out.str(), HasSubstr("no answer for 20 s: gone"));
}

// A run of which only the past is known.
class FakeStatus : public v1::Status::Service {
 public:
  grpc::Status GetHistory(grpc::ServerContext*,
                          const v1::GetHistoryRequest* request,
                          v1::GetHistoryResponse* response) override {
    for (uint64_t version = request->training_after() + 1; version <= versions;
         ++version) {
      response->add_training()->set_version(version);
    }
    for (uint64_t version = request->validation_after() + 1;
         version <= versions; ++version) {
      response->add_validations()->mutable_validation()->set_version(version);
    }
    return grpc::Status::OK;
  }

  grpc::Status WatchEvents(grpc::ServerContext*,
                           const v1::WatchEventsRequest* request,
                           grpc::ServerWriter<v1::Event>* writer) override {
    v1::Event event;
    for (uint64_t id = request->after_id() + 1; id <= events; ++id) {
      event.set_id(id);
      writer->Write(event);
    }
    return grpc::Status::OK;
  }

  uint64_t versions = 0;
  uint64_t events = 0;
};

class UpdatePastTest : public testing::Test {
 protected:
  UpdatePastTest() { run_.status.run.set_run_id("first"); }

  void Update(uint64_t versions, uint64_t events) {
    service_.versions = versions;
    service_.events = events;
    ASSERT_OK(UpdatePast(client_, run_));
  }

  FakeStatus service_;
  const LocalGrpcServer server_{{.services = {&service_}}};
  CoordinatorClient client_{server_.address()};
  WatchedRun run_;
};

TEST_F(UpdatePastTest, AnotherRunHasAnotherPast) {
  Update(4, 2);
  Update(5, 3);
  EXPECT_EQ(run_.history.training_size(), 5);
  EXPECT_EQ(run_.events.size(), 3);
  run_.status.run.set_run_id("second");
  Update(2, 1);
  EXPECT_EQ(run_.history.training_size(), 2);
  EXPECT_EQ(run_.history.validations_size(), 2);
  EXPECT_EQ(run_.events.size(), 1);
  EXPECT_EQ(run_.last_event, 1);
}

// The new leader lacks a version and an event.
TEST_F(UpdatePastTest, ATakeoverBeginsThePastAnew) {
  Update(4, 3);
  run_.status.run.set_epoch(2);
  Update(3, 2);
  EXPECT_EQ(run_.history.training_size(), 3);
  EXPECT_EQ(run_.events.size(), 2);
  EXPECT_EQ(run_.last_event, 2);
}

TEST_F(UpdatePastTest, ALongHistoryIsThinnedOut) {
  Update(2048, 0);
  EXPECT_EQ(run_.history.training_size(), 2048);
  Update(2050, 0);
  const auto& training = run_.history.training();
  ASSERT_EQ(training.size(), 1026);
  EXPECT_EQ(run_.history.validations_size(), 1026);
  EXPECT_EQ(training[0].version(), 1);
  EXPECT_EQ(training[1].version(), 2);
  EXPECT_EQ(training[2].version(), 4);
  EXPECT_EQ(training[1025].version(), 2050);
  Update(2051, 0);
  EXPECT_EQ(training.size(), 1027);
}

}  // namespace
}  // namespace causeway
