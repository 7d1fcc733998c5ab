// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Tests how the log keeps events, and finds them.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/os/file.h"
#include "common/proto_time.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/status.pb.h"
#include "server/rules/event_filter.h"
#include "server/storage/commit_log.h"

namespace causeway {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

constexpr absl::Time kStart = absl::FromUnixSeconds(1700000000);

class CommitLogEventsTest : public testing::Test {
 protected:
  void SetUp() override {
    const std::string directory = absl::StrCat(
        testing::TempDir(), "/",
        testing::UnitTest::GetInstance()->current_test_info()->name());
    ASSERT_OK(CreateDirectory(directory));
    ASSERT_OK_AND_ASSIGN(
        log_, CommitLog::Open(absl::StrCat(directory, "/run.sqlite3")));
    ASSERT_OK(log_->CreateRun({.run_id = "run-1", .created_at = kStart}));
  }

  std::unique_ptr<CommitLog> log_;
};

TEST_F(CommitLogEventsTest, APageOfEventsIsBounded) {
  LogBatch batch;
  for (int i = 0; i < 4; ++i) {
    batch.events.push_back(
        {.time = kStart,
         .kind = "island_left",
         .text = std::string(CommitLog::kEventPageBytes / 2, 'x')});
  }
  batch.events.push_back(
      {.time = kStart,
       .kind = "island_left",
       .text = std::string(3 * CommitLog::kEventPageBytes, 'x')});
  ASSERT_OK(log_->Apply(batch));
  EXPECT_THAT(log_->EventsAfter(0, 10), IsOkAndHolds(SizeIs(2)));
  EXPECT_THAT(log_->EventsAfter(2, 10), IsOkAndHolds(SizeIs(2)));
  EXPECT_THAT(log_->EventsAfter(4, 10), IsOkAndHolds(SizeIs(1)));
}

TEST_F(CommitLogEventsTest, EventsAreNumberedWithoutGaps) {
  for (int i = 0; i < 3; ++i) {
    LogBatch batch{.events = {{.time = kStart,
                               .kind = "island_joined",
                               .island_id = "a",
                               .text = absl::StrCat("event ", i)},
                              {.time = kStart, .kind = "island_left"}}};
    ASSERT_OK(log_->Apply(batch));
    EXPECT_EQ(batch.events[0].id, 2 * i + 1);
    EXPECT_EQ(batch.events[1].id, 2 * i + 2);
  }
  ASSERT_OK_AND_ASSIGN(const std::vector<v1::Event> events,
                       log_->EventsAfter(2, 2));
  ASSERT_THAT(events, SizeIs(2));
  EXPECT_EQ(events[0].id(), 3);
  EXPECT_EQ(ToTime(events[0].time()), kStart);
  EXPECT_EQ(events[0].kind(), "island_joined");
  EXPECT_EQ(events[0].island_id(), "a");
  EXPECT_EQ(events[0].text(), "event 1");
  EXPECT_EQ(events[1].id(), 4);
  EXPECT_THAT(log_->EventsAfter(UINT64_MAX, UINT64_MAX),
              IsOkAndHolds(IsEmpty()));
}

TEST_F(CommitLogEventsTest, AFilterFindsEventsBehindThousandsOfOthers) {
  LogBatch batch;
  const auto add = [&](absl::string_view kind) {
    batch.events.push_back({.time = kStart + absl::Seconds(batch.events.size()),
                            .kind = std::string(kind)});
  };
  for (const absl::string_view kind : {"island_joined", "run_suspended"}) {
    for (int i = 0; i < 10'000; ++i) add("round_merged");
    add(kind);
  }
  for (int i = 0; i < 10'000; ++i) add("validated");
  ASSERT_OK(log_->Apply(batch));
  const auto ids = [](const absl::StatusOr<std::vector<v1::Event>>& events) {
    EXPECT_OK(events);
    std::vector<uint64_t> ids;
    for (const v1::Event& event : *events) ids.push_back(event.id());
    return ids;
  };
  const EventFilter notices = {.min_severity = v1::NOTICE};
  EXPECT_THAT(ids(log_->EventsAfter(0, 10, notices)),
              ElementsAre(10'001, 20'002));
  EXPECT_THAT(ids(log_->EventsAfter(0, 1, notices)), ElementsAre(10'001));
  EXPECT_THAT(ids(log_->EventsAfter(20'002, 10, notices)), IsEmpty());
  EXPECT_THAT(ids(log_->NewestEvents(0, 10, notices)),
              ElementsAre(10'001, 20'002));
  EXPECT_THAT(ids(log_->NewestEvents(0, 1, notices)), ElementsAre(20'002));
  EXPECT_THAT(ids(log_->NewestEvents(10'001, 10, notices)),
              ElementsAre(20'002));
  EXPECT_THAT(ids(log_->NewestEvents(0, 2)), ElementsAre(30'001, 30'002));
  EXPECT_THAT(
      ids(log_->EventsAfter(0, 10,
                            {.kinds = {"run_suspended", "island_joined"},
                             .since = kStart + absl::Seconds(10'001)})),
      ElementsAre(20'002));
  const auto newest = log_->NewestEvents(0, 1, notices);
  ASSERT_OK(newest);
  EXPECT_EQ(newest->at(0).severity(), v1::CRITICAL);
}

}  // namespace
}  // namespace causeway
