// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// A program of several commands: `causeway COMMAND [ARGUMENTS] [--flags]`.
//
//   auto port = std::make_shared<uint64_t>(80);
//   Command serve{.name = "serve",
//                 .arguments = "DIRECTORY",
//                 .summary = "Serves the files of a directory."};
//   serve.flags.Add("port", "N", "Port to listen on.", port.get());
//   serve.run = [port](const Invocation& call) {
//     return Serve(call.arguments[0], *port, call.out);
//   };
//   return RunCommandLine("files", "Serves files.", {serve}, args, out, err);
//
// Flags are --name VALUE or --name=VALUE, anywhere after the command word; a
// boolean is --name or --name=false. A list flag takes all words up to the next
// flag and may be repeated. "--" ends the flags. The default that the help
// shows is the target's value when the flag was added.
#ifndef CLI_COMMAND_LINE_H_
#define CLI_COMMAND_LINE_H_

#include <cstdint>
#include <functional>
#include <ostream>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace causeway {

// Exit codes.
inline constexpr int kExitOk = 0;
inline constexpr int kExitFailure = 1;
inline constexpr int kExitUsage = 2;
// `status --check` found a problem.
inline constexpr int kExitWarning = 3;
inline constexpr int kExitCritical = 4;

// Returns INVALID_ARGUMENT for wrong words and flags that a command finds only
// when it runs; its exit code is kExitUsage.
absl::Status UsageError(absl::string_view message);
// Returns an INVALID_ARGUMENT that nothing but words and flags can cause as
// such an error, and any other status as it is.
absl::Status AsUsageError(const absl::Status& status);
template <typename T>
absl::StatusOr<T> AsUsageError(absl::StatusOr<T> result) {
  if (result.ok()) return result;
  return AsUsageError(result.status());
}

// The flags of one command. Targets are not owned.
class FlagSet {
 public:
  using Target = std::variant<bool*, uint32_t*, uint64_t*, double*,
                              std::string*, std::vector<std::string>*>;

  // Returns INVALID_ARGUMENT, with the reason, for a text that a flag does not
  // accept.
  using Check = absl::Status (*)(absl::string_view text);

  // Adds a flag. `value` names its value in the help ("ADDRESS"); empty for
  // booleans. `help` is a sentence. `check` may be null.
  void Add(std::string name, std::string value, std::string help, Target target,
           Check check = nullptr);

  // Adds a flag that must be given.
  void AddRequired(std::string name, std::string value, std::string help,
                   Target target, Check check = nullptr);

  // Sets the targets and returns the words that are not flags. INVALID_ARGUMENT
  // names an unknown flag, one whose value is missing or of the wrong type, or
  // a required flag that was not given.
  absl::StatusOr<std::vector<std::string>> Parse(
      absl::Span<const std::string> words) const;

  // Prints one paragraph for each flag.
  void PrintHelp(std::ostream& out) const;

 private:
  struct Flag {
    std::string name;
    std::string value;
    std::string help;
    Target target;
    Check check = nullptr;
    // The target's value when the flag was added.
    std::string default_value;
    bool required = false;
  };

  absl::StatusOr<const Flag*> Find(absl::string_view name) const;

  std::vector<Flag> flags_;
};

// One call of a command.
struct Invocation {
  // The words that are not flags; their number fits Command::arguments.
  std::vector<std::string> arguments;
  // Results go to `out`, everything else to `err`.
  std::ostream& out;
  std::ostream& err;
  // The program's exit code if the command succeeds.
  int& exit_code;
};

struct Command {
  std::string name;
  // The arguments as the help shows them: "STATE_DIR", "TEXT..." for one or
  // more, "[STATE_DIR]" for an optional one, "list | drop ID" for alternatives
  // that each begin with a literal word. Empty if there are none.
  std::string arguments;
  // One sentence, for the list of commands and the command's own help.
  std::string summary;
  // Further paragraphs of the command's own help; may be empty.
  std::string details;
  FlagSet flags;
  std::function<absl::Status(const Invocation&)> run;
};

// Runs the command named by the first of `words`, which exclude the program's
// name. Returns the exit code: kExitUsage, with a pointer to the help, if the
// words are invalid or the command returns a UsageError; kExitFailure, with the
// message on `err`, if it returns another error. Also answers "help", "--help"
// and "--version".
int RunCommandLine(absl::string_view program, absl::string_view summary,
                   absl::Span<const Command> commands,
                   absl::Span<const std::string> words, std::ostream& out,
                   std::ostream& err);

}  // namespace causeway

#endif  // CLI_COMMAND_LINE_H_
