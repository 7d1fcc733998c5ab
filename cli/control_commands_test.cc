// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Tests the requests that the operators' commands send to a coordinator.
#include <chrono>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "cli/commands.h"
#include "common/testing/grpc_server.h"
#include "gmock/gmock.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "proto/control.grpc.pb.h"
#include "proto/replication.grpc.pb.h"

namespace causeway {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// Keeps the last request of each kind. It does not know the island "stranger".
class FakeControl : public v1::Control::Service {
 public:
  grpc::Status PauseRun(grpc::ServerContext*,
                        const v1::PauseRunRequest* request,
                        v1::PauseRunResponse*) override {
    pause = *request;
    return grpc::Status::OK;
  }
  grpc::Status ResumeRun(grpc::ServerContext*, const v1::ResumeRunRequest*,
                         v1::ResumeRunResponse*) override {
    ++resumed;
    return grpc::Status::OK;
  }
  grpc::Status DrainIsland(grpc::ServerContext*,
                           const v1::DrainIslandRequest* request,
                           v1::DrainIslandResponse*) override {
    drain = *request;
    return request->island_id() == "stranger"
               ? grpc::Status(grpc::StatusCode::NOT_FOUND, "no live island")
               : grpc::Status::OK;
  }
  grpc::Status EvictIsland(grpc::ServerContext*,
                           const v1::EvictIslandRequest* request,
                           v1::EvictIslandResponse*) override {
    evict = *request;
    return request->island_id() == "gone"
               ? grpc::Status(grpc::StatusCode::ALREADY_EXISTS, "gone is away")
               : grpc::Status::OK;
  }
  grpc::Status ListQuarantine(grpc::ServerContext*,
                              const v1::ListQuarantineRequest* request,
                              v1::ListQuarantineResponse* response) override {
    *response->add_contributions() = held;
    if (request->include_decided()) {
      response->add_contributions()->set_island_id("decided-island");
    }
    return grpc::Status::OK;
  }
  grpc::Status AdmitContribution(grpc::ServerContext*,
                                 const v1::AdmitContributionRequest* request,
                                 v1::AdmitContributionResponse*) override {
    admitted = request->id();
    return grpc::Status::OK;
  }
  grpc::Status DropContribution(grpc::ServerContext*,
                                const v1::DropContributionRequest* request,
                                v1::DropContributionResponse*) override {
    dropped = request->id();
    return grpc::Status::OK;
  }
  grpc::Status AcceptData(grpc::ServerContext*,
                          const v1::AcceptDataRequest* request,
                          v1::AcceptDataResponse*) override {
    accepted = *request;
    return grpc::Status::OK;
  }

  v1::PauseRunRequest pause;
  v1::DrainIslandRequest drain;
  v1::EvictIslandRequest evict;
  v1::AcceptDataRequest accepted;
  v1::QuarantinedContribution held = [] {
    v1::QuarantinedContribution held;
    held.set_island_id("held-island");
    return held;
  }();
  int resumed = 0;
  uint64_t admitted = 0;
  uint64_t dropped = 0;
};

class FakeReplication : public v1::Replication::Service {
 public:
  grpc::Status Promote(grpc::ServerContext* context,
                       const v1::PromoteRequest* request,
                       v1::PromoteResponse* response) override {
    time_left = context->deadline() - std::chrono::system_clock::now();
    if (is_slow) return {grpc::StatusCode::DEADLINE_EXCEEDED, "slow"};
    if (!request->force()) {
      return grpc::Status(grpc::StatusCode::FAILED_PRECONDITION, "it is alive");
    }
    response->set_epoch(7);
    response->set_changes_behind(changes_behind);
    return grpc::Status::OK;
  }

  uint64_t changes_behind = 0;
  bool is_slow = false;
  // The time that the caller gave the last call.
  std::chrono::system_clock::duration time_left{};
};

class ControlCommandsTest : public testing::Test {
 protected:
  int Run(std::vector<std::string> words) {
    out_.str("");
    err_.str("");
    words.push_back("--coordinator=" + server_.address());
    return RunCommandLine("causeway", "", ControlCommands([] {
                            return absl::FromUnixSeconds(1700000000);
                          }),
                          words, out_, err_);
  }

  FakeControl service_;
  FakeReplication replication_;
  const LocalGrpcServer server_{{.services = {&service_, &replication_}}};
  std::ostringstream out_;
  std::ostringstream err_;
};

TEST_F(ControlCommandsTest, TheReasonIsSent) {
  ASSERT_EQ(Run({"pause", "--reason=a new disk"}), 0);
  EXPECT_EQ(service_.pause.reason(), "a new disk");
  ASSERT_EQ(Run({"drain", "east", "--reason=pre-emption"}), 0);
  EXPECT_EQ(service_.drain.island_id(), "east");
  EXPECT_EQ(service_.drain.reason(), "pre-emption");
  ASSERT_EQ(Run({"evict", "west", "--reason=it hangs"}), 0);
  EXPECT_EQ(service_.evict.island_id(), "west");
  EXPECT_EQ(service_.evict.reason(), "it hangs");
  ASSERT_EQ(Run({"resume"}), 0);
  EXPECT_EQ(service_.resumed, 1);
}

TEST_F(ControlCommandsTest, DataAreAcceptedByIsland) {
  ASSERT_EQ(Run({"data", "accept", "east"}), 0) << err_.str();
  EXPECT_EQ(service_.accepted.island_id(), "east");
  EXPECT_EQ(out_.str(), "the data that island east reads are the run's\n");
  service_.accepted.clear_island_id();
  EXPECT_EQ(Run({"data", "refuse", "east"}), kExitUsage);
  EXPECT_THAT(err_.str(), HasSubstr("data takes `accept ISLAND`"));
  EXPECT_EQ(Run({"data", "accept"}), kExitUsage);
  EXPECT_EQ(service_.accepted.island_id(), "");
}

TEST_F(ControlCommandsTest, APromotionSaysWhatIsLost) {
  EXPECT_EQ(Run({"promote"}), 1);
  EXPECT_THAT(err_.str(), HasSubstr("it is alive"));
  ASSERT_EQ(Run({"promote", "--force"}), 0) << err_.str();
  EXPECT_EQ(out_.str(),
            "the follower is the run's coordinator, with epoch 7\n");
  replication_.changes_behind = 3;
  ASSERT_EQ(Run({"promote", "--force"}), 0);
  EXPECT_THAT(out_.str(), HasSubstr("it lacked the last 3 changes"));
}

TEST_F(ControlCommandsTest, APromotionMayTakeMinutes) {
  replication_.is_slow = true;
  EXPECT_EQ(Run({"promote", "--force"}), 1);
  EXPECT_THAT(err_.str(), HasSubstr("it may still take over: ask"));
  EXPECT_GT(replication_.time_left, std::chrono::minutes(1));
}

TEST_F(ControlCommandsTest, ACommandThatChangesNothingSaysSoAndSucceeds) {
  EXPECT_EQ(Run({"evict", "gone"}), 0) << err_.str();
  EXPECT_THAT(out_.str(), HasSubstr("gone is away"));
}

TEST_F(ControlCommandsTest, ARefusalIsToldAndIsAFailure) {
  EXPECT_EQ(Run({"drain", "stranger"}), 1);
  EXPECT_THAT(err_.str(), HasSubstr("no live island"));
  EXPECT_EQ(out_.str(), "");
}

TEST_F(ControlCommandsTest, WhatWasDecidedIsListedOnDemand) {
  for (const char* form : {"--json=false", "--json"}) {
    ASSERT_EQ(Run({"quarantine", "list", form}), 0);
    EXPECT_THAT(out_.str(), AllOf(HasSubstr("held-island"),
                                  Not(HasSubstr("decided-island"))));
    ASSERT_EQ(Run({"quarantine", "list", "--all", form}), 0);
    EXPECT_THAT(out_.str(),
                AllOf(HasSubstr("held-island"), HasSubstr("decided-island")));
  }
}

TEST_F(ControlCommandsTest, AContributionIsNamedByItsNumber) {
  ASSERT_EQ(Run({"quarantine", "admit", "7"}), 0);
  EXPECT_EQ(service_.admitted, 7);
  ASSERT_EQ(Run({"quarantine", "drop", "8"}), 0);
  EXPECT_EQ(service_.dropped, 8);
  EXPECT_EQ(Run({"quarantine", "admit", "seven"}), kExitUsage);
  EXPECT_THAT(err_.str(), HasSubstr("not \"seven\""));
  EXPECT_EQ(Run({"quarantine", "admit"}), kExitUsage);
  EXPECT_EQ(Run({"quarantine", "drop", "8", "9"}), kExitUsage);
  EXPECT_EQ(Run({"quarantine", "keep", "8"}), kExitUsage);
  EXPECT_THAT(err_.str(),
              HasSubstr("quarantine takes `list` or `admit ID` or"));
  EXPECT_EQ(service_.admitted, 7);
  EXPECT_EQ(service_.dropped, 8);
}

TEST_F(ControlCommandsTest, EachAnswerSaysWhatWasDone) {
  const auto run = [&](std::vector<std::string> words) {
    EXPECT_EQ(Run(std::move(words)), 0);
    return out_.str();
  };
  EXPECT_EQ(run({"pause"}), "the run is paused\n");
  EXPECT_EQ(run({"resume"}), "the run continues\n");
  EXPECT_EQ(run({"drain", "east"}), "island east is asked to leave\n");
  EXPECT_EQ(run({"evict", "west"}), "island west is evicted\n");
  EXPECT_EQ(run({"quarantine", "admit", "7"}),
            "contribution 7 goes into the open round\n");
  EXPECT_EQ(run({"quarantine", "drop", "8"}), "contribution 8 is dropped\n");
}

TEST_F(ControlCommandsTest, TheTableOfTheQuarantineHasEveryField) {
  v1::QuarantinedContribution& held = service_.held;
  held.set_id(12);
  held.set_state(v1::QuarantinedContribution::DROPPED);
  held.set_incarnation(3);
  held.set_fragment(4);
  held.set_base_version(5);
  held.set_tokens(6000);
  held.set_norm(1234.5678);
  held.mutable_quarantined_at()->set_seconds(1700000000 - 80);
  held.set_reason("its norm");
  ASSERT_EQ(Run({"quarantine", "list"}), 0);
  EXPECT_EQ(out_.str(),
            "ID  STATE    ISLAND       INC  FRAGMENT  VERSION  TOKENS  NORM  "
            "       AGE  REASON\n"
            "12  dropped  held-island    3         4        5   6.00k  1235  "
            "1 min 20 s  its norm\n");
  EXPECT_EQ(Run({"quarantine", "list", "7"}), kExitUsage);
}

}  // namespace
}  // namespace causeway
