// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/supervisor/stamp_reader.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <vector>

#include "absl/time/time.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

using testing::ElementsAre;
using testing::Field;
using testing::IsEmpty;

// A child of this process that waits for signals plays a rank's process.
class StampReaderTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(page_, RankStampPage::Create());
    reader_ = std::make_unique<StampReader>(page_.get());
    child_ = fork();
    ASSERT_GE(child_, 0);
    if (child_ == 0) {
      while (true) pause();
    }
    page_->rank(3).process = static_cast<uint32_t>(child_);
    page_->rank(3).beat = 1'000'000;
  }
  ~StampReaderTest() override {
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
  }

  // Sends the child a signal and waits for the state change `news`, which
  // others can still see.
  void Send(int signal, int news) const {
    kill(child_, signal);
    siginfo_t info;
    ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child_), &info, news | WNOWAIT),
              0);
  }
  std::vector<RankView> ReadAfter(absl::Duration time) {
    now_ += time;
    return reader_->Read(now_);
  }

  std::unique_ptr<RankStampPage> page_;
  std::unique_ptr<StampReader> reader_;
  absl::Time now_ = absl::UnixEpoch();
  pid_t child_ = -1;
};

TEST_F(StampReaderTest, SeesWhetherASignalHasStoppedTheProcess) {
  const auto is_stopped = [](bool stopped) {
    return ElementsAre(Field(&RankView::is_stopped, stopped));
  };
  EXPECT_THAT(ReadAfter(absl::ZeroDuration()), is_stopped(false));
  Send(SIGSTOP, WSTOPPED);
  EXPECT_THAT(ReadAfter(absl::ZeroDuration()), is_stopped(true));
  EXPECT_THAT(ReadAfter(absl::ZeroDuration()), is_stopped(true));
  Send(SIGCONT, WCONTINUED);
  EXPECT_THAT(ReadAfter(absl::ZeroDuration()), is_stopped(false));
  Send(SIGKILL, WEXITED);
  EXPECT_THAT(ReadAfter(absl::ZeroDuration()), IsEmpty());
}

TEST_F(StampReaderTest, AStoppedReaderCountsNoSilence) {
  const auto is_silent_for = [](absl::Duration time) {
    return ElementsAre(Field(&RankView::silence, time));
  };
  EXPECT_THAT(ReadAfter(absl::ZeroDuration()),
              is_silent_for(absl::ZeroDuration()));
  for (const int tenths : {1, 2}) {
    EXPECT_THAT(ReadAfter(absl::Milliseconds(100)),
                is_silent_for(absl::Milliseconds(100 * tenths)));
  }
  EXPECT_THAT(ReadAfter(absl::Hours(1)),
              is_silent_for(absl::Milliseconds(400)));
  page_->rank(3).beat = 2'000'000;
  EXPECT_THAT(ReadAfter(absl::Milliseconds(100)),
              is_silent_for(absl::ZeroDuration()));
}

TEST_F(StampReaderTest, ASectionTakesNoTimeWhileAllStandStill) {
  RankStamps& stamps = page_->rank(3);
  RankStamps::Lane& lane = stamps.lanes[0];
  const auto read_after = [&](absl::Duration time) {
    stamps.beat += static_cast<uint64_t>(absl::ToInt64Microseconds(time));
    return ReadAfter(time)[0].lanes[0].time;
  };
  const auto begin_step = [&] {
    ++lane.count;
    lane.now = stamps.beat << 8 | static_cast<uint64_t>(RankSection::kStep);
  };
  begin_step();
  EXPECT_EQ(read_after(absl::ZeroDuration()), absl::ZeroDuration());
  EXPECT_EQ(read_after(absl::Milliseconds(100)), absl::Milliseconds(100));
  // The supervisor and the rank are stopped. The next beat may come before or
  // after the next reading.
  EXPECT_EQ(read_after(absl::Hours(1)), absl::Milliseconds(300));
  EXPECT_EQ(read_after(absl::Milliseconds(100)), absl::Milliseconds(400));
  ReadAfter(absl::Hours(1));
  stamps.beat += 3'600'000'000;
  EXPECT_EQ(read_after(absl::Milliseconds(100)), absl::Milliseconds(700));
  // Both are stopped right after the step has begun, before a reading.
  begin_step();
  EXPECT_EQ(read_after(absl::Hours(1)), absl::ZeroDuration());
  EXPECT_EQ(read_after(absl::Milliseconds(100)), absl::Milliseconds(100));
}

TEST_F(StampReaderTest, ASectionLastsUntilTheLastBeat) {
  RankStamps& stamps = page_->rank(3);
  stamps.lanes[0].count = 1;
  stamps.lanes[0].now =
      stamps.beat << 8 | static_cast<uint64_t>(RankSection::kStep);
  ReadAfter(absl::ZeroDuration());
  stamps.beat += 50'000;
  EXPECT_EQ(ReadAfter(absl::Milliseconds(200))[0].lanes[0].time,
            absl::Milliseconds(50));
}

TEST_F(StampReaderTest, TheLastStepMayBeOfAnyRank) {
  EXPECT_EQ(reader_->LastStep(), 0);
  page_->rank(3).step = 7;
  page_->rank(1).step = 5;
  EXPECT_EQ(reader_->LastStep(), 7);
  Send(SIGKILL, WEXITED);
  EXPECT_EQ(reader_->LastStep(), 7);
}

}  // namespace
}  // namespace causeway
