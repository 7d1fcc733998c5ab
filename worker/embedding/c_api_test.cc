// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Tests the C interface without a run; tests/end_to_end/embedding_test.cc has
// one.
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <string>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/transport/testing/certificates.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/embedding/causeway.h"

namespace {

using testing::HasSubstr;

// Nothing listens on port 1.
causeway_options Unreachable() {
  causeway_options options = CAUSEWAY_OPTIONS_INIT;
  options.coordinator = "127.0.0.1:1";
  options.island = "east";
  return options;
}

// Closes the island at the end of the test.
class CApiTest : public testing::Test {
 protected:
  ~CApiTest() override { causeway_close(island_); }

  causeway_island* island_ = nullptr;
};

TEST_F(CApiTest, RefusesWrongOptionsAndSaysWhichAndWhy) {
  const auto error = [&](const std::function<void(causeway_options&)>& change) {
    causeway_options options = Unreachable();
    change(options);
    EXPECT_EQ(causeway_open(&options, &island_), CAUSEWAY_INVALID_ARGUMENT);
    EXPECT_EQ(island_, nullptr);
    return std::string(causeway_last_error());
  };
  EXPECT_THAT(error([](auto& o) { o.coordinator = nullptr; }),
              HasSubstr("coordinator is empty"));
  EXPECT_THAT(error([](auto& o) { o.coordinator = "a:1,b:1,a:1"; }),
              HasSubstr("a:1 twice"));
  EXPECT_THAT(error([](auto& o) { o.island = ""; }),
              HasSubstr("island is empty"));
  EXPECT_THAT(error([](auto& o) { o.struct_size = 0; }),
              HasSubstr("CAUSEWAY_OPTIONS_INIT"));
  EXPECT_THAT(error([](auto& o) { o.struct_size += 8; }),
              HasSubstr("not older than the header"));
  EXPECT_THAT(error([](auto& o) { o.rank = 2; }), HasSubstr("rank is 2"));
  EXPECT_THAT(error([](auto& o) { o.ranks = 2049; }), HasSubstr("up to 2048"));
  EXPECT_THAT(error([](auto& o) { o.ranks = 2; }), HasSubstr("`leader`"));
  EXPECT_THAT(error([](auto& o) {
                o.ranks = 2;
                o.leader = "0.0.0.0:0";
              }),
              HasSubstr("rank_secret"));
  EXPECT_THAT(error([](auto& o) { o.bulk_connections = 1000; }),
              HasSubstr("bulk_connections is 1000"));
  EXPECT_THAT(error([](auto& o) { o.bulk_connections = -1; }),
              HasSubstr("bulk_connections is -1"));
  EXPECT_THAT(error([](auto& o) { o.uplink_bits = 0.4; }),
              HasSubstr("uplink_bits is 0.4; allowed: 0.5 to 8"));
  EXPECT_THAT(error([](auto& o) { o.rank_timeout_seconds = -1; }),
              HasSubstr("rank_timeout_seconds is -1"));
  EXPECT_THAT(error([](auto& o) { o.region = "B"; }),
              HasSubstr("region is \"B\""));
  EXPECT_THAT(error([](auto& o) { o.uplink_mbit_s = -1; }),
              HasSubstr("uplink_mbit_s or downlink_mbit_s is -1"));
  EXPECT_THAT(error([](auto& o) { o.join_token = "x"; }),
              HasSubstr("join_token needs tls"));
  EXPECT_EQ(causeway_open(nullptr, &island_), CAUSEWAY_INVALID_ARGUMENT);
}

// A program compiled with an older header passes fewer bytes.
TEST_F(CApiTest, OlderOptionsKeepTheDefaultsOfNewerFields) {
  causeway_options options = Unreachable();
  options.struct_size = offsetof(causeway_options, rank);
  // The library must not read this.
  options.rank = 77;
  EXPECT_EQ(causeway_open(&options, &island_), CAUSEWAY_OK)
      << causeway_last_error();
}

TEST_F(CApiTest, CallsInTheWrongOrderSayWhatIsMissing) {
  const causeway_options options = Unreachable();
  ASSERT_EQ(causeway_open(&options, &island_), CAUSEWAY_OK);
  causeway_run run;
  EXPECT_EQ(causeway_await_run(island_, 0.01, &run),
            CAUSEWAY_DEADLINE_EXCEEDED);
  causeway_tensor tensor;
  EXPECT_EQ(causeway_tensor_at(island_, 0, &tensor), CAUSEWAY_INVALID_ARGUMENT);
  EXPECT_THAT(causeway_last_error(), HasSubstr("causeway_await_run"));
  EXPECT_EQ(causeway_attach(island_, nullptr, 0), CAUSEWAY_INVALID_ARGUMENT);
  EXPECT_EQ(causeway_set_stream(island_, nullptr), CAUSEWAY_INVALID_ARGUMENT);
  causeway_step step;
  EXPECT_EQ(causeway_next_step(island_, 0, &step), CAUSEWAY_INVALID_ARGUMENT);
  EXPECT_EQ(causeway_next_step(nullptr, 0, &step), CAUSEWAY_INVALID_ARGUMENT);
  EXPECT_STREQ(causeway_leader(island_), "");
}

TEST_F(CApiTest, NullPointersAreRefused) {
  const causeway_options options = Unreachable();
  ASSERT_EQ(causeway_open(&options, &island_), CAUSEWAY_OK);
  causeway_step step;
  causeway_stuck_rank stuck;
  const char* variable = nullptr;
  int32_t rank = 0;
  for (const causeway_code code : {
           causeway_open(&options, nullptr),
           causeway_await_run(island_, 0, nullptr),
           causeway_tensor_at(island_, 0, nullptr),
           causeway_next_step(island_, 0, nullptr),
           causeway_after_step(island_, nullptr, 0, &step),
           causeway_synchronize(island_, 0, nullptr),
           causeway_audit(island_, nullptr, nullptr, 2),
           causeway_progress(island_, nullptr),
           causeway_watch_open(nullptr, &variable),
           causeway_watch_look(nullptr, 1, 1, 1, &stuck),
           causeway_watch_failed(nullptr, 0, 0, ""),
           causeway_watch_returned(nullptr, 0, ""),
           causeway_watch_take_corrupt(nullptr, &rank, &rank),
       }) {
    EXPECT_EQ(code, CAUSEWAY_INVALID_ARGUMENT);
    EXPECT_STREQ(causeway_last_error(), "a null pointer was passed");
  }
}

TEST_F(CApiTest, ACertificateThatExpiresSoonIsLogged) {
  const absl::Time now = absl::Now();
  causeway::TestAuthority authority(
      testing::TempDir() + "/authority",
      {now - absl::Hours(1), now + absl::Hours(1)});
  const causeway::TestIdentity soon = authority.Sign(
      "east.island.r.causeway", {now - absl::Hours(1), now + absl::Minutes(1)});
  causeway_options options = Unreachable();
  options.tls_ca = authority.certificate().c_str();
  options.tls_cert = soon.certificate.c_str();
  options.tls_key = soon.key.c_str();
  testing::internal::CaptureStderr();
  EXPECT_EQ(causeway_open(&options, &island_), CAUSEWAY_OK)
      << causeway_last_error();
  causeway_close(island_);
  island_ = nullptr;
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr(soon.certificate + "\" expires at "));
}

TEST_F(CApiTest, ALeaveBeforeTheJoinEndsTheIsland) {
  const causeway_options options = Unreachable();
  ASSERT_EQ(causeway_open(&options, &island_), CAUSEWAY_OK);
  ASSERT_EQ(causeway_request_leave(island_, "no time"), CAUSEWAY_OK);
  causeway_run run;
  EXPECT_EQ(causeway_await_run(island_, 60, &run), CAUSEWAY_CANCELLED);
  EXPECT_EQ(causeway_await_run(island_, 60, &run), CAUSEWAY_CANCELLED);
}

TEST_F(CApiTest, AnErrorOfTheLoopEndsTheIslandForGood) {
  const causeway_options options = Unreachable();
  ASSERT_EQ(causeway_open(&options, &island_), CAUSEWAY_OK);
  for (const causeway_code code :
       {CAUSEWAY_OK, CAUSEWAY_DEADLINE_EXCEEDED, CAUSEWAY_INVALID_ARGUMENT}) {
    EXPECT_EQ(causeway_fail(island_, code, "x"), CAUSEWAY_INVALID_ARGUMENT);
  }
  ASSERT_EQ(causeway_fail(island_, CAUSEWAY_OUT_OF_RANGE, "the loss is nan"),
            CAUSEWAY_OK);
  causeway_run run;
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(causeway_await_run(island_, 60, &run), CAUSEWAY_OUT_OF_RANGE);
    EXPECT_STREQ(causeway_last_error(), "the loss is nan");
  }
}

TEST_F(CApiTest, AForkCannotUseTheIsland) {
  const causeway_options options = Unreachable();
  ASSERT_EQ(causeway_open(&options, &island_), CAUSEWAY_OK);
  const pid_t child = fork();
  if (child == 0) {
    causeway_run run;
    const bool refused =
        causeway_await_run(island_, 1, &run) == CAUSEWAY_FAILED_PRECONDITION &&
        std::string(causeway_last_error()).find("a fork of it") !=
            std::string::npos;
    causeway_close(island_);
    _exit(refused ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(CApiTest, ARankThatFindsNoLeaderGivesUpInTime) {
  causeway_options options = Unreachable();
  options.ranks = 2;
  options.rank = 1;
  options.leader = "127.0.0.1:1";
  options.rank_timeout_seconds = 0.2;
  EXPECT_EQ(causeway_open(&options, &island_), CAUSEWAY_ABORTED);
  EXPECT_THAT(causeway_last_error(), HasSubstr("rank 0 of the island"));
}

// Rank 0, whose coordinator cannot be reached, and rank 1, in one process.
class CApiRanksTest : public CApiTest {
 protected:
  ~CApiRanksTest() override { causeway_close(follower_); }

  void SetUp() override {
    causeway_options options = Unreachable();
    options.ranks = 2;
    options.leader = "127.0.0.1:0";
    ASSERT_EQ(causeway_open(&options, &island_), CAUSEWAY_OK)
        << causeway_last_error();
    options.rank = 1;
    options.leader = causeway_leader(island_);
    ASSERT_EQ(causeway_open(&options, &follower_), CAUSEWAY_OK)
        << causeway_last_error();
  }

  causeway_island* follower_ = nullptr;
};

TEST_F(CApiRanksTest, OtherRanksHearWhyRank0HasNoRun) {
  ASSERT_EQ(causeway_fail(island_, CAUSEWAY_OUT_OF_RANGE, "no data"),
            CAUSEWAY_OK);
  causeway_run run;
  EXPECT_EQ(causeway_await_run(follower_, 60, &run), CAUSEWAY_ABORTED);
  EXPECT_STREQ(causeway_last_error(), "rank 0 has given up: no data");
}

TEST_F(CApiRanksTest, WhatAnotherRankHasSaidCountsMoreThanRank0sFailure) {
  ASSERT_EQ(causeway_fail(follower_, CAUSEWAY_UNKNOWN, "no such file"),
            CAUSEWAY_OK);
  ASSERT_EQ(causeway_fail(island_, CAUSEWAY_UNKNOWN, "connection closed"),
            CAUSEWAY_OK);
  causeway_run run;
  EXPECT_EQ(causeway_await_run(island_, 60, &run), CAUSEWAY_ABORTED);
  EXPECT_STREQ(causeway_last_error(), "rank 1 has given up: no such file");
}

TEST_F(CApiRanksTest, OtherRanksLeaveWithRank0BeforeTheRun) {
  ASSERT_EQ(causeway_request_leave(island_, "no time"), CAUSEWAY_OK);
  causeway_run run;
  ASSERT_EQ(causeway_await_run(island_, 60, &run), CAUSEWAY_CANCELLED);
  EXPECT_EQ(causeway_await_run(follower_, 60, &run), CAUSEWAY_CANCELLED);
}

}  // namespace
