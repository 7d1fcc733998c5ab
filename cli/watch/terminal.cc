// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "cli/watch/terminal.h"

#include <fcntl.h>
#include <langinfo.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <clocale>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <string>

#include "absl/memory/memory.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace causeway {
namespace {

// Terminal control (ECMA-48, and DEC private modes as xterm has them): the
// alternate screen, the cursor, the wrapping of long lines.
constexpr char kEnter[] = "\x1b[?1049h\x1b[?25l\x1b[?7l";
constexpr char kLeave[] = "\x1b[?7h\x1b[?25h\x1b[?1049l";
constexpr char kHome[] = "\x1b[H";
constexpr char kEraseLine[] = "\x1b[K";
constexpr char kEraseBelow[] = "\x1b[J";

constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP, SIGTSTP, SIGWINCH};

// Signal handlers write the signal's number here.
int signal_pipe[2] = {-1, -1};

void OnSignal(int number) {
  const int error = errno;
  const char byte = static_cast<char>(number);
  // A full pipe wakes the reader, too.
  [[maybe_unused]] const ssize_t written = write(signal_pipe[1], &byte, 1);
  errno = error;
}

void HandleSignals(void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;
  for (const int number : kSignals) sigaction(number, &action, nullptr);
}

bool HasUtf8() {
  std::setlocale(LC_CTYPE, "");
  return absl::string_view(nl_langinfo(CODESET)) == "UTF-8";
}

}  // namespace

bool Terminal::IsOne(int descriptor) {
  const char* const type = std::getenv("TERM");
  return isatty(descriptor) != 0 && type != nullptr &&
         absl::string_view(type) != "dumb";
}

absl::StatusOr<std::unique_ptr<Terminal>> Terminal::Take(int input,
                                                         int output) {
  if (pipe2(signal_pipe, O_NONBLOCK | O_CLOEXEC) != 0) {
    return absl::ResourceExhaustedError("no pipe can be made");
  }
  auto terminal = absl::WrapUnique(new Terminal(input, output));
  HandleSignals(OnSignal);
  terminal->Enter();
  return terminal;
}

Terminal::Terminal(int input, int output) : input_(input), output_(output) {
  termios settings;
  if (tcgetattr(input_, &settings) == 0) before_ = settings;
}

Terminal::~Terminal() {
  Leave();
  HandleSignals(SIG_DFL);
  close(signal_pipe[0]);
  close(signal_pipe[1]);
}

void Terminal::Enter() {
  if (before_.has_value()) {
    termios settings = *before_;
    settings.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    tcsetattr(input_, TCSADRAIN, &settings);
  }
  Write(kEnter);
}

void Terminal::Leave() {
  Write(kLeave);
  if (before_.has_value()) tcsetattr(input_, TCSADRAIN, &*before_);
}

void Terminal::Write(const std::string& text) {
  for (size_t done = 0; done < text.size();) {
    const ssize_t written =
        write(output_, text.data() + done, text.size() - done);
    // SIGHUP reports a terminal that is gone.
    if (written < 0 && errno != EINTR) return;
    if (written > 0) done += static_cast<size_t>(written);
  }
}

ScreenFormat Terminal::Format() const {
  static const bool has_utf8 = HasUtf8();
  ScreenFormat format = {.colours = std::getenv("NO_COLOR") == nullptr,
                         .unicode = has_utf8};
  winsize size = {};
  if (ioctl(output_, TIOCGWINSZ, &size) == 0 && size.ws_row > 0 &&
      size.ws_col > 0) {
    format.rows = size.ws_row;
    format.columns = size.ws_col;
  }
  return format;
}

void Terminal::Draw(const std::vector<ScreenLine>& lines) {
  const ScreenFormat format = Format();
  // Overwrite lines in place, because clearing the screen would flicker.
  std::string text = kHome;
  const size_t count = std::min(lines.size(), static_cast<size_t>(format.rows));
  for (size_t i = 0; i < count; ++i) {
    // The last row has no line break, which would scroll.
    absl::StrAppend(&text, i == 0 ? "" : "\n", lines[i].Text(format),
                    lines[i].width() < format.columns ? kEraseLine : "");
  }
  if (count < static_cast<size_t>(format.rows)) {
    absl::StrAppend(&text, "\n", kEraseBelow);
  }
  Write(text);
}

bool Terminal::Wait(absl::Duration timeout) {
  pollfd ends[] = {{signal_pipe[0], POLLIN, 0},
                   {before_.has_value() ? input_ : -1, POLLIN, 0}};
  const int ready = poll(ends, 2,
                         static_cast<int>(absl::ToInt64Milliseconds(
                             absl::Ceil(timeout, absl::Milliseconds(1)))));
  if (ready == 0 || (ready < 0 && errno != EINTR)) return true;
  char byte = 0;
  if (ends[1].revents != 0 && (read(input_, &byte, 1) != 1 || byte == 'q')) {
    return false;
  }
  while (read(signal_pipe[0], &byte, 1) == 1) {
    if (byte == SIGTSTP) {
      // The shell has the terminal until SIGCONT.
      Leave();
      raise(SIGSTOP);
      Enter();
    } else if (byte != SIGWINCH) {
      return false;
    }
  }
  return true;
}

}  // namespace causeway
