// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "cli/commands.h"
#include "common/testing/grpc_server.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "proto/control.grpc.pb.h"
#include "proto/status.grpc.pb.h"

namespace causeway {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// A run with one live island, one that left, one fragment and three events.
class FakeStatus : public v1::Status::Service {
 public:
  grpc::Status GetRun(grpc::ServerContext*, const v1::GetRunRequest*,
                      v1::RunStatus* response) override {
    response->set_run_id("run-1");
    if (severity != v1::SEVERITY_UNSPECIFIED) {
      response->add_attention()->set_severity(severity);
      response->mutable_attention(0)->set_text("look at this");
      *response->mutable_attention(0)->mutable_since() = since;
    }
    if (time.seconds() > 0) *response->mutable_time() = time;
    return run_end;
  }

  grpc::Status ListIslands(grpc::ServerContext*,
                           const v1::ListIslandsRequest* request,
                           v1::ListIslandsResponse* response) override {
    // Each page has one island.
    if (request->include_departed() && request->after().empty()) {
      response->add_islands()->set_island_id("departed");
      response->set_more(true);
    } else {
      response->add_islands()->set_island_id("north");
    }
    return grpc::Status::OK;
  }

  grpc::Status ListFragments(grpc::ServerContext*,
                             const v1::ListFragmentsRequest*,
                             v1::ListFragmentsResponse* response) override {
    response->add_fragments()->set_size(1234567);
    return grpc::Status::OK;
  }

  grpc::Status WatchEvents(grpc::ServerContext* context,
                           const v1::WatchEventsRequest* request,
                           grpc::ServerWriter<v1::Event>* writer) override {
    watched = *request;
    has_deadline =
        context->deadline() != std::chrono::system_clock::time_point::max();
    for (uint64_t id = request->after_id() + 1; id <= events; ++id) {
      v1::Event event;
      event.set_id(id);
      event.set_text(absl::StrCat("event ", id));
      writer->Write(event);
    }
    if (request->recorded_only()) return grpc::Status::OK;
    if (more_each_time) ++events;
    return grpc::Status(follow_end, "restarting");
  }

  grpc::Status run_end = grpc::Status::OK;
  v1::Severity severity = v1::SEVERITY_UNSPECIFIED;
  // The start of a problem, and the coordinator's time if it reports one.
  google::protobuf::Timestamp since;
  google::protobuf::Timestamp time;
  uint64_t events = 3;
  v1::WatchEventsRequest watched;
  bool has_deadline = false;
  bool more_each_time = false;
  grpc::StatusCode follow_end = grpc::StatusCode::UNAVAILABLE;
};

// Two peers.
class FakeControl : public v1::Control::Service {
 public:
  grpc::Status ListPeers(grpc::ServerContext*, const v1::ListPeersRequest*,
                         v1::ListPeersResponse* response) override {
    response->add_peers()->set_peer("10.0.0.7");
    response->add_peers()->set_peer("island north");
    response->mutable_peers(1)->set_held_bytes(2'000'000);
    return grpc::Status::OK;
  }
};

class StatusCommandsTest : public testing::Test {
 protected:
  StatusCommandsTest() {
    environment_.now = [] { return absl::FromUnixSeconds(1700000000); };
    environment_.sleep = [this](absl::Duration) { return --sleeps_ > 0; };
    environment_.time_zone = absl::UTCTimeZone();
  }

  int Run(std::vector<std::string> words) {
    out_.str("");
    err_.str("");
    words.push_back("--coordinator=" + address_);
    return RunCommandLine("causeway", "", StatusCommands(environment_), words,
                          out_, err_);
  }

  FakeStatus service_;
  FakeControl control_;
  LocalGrpcServer server_{{.services = {&service_, &control_}}};
  std::string address_ = server_.address();
  int sleeps_ = 1;
  StatusEnvironment environment_;
  std::ostringstream out_;
  std::ostringstream err_;
};

TEST_F(StatusCommandsTest, StatusAsTextAndJson) {
  EXPECT_EQ(Run({"status"}), kExitOk);
  EXPECT_THAT(out_.str(),
              AllOf(HasSubstr("run-1"), HasSubstr("north"), HasSubstr("1.23M"),
                    Not(HasSubstr("departed"))));
  EXPECT_EQ(Run({"status", "--json", "--all"}), kExitOk);
  EXPECT_EQ(nlohmann::json::parse(out_.str())["islands"].size(), 2);
}

TEST_F(StatusCommandsTest, ACheckExitsWithTheWorstProblem) {
  EXPECT_EQ(Run({"status", "--check"}), kExitOk);
  EXPECT_THAT(out_.str(), AllOf(HasSubstr("run-1"), Not(HasSubstr("north"))));
  service_.severity = v1::NOTICE;
  EXPECT_EQ(Run({"status", "--check"}), kExitOk);
  service_.severity = v1::WARNING;
  EXPECT_EQ(Run({"status", "--check"}), kExitWarning);
  EXPECT_THAT(out_.str(), HasSubstr("look at this"));
  service_.severity = v1::CRITICAL;
  EXPECT_EQ(Run({"status", "--check"}), kExitCritical);
  EXPECT_EQ(Run({"status", "--check", "--json"}), kExitCritical);
  EXPECT_EQ(nlohmann::json::parse(out_.str())["run"]["run_id"], "run-1");
  EXPECT_EQ(Run({"status"}), kExitOk);
  service_.run_end = grpc::Status(grpc::StatusCode::PERMISSION_DENIED, "no");
  EXPECT_EQ(Run({"status", "--check"}), kExitFailure);
}

TEST_F(StatusCommandsTest, AgesGoByTheCoordinatorsClock) {
  service_.severity = v1::WARNING;
  service_.since.set_seconds(1700000000 - 90);
  EXPECT_EQ(Run({"status"}), kExitOk);
  EXPECT_THAT(out_.str(), HasSubstr("warning for 1 min 30 s"));
  // The coordinator's clock is an hour ahead, or behind.
  for (const int64_t ahead : {3600, -3600}) {
    service_.since.set_seconds(1700000000 + ahead - 30);
    service_.time.set_seconds(1700000000 + ahead);
    EXPECT_EQ(Run({"status", "--check"}), kExitWarning);
    EXPECT_THAT(out_.str(), HasSubstr("warning for 30 s"));
    EXPECT_EQ(Run({"watch"}), kExitOk);
    EXPECT_THAT(out_.str(), HasSubstr("warning for 30 s"));
  }
}

TEST_F(StatusCommandsTest, IslandsAndFragments) {
  EXPECT_EQ(Run({"islands", "--all"}), kExitOk);
  EXPECT_THAT(out_.str(), AllOf(HasSubstr("north"), HasSubstr("departed")));
  EXPECT_EQ(Run({"islands", "--json"}), kExitOk);
  EXPECT_EQ(nlohmann::json::parse(out_.str())["islands"].size(), 1);
  EXPECT_EQ(Run({"fragments"}), kExitOk);
  EXPECT_THAT(out_.str(), HasSubstr("1.23M"));
  EXPECT_EQ(Run({"fragments", "--json"}), kExitOk);
  EXPECT_EQ(nlohmann::json::parse(out_.str())["fragments"][0]["size"],
            "1234567");
}

TEST_F(StatusCommandsTest, PeersWithTheMostMemoryFirst) {
  EXPECT_EQ(Run({"status", "--peers"}), kExitOk);
  EXPECT_THAT(out_.str(),
              testing::MatchesRegex(
                  "PEER .*REFUSED  CLOSED\n.*north .*1.91 MiB.*10.0.0.7 .*"));
  EXPECT_EQ(Run({"status", "--peers", "--json"}), kExitOk);
  EXPECT_EQ(nlohmann::json::parse(out_.str())["peers"].size(), 2);
}

TEST_F(StatusCommandsTest, EventsEndAtTheLastRecorded) {
  EXPECT_EQ(Run({"events", "--after", "1"}), kExitOk);
  EXPECT_THAT(out_.str(), AllOf(Not(HasSubstr("event 1")), HasSubstr("event 2"),
                                HasSubstr("event 3")));
  EXPECT_EQ(Run({"events", "--json"}), kExitOk);
  const std::vector<std::string> lines = absl::StrSplit(out_.str(), '\n');
  ASSERT_EQ(lines.size(), 4);
  EXPECT_EQ(nlohmann::json::parse(lines[2])["text"], "event 3");
  // A pager may take the events slowly.
  EXPECT_FALSE(service_.has_deadline);
}

TEST_F(StatusCommandsTest, EventsAreThoseThatTheFlagsAskFor) {
  EXPECT_EQ(Run({"events"}), kExitOk);
  EXPECT_EQ(service_.watched.min_severity(), v1::NOTICE);
  sleeps_ = 2;
  EXPECT_EQ(Run({"events", "--follow", "--kind", "island_left",
                 "--since=1970-01-02"}),
            kExitOk);
  // After a broken stream the request is the same.
  EXPECT_EQ(service_.watched.after_id(), 3);
  EXPECT_THAT(service_.watched.kinds(), testing::ElementsAre("island_left"));
  EXPECT_EQ(service_.watched.since().seconds(), 86400);
  EXPECT_EQ(Run({"events", "--since=yesterday"}), kExitUsage);
  EXPECT_THAT(err_.str(), HasSubstr("--since is \"yesterday\""));
}

TEST_F(StatusCommandsTest, FollowedEventsAreNeitherLostNorRepeated) {
  sleeps_ = 3;
  EXPECT_EQ(Run({"events", "--follow", "--json"}), kExitOk);
  // Each of the three streams was cut off after the recorded events.
  const std::vector<std::string> lines = absl::StrSplit(out_.str(), '\n');
  EXPECT_EQ(lines.size(), 4);
  EXPECT_THAT(err_.str(), HasSubstr("restarting"));
  EXPECT_EQ(sleeps_, 0);
}

TEST_F(StatusCommandsTest, WatchSurvivesARestart) {
  sleeps_ = 2;
  environment_.sleep = [this](absl::Duration) {
    server_.Shutdown();
    return --sleeps_ > 0;
  };
  EXPECT_EQ(Run({"watch"}), kExitOk);
  EXPECT_THAT(out_.str(),
              testing::ContainsRegex("run-1(.|\n)*no answer for(.|\n)*run-1"));
}

// Passes the bytes of one connection on, after a delay.
void RelayAfter(absl::Duration delay, int listener, int server_port) {
  const int client = accept(listener, nullptr, nullptr);
  absl::SleepFor(delay);
  sockaddr_in address = {.sin_family = AF_INET,
                         .sin_port = htons(static_cast<uint16_t>(server_port)),
                         .sin_addr = {htonl(INADDR_LOOPBACK)},
                         .sin_zero = {}};
  const int server = socket(AF_INET, SOCK_STREAM, 0);
  ASSERT_EQ(
      connect(server, reinterpret_cast<sockaddr*>(&address), sizeof(address)),
      0);
  pollfd ends[] = {{client, POLLIN, 0}, {server, POLLIN, 0}};
  std::vector<char> bytes(1 << 16);
  for (bool open = true; open;) {
    ASSERT_GT(poll(ends, 2, -1), 0);
    for (int from = 0; from < 2; ++from) {
      if (ends[from].revents == 0) continue;
      const ssize_t size = read(ends[from].fd, bytes.data(), bytes.size());
      open = size > 0 && write(ends[1 - from].fd, bytes.data(),
                               static_cast<size_t>(size)) == size;
    }
  }
  close(client);
  close(server);
}

TEST_F(StatusCommandsTest, AConnectionMayTakeAWhile) {
  sockaddr_in address = {.sin_family = AF_INET,
                         .sin_port = 0,
                         .sin_addr = {htonl(INADDR_LOOPBACK)},
                         .sin_zero = {}};
  socklen_t size = sizeof(address);
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  ASSERT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(listen(listener, 8), 0);
  ASSERT_EQ(getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size),
            0);
  int server_port = 0;
  ASSERT_TRUE(absl::SimpleAtoi(absl::StripPrefix(address_, "127.0.0.1:"),
                               &server_port));
  address_ = absl::StrCat("127.0.0.1:", ntohs(address.sin_port));
  std::thread relay(
      [&] { RelayAfter(absl::Milliseconds(1500), listener, server_port); });
  EXPECT_EQ(Run({"status"}), kExitOk) << err_.str();
  relay.join();
  close(listener);
}

TEST_F(StatusCommandsTest, AMissingCoordinatorIsNamed) {
  server_.Shutdown();
  EXPECT_EQ(Run({"status"}), kExitFailure);
  EXPECT_THAT(err_.str(),
              HasSubstr(absl::StrCat("no coordinator answers at ", address_,
                                     ": nothing listens there")));
  EXPECT_EQ(out_.str(), "");
}

TEST_F(StatusCommandsTest, AWrongListOfAddressesIsAUsageError) {
  address_ = "a:7070,b";
  EXPECT_EQ(Run({"status"}), kExitUsage);
  EXPECT_THAT(err_.str(), HasSubstr("--coordinator: \"a:7070,b\" has \"b\""));
}

TEST_F(StatusCommandsTest, ALostCoordinatorIsReportedOnceUntilTheNextEvent) {
  const std::string told = "waiting for the coordinator: ";
  const auto losses = [&] {
    return std::vector<std::string>(absl::StrSplit(err_.str(), told)).size() -
           1;
  };
  sleeps_ = 3;
  EXPECT_EQ(Run({"events", "--follow", "--after=2"}), kExitOk);
  EXPECT_EQ(losses(), 1);
  EXPECT_THAT(out_.str(),
              AllOf(Not(HasSubstr("event 2")), HasSubstr("event 3")));
  service_.more_each_time = true;
  sleeps_ = 3;
  EXPECT_EQ(Run({"events", "--follow"}), kExitOk);
  EXPECT_EQ(losses(), 3);
}

TEST_F(StatusCommandsTest, FollowingEndsWithAnErrorThatStays) {
  for (const auto passing :
       {grpc::StatusCode::CANCELLED, grpc::StatusCode::RESOURCE_EXHAUSTED}) {
    service_.follow_end = passing;
    sleeps_ = 2;
    EXPECT_EQ(Run({"events", "--follow"}), kExitOk);
    EXPECT_EQ(sleeps_, 0);
  }
  service_.follow_end = grpc::StatusCode::INTERNAL;
  sleeps_ = 2;
  EXPECT_EQ(Run({"events", "--follow"}), kExitFailure);
  EXPECT_EQ(sleeps_, 2);
  // It also ends when the output is no longer read, which is no error.
  service_.follow_end = grpc::StatusCode::UNAVAILABLE;
  out_.setstate(std::ios::badbit);
  EXPECT_EQ(Run({"events", "--follow"}), kExitOk);
  EXPECT_EQ(sleeps_, 2);
  EXPECT_EQ(err_.str(), "");
}

TEST_F(StatusCommandsTest, WatchObeysItsFlags) {
  absl::Duration interval;
  environment_.sleep = [&](absl::Duration slept) {
    interval = slept;
    return false;
  };
  EXPECT_EQ(Run({"watch", "--interval=2.5"}), kExitOk);
  EXPECT_EQ(interval, absl::Seconds(2.5));
  EXPECT_THAT(out_.str(),
              AllOf(Not(HasSubstr("departed")), testing::EndsWith("\n\n")));
  EXPECT_EQ(Run({"watch", "--all"}), kExitOk);
  EXPECT_THAT(out_.str(), HasSubstr("departed"));
  for (const char* const restless : {"0", "-1", "nan"}) {
    EXPECT_EQ(Run({"watch", "--interval", restless}), kExitUsage) << restless;
  }
}

TEST_F(StatusCommandsTest, EventsHaveTheTimeOfTheirReader) {
  environment_.time_zone = absl::FixedTimeZone(3600);
  EXPECT_EQ(Run({"events"}), kExitOk);
  EXPECT_THAT(out_.str(), HasSubstr("1970-01-01 01:00:00"));
}

TEST_F(StatusCommandsTest, ACoordinatorThatIsTooSlowIsNamed) {
  service_.run_end =
      grpc::Status(grpc::StatusCode::DEADLINE_EXCEEDED, "too late");
  EXPECT_EQ(Run({"status"}), kExitFailure);
  EXPECT_THAT(err_.str(), HasSubstr("no coordinator answers at " + address_));
}

}  // namespace
}  // namespace causeway
