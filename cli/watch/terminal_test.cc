// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "cli/watch/terminal.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <string>
#include <thread>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

using testing::HasSubstr;

// A pseudo-terminal: writes to `user_` are typed keys; reads from it return the
// output.
class TerminalTest : public testing::Test {
 protected:
  TerminalTest() {
    setenv("TERM", "xterm", 1);
    user_ = posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK);
    EXPECT_EQ(grantpt(user_), 0);
    EXPECT_EQ(unlockpt(user_), 0);
    program_ = open(ptsname(user_), O_RDWR | O_NOCTTY);
    Resize(24, 80);
  }

  ~TerminalTest() override {
    close(program_);
    close(user_);
  }

  void Resize(uint16_t rows, uint16_t columns) {
    const winsize size = {
        .ws_row = rows, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
    EXPECT_EQ(ioctl(user_, TIOCSWINSZ, &size), 0);
  }

  std::string Shown() {
    std::string text(1 << 16, '\0');
    const ssize_t size = read(user_, text.data(), text.size());
    return size < 0 ? "" : text.substr(0, static_cast<size_t>(size));
  }

  tcflag_t LocalModes() {
    termios settings = {};
    EXPECT_EQ(tcgetattr(program_, &settings), 0);
    return settings.c_lflag;
  }

  int user_ = -1;
  int program_ = -1;
};

TEST_F(TerminalTest, EverythingIsAsBeforeAtTheEnd) {
  const tcflag_t before = LocalModes();
  ASSERT_OK_AND_ASSIGN(auto terminal, Terminal::Take(program_, program_));
  EXPECT_EQ(Shown(), "\x1b[?1049h\x1b[?25l\x1b[?7l");
  EXPECT_EQ(LocalModes() & (ICANON | ECHO), 0);
  terminal.reset();
  EXPECT_EQ(Shown(), "\x1b[?7h\x1b[?25h\x1b[?1049l");
  EXPECT_EQ(LocalModes(), before);
}

TEST_F(TerminalTest, DrawsWhatThereIsRoomFor) {
  Resize(2, 4);
  ASSERT_OK_AND_ASSIGN(auto terminal, Terminal::Take(program_, program_));
  Shown();
  // A line that is full leaves nothing to erase, and the last one does not
  // scroll.
  terminal->Draw({{"ab"}, {"wxyz"}, {"no"}});
  EXPECT_EQ(Shown(), "\x1b[Hab\x1b[K\r\nwxyz");
  terminal->Draw({{"ab"}});
  EXPECT_EQ(Shown(), "\x1b[Hab\x1b[K\r\n\x1b[J");
}

TEST_F(TerminalTest, AnotherSizeEndsTheWait) {
  ASSERT_OK_AND_ASSIGN(auto terminal, Terminal::Take(program_, program_));
  Resize(30, 100);
  // The terminal is not this process's own, so its driver sends no signal.
  raise(SIGWINCH);
  EXPECT_TRUE(terminal->Wait(absl::Hours(1)));
  EXPECT_EQ(terminal->Format().rows, 30);
  EXPECT_EQ(terminal->Format().columns, 100);
}

TEST_F(TerminalTest, KeysAndSignalsEndIt) {
  ASSERT_OK_AND_ASSIGN(auto terminal, Terminal::Take(program_, program_));
  EXPECT_TRUE(terminal->Wait(absl::ZeroDuration()));
  ASSERT_EQ(write(user_, "x", 1), 1);
  EXPECT_TRUE(terminal->Wait(absl::Hours(1)));
  ASSERT_EQ(write(user_, "q", 1), 1);
  EXPECT_FALSE(terminal->Wait(absl::Hours(1)));
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    raise(number);
    EXPECT_FALSE(terminal->Wait(absl::Hours(1)));
  }
}

TEST_F(TerminalTest, ASignalEndsAWaitThatGoesOn) {
  ASSERT_OK_AND_ASSIGN(auto terminal, Terminal::Take(program_, program_));
  std::thread user([waiting = pthread_self()] {
    absl::SleepFor(absl::Milliseconds(100));
    pthread_kill(waiting, SIGINT);
  });
  EXPECT_FALSE(terminal->Wait(absl::Hours(1)));
  user.join();
}

TEST_F(TerminalTest, OutputWithoutAScreenIsNoTerminal) {
  EXPECT_TRUE(Terminal::IsOne(program_));
  setenv("TERM", "dumb", 1);
  EXPECT_FALSE(Terminal::IsOne(program_));
  unsetenv("TERM");
  EXPECT_FALSE(Terminal::IsOne(program_));
  setenv("TERM", "xterm", 1);
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  EXPECT_FALSE(Terminal::IsOne(ends[1]));
  close(ends[0]);
  close(ends[1]);
}

TEST_F(TerminalTest, ColoursCanBeRefused) {
  ASSERT_OK_AND_ASSIGN(auto terminal, Terminal::Take(program_, program_));
  unsetenv("NO_COLOR");
  EXPECT_TRUE(terminal->Format().colours);
  setenv("NO_COLOR", "1", 1);
  EXPECT_FALSE(terminal->Format().colours);
}

}  // namespace
}  // namespace causeway
