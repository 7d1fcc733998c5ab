// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// A terminal that a program has to itself for a while: the alternate screen,
// without cursor and echo. The previous screen is restored at the end, even if
// a signal ends the program.
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

// For one thread. A process may have at most one, because it handles SIGINT,
// SIGTERM, SIGHUP, SIGTSTP and SIGWINCH.
class Terminal {
 public:
  // Returns whether this is a terminal that can be drawn on.
  static bool IsOne(int descriptor);

  // Takes the terminal at `output`; reads keys from `input` if it is a
  // terminal, too. The descriptors must stay open. RESOURCE_EXHAUSTED if no
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
  // The input's previous settings; absent if it is not a terminal.
  std::optional<termios> before_;
};

}  // namespace causeway

#endif  // CLI_WATCH_TERMINAL_H_
