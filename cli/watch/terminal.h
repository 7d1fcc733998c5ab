// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// A terminal that a program has for itself for a while: the alternate screen,
// without a cursor and without echo. What was on the screen before comes back
// at the end, also when a signal ends the program.
#ifndef CLI_WATCH_TERMINAL_H_
#define CLI_WATCH_TERMINAL_H_

#include <termios.h>

#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cli/watch/screen.h"

namespace causeway {

// For one thread. There is at most one in a process, as it handles SIGINT,
// SIGTERM, SIGHUP, SIGTSTP and SIGWINCH while it is there.
class Terminal {
 public:
  // Returns whether this is a terminal that can be drawn on.
  static bool IsOne(int descriptor);

  // Takes the terminal at `output`; keys are read from `input` if that is a
  // terminal, too. The descriptors stay open longer. RESOURCE_EXHAUSTED if no
  // descriptor is left.
  static absl::StatusOr<std::unique_ptr<Terminal>> Take(int input, int output);

  ~Terminal();
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  // Returns the terminal's present size, and what it can show: colours unless
  // NO_COLOR is set (no-color.org), Unicode if the locale has UTF-8.
  ScreenFormat Format() const;

  // Replaces what is shown.
  void Draw(const std::vector<ScreenLine>& lines);

  // Waits up to `timeout`, and shorter if the terminal's size changes. Returns
  // false if the user wants to end: by the key q, or by a signal.
  bool Wait(absl::Duration timeout);

 private:
  Terminal(int input, int output);

  void Enter();
  void Leave();
  void Write(const std::string& text);

  const int input_;
  const int output_;
  // The input's settings before; absent if it is no terminal.
  std::optional<termios> before_;
};

}  // namespace causeway

#endif  // CLI_WATCH_TERMINAL_H_
