// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "cli/progress.h"

#include <sstream>

#include "gtest/gtest.h"

namespace causeway {
namespace {

class ProgressTest : public testing::Test {
 protected:
  void Pass(absl::Duration duration) { now_ += duration; }

  absl::Time now_ = absl::UnixEpoch();
  ProgressEnvironment environment_ = {.now = [this] { return now_; }};
  std::ostringstream out_;
};

TEST_F(ProgressTest, ALogGetsALineEveryTenSeconds) {
  {
    Progress progress("sequences", 80, environment_, out_);
    for (int i = 0; i < 5; ++i) {
      Pass(absl::Seconds(5));
      progress.Add(10);
    }
  }
  EXPECT_EQ(out_.str(),
            "20 of 80 sequences (25 %), 2.0/s, 30 s left\n"
            "40 of 80 sequences (50 %), 2.0/s, 20 s left\n");
}

TEST_F(ProgressTest, ATerminalHasOneLineThatIsGoneAtTheEnd) {
  environment_.terminal = true;
  {
    Progress progress("bytes", 4096, environment_, out_);
    progress.Add(1);
    Pass(absl::Milliseconds(99));
    progress.Add(1023);
    EXPECT_EQ(out_.str(), "");
    Pass(absl::Milliseconds(401));
    progress.Add(1024);
    EXPECT_EQ(out_.str(),
              "\r\x1b[K2.00 KiB of 4.00 KiB (50 %), 4.00 KiB/s, 0.5 s left");
    out_.str("");
  }
  EXPECT_EQ(out_.str(), "\r\x1b[K");
}

TEST_F(ProgressTest, AShortCommandShowsNothing) {
  environment_.terminal = true;
  { Progress("bytes", 0, environment_, out_); }
  EXPECT_EQ(out_.str(), "");
}

TEST_F(ProgressTest, TheTimeLeftIsUnknownBeforeAnythingIsDone) {
  environment_.terminal = true;
  Progress progress("rounds", 5, environment_, out_);
  Pass(absl::Seconds(1));
  progress.Add(0);
  EXPECT_EQ(out_.str(), "\r\x1b[K0 of 5 rounds (0 %), 0.0/s, - left");
}

}  // namespace
}  // namespace causeway
