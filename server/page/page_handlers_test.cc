// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Tests what a browser gets from a real coordinator. tests/page drives the page
// itself in a browser.
#include "server/page/page_handlers.h"

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/proto_time.h"
#include "common/testing/http_client.h"
#include "common/testing/status_matchers.h"
#include "common/transport/grpc_status.h"
#include "gmock/gmock.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "proto/status.grpc.pb.h"
#include "server/edge/copy_source.h"
#include "server/edge/testing/served_engine.h"
#include "server/replication/follower.h"
#include "server/rules/event_filter.h"
#include "server/storage/testing/failing_disk.h"

namespace causeway {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

class PageHandlersTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK(driver_.Start(TestRunConfig(
        "membership { min_islands: 1 } synchronization { fragments: 1 }")));
    ASSERT_OK(driver_.Serve());
    ASSERT_OK_AND_ASSIGN(
        http_, HttpServer::Start(
                   {.address = "127.0.0.1:0",
                    .ready = [] { return absl::OkStatus(); },
                    .handlers = PageHandlers(
                        PageOf(driver_.server().status()),
                        [this] { return absl::FromUnixSeconds(seconds_); }),
                    .now = SteadyWallClock()}));
  }
  void TearDown() override { http_.reset(); }

  json Get(const std::string& path) {
    const HttpReply reply = HttpGet(http_->port(), path);
    EXPECT_EQ(reply.status, 200);
    EXPECT_THAT(reply.head, HasSubstr("application/json"));
    return json::parse(reply.body, nullptr, /*allow_exceptions=*/false);
  }

  // Makes one round by one island.
  void MakeRound() {
    ASSERT_OK_AND_ASSIGN(const v1::IslandIdentity island, driver_.Join("east"));
    ASSERT_OK_AND_ASSIGN(const std::vector<float> anchor,
                         driver_.Fetch(island, 0, 0));
    ASSERT_OK(driver_
                  .Contribute(driver_.MakeContribution(island, 0, 0, anchor,
                                                       Shifted(anchor, 0.01f)))
                  .status());
    ASSERT_TRUE(driver_.AwaitVersion(0, 1));
  }

  // The page takes this for the time.
  std::atomic<int64_t> seconds_ = 1700000000;
  ServedEngine driver_;
  std::unique_ptr<HttpServer> http_;
};

TEST_F(PageHandlersTest, ThePageIsSmallAndLoadsNothingElse) {
  const HttpReply html = HttpGet(http_->port(), "/");
  const HttpReply css = HttpGet(http_->port(), "/page.css");
  const HttpReply js = HttpGet(http_->port(), "/page.js");
  EXPECT_THAT(html.head, HasSubstr("text/html"));
  EXPECT_THAT(html.head, HasSubstr("Content-Security-Policy: default-src 'se"));
  EXPECT_THAT(html.head, HasSubstr("nosniff"));
  EXPECT_THAT(css.head, HasSubstr("text/css"));
  EXPECT_THAT(js.head, HasSubstr("text/javascript"));
  EXPECT_THAT(html.body, HasSubstr("page.css"));
  EXPECT_THAT(js.body, HasSubstr("api/status"));
  EXPECT_THAT(js.body, Not(HasSubstr("innerHTML")));
  EXPECT_LT(html.body.size() + css.body.size() + js.body.size(), 100'000);
  for (const HttpReply* reply : {&html, &css, &js}) {
    EXPECT_THAT(reply->body, Not(HasSubstr("https://")));
  }
}

TEST_F(PageHandlersTest, TheStatusHasRunIslandsAndFragments) {
  MakeRound();
  ++seconds_;
  const json status = Get("/api/status");
  EXPECT_EQ(status["run"]["config"]["name"], "test");
  EXPECT_EQ(status["islands"][0]["island_id"], "east");
  EXPECT_EQ(status["islands"][0]["state"], "LIVE");
  EXPECT_EQ(status["fragments"][0]["head"]["version"], "1");
  EXPECT_TRUE(status["fragments"][0]["last_round"].contains("sent_at"));
  EXPECT_TRUE(status["run"].contains("time"));
}

TEST_F(PageHandlersTest, AnAnswerIsSharedForAMoment) {
  EXPECT_FALSE(Get("/api/status").contains("islands"));
  ASSERT_OK(driver_.Join("east").status());
  EXPECT_FALSE(Get("/api/status").contains("islands"));
  ++seconds_;
  EXPECT_TRUE(Get("/api/status").contains("islands"));
}

TEST_F(PageHandlersTest, ADiskThatStandsStillIsSaid) {
  FailingDisk& disk = TheFailingDisk();
  disk.stands_still = true;
  std::thread operation([&] { EXPECT_OK(driver_.engine().Pause({}, "me")); });
  while (disk.waiting == 0) std::this_thread::yield();
  driver_.AdvanceSeconds(7200);
  for (const char* const path :
       {"/api/status", "/api/history", "/api/events"}) {
    const HttpReply reply = HttpGet(http_->port(), path);
    EXPECT_EQ(reply.status, 503) << path;
    EXPECT_THAT(reply.body, HasSubstr("a write has taken 7200")) << path;
  }
  const auto stub = v1::Status::NewStub(driver_.channel());
  grpc::ClientContext islands_context;
  v1::ListIslandsResponse islands;
  EXPECT_THAT(FromGrpcStatus(stub->ListIslands(&islands_context, {}, &islands)),
              IsUnavailable("a write has taken 7200"));
  grpc::ClientContext events_context;
  EXPECT_THAT(FromGrpcStatus(stub->WatchEvents(&events_context, {})->Finish()),
              IsUnavailable("a write has taken 7200"));
  disk.Repair();
  operation.join();
  EXPECT_EQ(Get("/api/status")["run"]["state"], "PAUSED");
}

TEST(PageTest, ARequestThatWaitsHoldsUpNoOther) {
  absl::Notification begun;
  absl::Notification go_on;
  const auto handlers = PageHandlers(
      {.status =
           [&] {
             if (!begun.HasBeenNotified()) begun.Notify();
             go_on.WaitForNotification();
             return v1::PageData();
           },
       .events = [](uint64_t, uint64_t,
                    const EventFilter&) { return std::vector<v1::Event>(); }},
      SteadyWallClock());
  const auto status_of = [&](const char* path) {
    return handlers.at(path)(HttpRequest()).status;
  };
  std::thread first([&] { EXPECT_EQ(status_of("/api/status"), 200); });
  begun.WaitForNotification();
  EXPECT_EQ(status_of("/api/status"), 503);
  EXPECT_EQ(status_of("/api/events"), 200);
  go_on.Notify();
  first.join();
  EXPECT_EQ(status_of("/api/status"), 200);
}

TEST_F(PageHandlersTest, TheHistoryContinuesAfterAVersion) {
  MakeRound();
  EXPECT_EQ(Get("/api/history")["training"][0]["version"], "1");
  EXPECT_EQ(Get("/api/history?training_after=1").size(), 0);
}

TEST_F(PageHandlersTest, NumbersThatAreNoneAreRefused) {
  for (const char* const path :
       {"/api/history?training_after=x", "/api/history?validation_after=-3",
        "/api/events?after=x", "/api/events?min_severity="}) {
    const HttpReply reply = HttpGet(http_->port(), path);
    EXPECT_EQ(reply.status, 400) << path;
    EXPECT_THAT(reply.body, HasSubstr("must be a whole number")) << path;
  }
}

TEST_F(PageHandlersTest, TheNewestEventsComeInOrder) {
  for (int i = 0; i < 205; ++i) {
    driver_.engine().Record({.kind = "round_merged",
                             .text = absl::StrCat("event ", i, "</script>")});
  }
  const json all = Get("/api/events");
  ASSERT_EQ(all["events"].size(), 200);
  const std::string newest = Get("/api/status")["newest_event"];
  EXPECT_EQ(all["events"][199]["id"], newest);
  EXPECT_EQ(all["events"][199]["text"], "event 204</script>");
  const uint64_t known = std::stoull(newest) - 2;
  EXPECT_EQ(Get(absl::StrCat("/api/events?after=", known))["events"].size(), 2);
  EXPECT_EQ(Get("/api/events?after=100000").count("events"), 0);
  const json notices = Get("/api/events?min_severity=2")["events"];
  ASSERT_EQ(notices.size(), 1);
  EXPECT_EQ(notices[0]["kind"], "coordinator_started");
  EXPECT_EQ(notices[0]["severity"], "NOTICE");
  EXPECT_EQ(Get("/api/events?min_severity=99")["events"].size(), 200);
  driver_.engine().Record(
      {.text = absl::StrCat("a", std::string(298, 'b'), "é")});
  EXPECT_EQ(Get("/api/events")["events"].back()["text"],
            absl::StrCat("a", std::string(298, 'b'), "…"));
  // The text may stand in a script element.
  EXPECT_THAT(HttpGet(http_->port(), "/api/events").body, Not(HasSubstr("</")));
}

// Both lists are bounded for any number of live and departed islands.
TEST(ManyIslandsTest, AreListedInPagesAndFitThePage) {
  constexpr int kGone = 300;
  constexpr int kLive = 256;
  constexpr int kRanks = 2048;
  ServedEngine driver;
  ASSERT_OK(
      driver.Start(TestRunConfig("membership { min_islands: 1 "
                                 "max_islands: 256 }")));
  v1::SessionRequest beat;
  for (int i = 0; i < kRanks; ++i) {
    v1::RankProgress& rank = *beat.mutable_progress()->add_ranks();
    rank.set_micro_batches(1 << 28);
    rank.set_tokens(uint64_t{1} << 40);
  }
  const auto join = [&](const std::string& name) {
    ASSERT_OK_AND_ASSIGN(*beat.mutable_identity(), driver.Join(name));
    ASSERT_OK(driver.engine().Heartbeat(beat));
  };
  for (int i = 0; i < kGone; ++i) {
    join(absl::StrCat("gone-", i));
    ASSERT_OK(driver.Leave(beat.identity()));
  }
  for (int i = 0; i < kLive; ++i) join(absl::StrCat("live-", i));
  ASSERT_OK(driver.Serve());

  const auto stub = v1::Status::NewStub(driver.channel());
  v1::ListIslandsRequest request;
  v1::ListIslandsResponse page;
  request.set_include_departed(true);
  std::map<std::string, int> ranks;
  do {
    grpc::ClientContext context;
    const grpc::Status status = stub->ListIslands(&context, request, &page);
    ASSERT_TRUE(status.ok()) << status.error_message();
    ASSERT_GT(page.islands_size(), 0);
    EXPECT_LT(page.ByteSizeLong(), 512 << 10);
    for (const v1::IslandStatus& island : page.islands()) {
      EXPECT_GT(island.island_id(), request.after());
      request.set_after(island.island_id());
      ranks[island.island_id()] = island.progress().ranks_size();
    }
  } while (page.more());
  EXPECT_EQ(ranks.size(), kGone + kLive);
  EXPECT_EQ(ranks["gone-7"], 0);
  EXPECT_EQ(ranks["live-7"], kRanks);

  ASSERT_OK_AND_ASSIGN(
      const auto http,
      HttpServer::Start(
          {.address = "127.0.0.1:0",
           .ready = [] { return absl::OkStatus(); },
           .handlers = PageHandlers(PageOf(driver.server().status()),
                                    SteadyWallClock()),
           .now = SteadyWallClock()}));
  const HttpReply reply = HttpGet(http->port(), "/api/status");
  EXPECT_LT(reply.body.size(), 1'000'000);
  const json status = json::parse(reply.body, nullptr, false);
  EXPECT_EQ(status["islands"].size(), 100 + kLive);
}

TEST_F(PageHandlersTest, AFollowerShowsItsCopy) {
  MakeRound();
  ASSERT_OK_AND_ASSIGN(
      const std::unique_ptr<Follower> follower,
      Follower::Open(
          {.state_dir = driver_.state_dir() + "-copy", .name = "f"}));
  absl::Time now = absl::FromUnixSeconds(1'000'000);
  CopySource copy(follower.get(), [&] { return now; });
  ASSERT_OK_AND_ASSIGN(
      http_, HttpServer::Start(
                 {.address = "127.0.0.1:0",
                  .ready = [] { return absl::OkStatus(); },
                  .handlers = PageHandlers(PageOf(&copy), SteadyWallClock()),
                  .now = SteadyWallClock()}));
  EXPECT_EQ(HttpGet(http_->port(), "/api/status").status, 503);
  const std::string leader = driver_.address();
  follower->Follow(leader);
  for (int i = 0; !follower->view().is_complete && i < 1000; ++i) {
    absl::SleepFor(absl::Milliseconds(20));
  }
  const json status = Get("/api/status");
  EXPECT_EQ(status["run"]["follows"], leader);
  EXPECT_EQ(status["fragments"][0]["head"]["version"], "1");
  EXPECT_EQ(status["islands"][0]["island_id"], "east");
  EXPECT_NE(status["newest_event"], "0");
  EXPECT_FALSE(Get("/api/events")["events"].empty());
  EXPECT_EQ(HttpGet(http_->port(), "/api/history").status, 200);
  http_.reset();

  std::string etcd_problem = "etcd is away";
  const auto observe = [&] {
    copy.Observe([] { return "it is lost"; }, etcd_problem);
  };
  observe();
  const v1::RunStatus cut_off = copy.Read()->run();
  ASSERT_EQ(cut_off.attention_size(), 1);
  EXPECT_EQ(cut_off.attention(0).severity(), v1::WARNING);
  EXPECT_EQ(cut_off.attention(0).text(), etcd_problem);
  etcd_problem.clear();
  observe();
  follower->Pause();
  observe();
  now += absl::Seconds(2);
  observe();
  EXPECT_EQ(copy.Read()->run().attention_size(), 0);
  now += absl::Seconds(4);
  observe();
  const v1::RunStatus alone = copy.Read()->run();
  ASSERT_EQ(alone.attention_size(), 1);
  EXPECT_TRUE(alone.is_copy());
  EXPECT_EQ(ToTime(alone.alone_since()), now - absl::Seconds(6));
  EXPECT_EQ(alone.attention(0).severity(), v1::CRITICAL);
  EXPECT_EQ(alone.attention(0).text(),
            "this coordinator follows no one: it is lost");
  EXPECT_EQ(ToTime(alone.attention(0).since()), now - absl::Seconds(6));
}

}  // namespace
}  // namespace causeway
