// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "cli/command_line.h"

#include <algorithm>
#include <cstddef>
#include <set>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/substitute.h"
#include "common/printable.h"
#include "common/status_macros.h"
#include "common/version.h"

namespace causeway {
namespace {

constexpr size_t kHelpWidth = 78;

// The payload that tells a UsageError from what a server or a file refuses.
constexpr absl::string_view kUsageUrl = "causeway.usage";

bool IsFlag(absl::string_view word) {
  return absl::StartsWith(word, "--") && word.size() > 2;
}

// Returns a target's value as a user would write it; empty for false and for no
// value.
struct DefaultValue {
  std::string operator()(const bool* value) const {
    return *value ? "true" : "";
  }
  std::string operator()(const std::vector<std::string>* values) const {
    return absl::StrJoin(*values, " ");
  }
  template <typename Other>
  std::string operator()(const Other* value) const {
    return absl::StrCat(*value);
  }
};

// Assigns the value and returns "", or returns the allowed values.
struct Assign {
  absl::string_view text;

  absl::string_view operator()(bool* value) const {
    return absl::SimpleAtob(text, value) ? "" : "true or false";
  }
  absl::string_view operator()(uint32_t* value) const {
    return absl::SimpleAtoi(text, value) ? ""
                                         : "a whole number from 0 to 2^32 - 1";
  }
  absl::string_view operator()(uint64_t* value) const {
    return absl::SimpleAtoi(text, value) ? "" : "a whole number from 0";
  }
  absl::string_view operator()(double* value) const {
    return absl::SimpleAtod(text, value) ? "" : "a number";
  }
  absl::string_view operator()(std::string* value) const {
    *value = std::string(text);
    return "";
  }
  absl::string_view operator()(std::vector<std::string>* values) const {
    values->emplace_back(text);
    return "";
  }
};

// Prints `text` in lines of kHelpWidth, each after `indent` spaces.
void PrintWrapped(absl::string_view text, size_t indent, std::ostream& out) {
  for (const absl::string_view paragraph : absl::StrSplit(text, '\n')) {
    std::string line(indent, ' ');
    for (const absl::string_view word : absl::StrSplit(paragraph, ' ')) {
      if (line.size() > indent && line.size() + 1 + word.size() > kHelpWidth) {
        out << line << "\n";
        line.assign(indent, ' ');
      }
      if (line.size() > indent) line += ' ';
      absl::StrAppend(&line, word);
    }
    out << absl::StripTrailingAsciiWhitespace(line) << "\n";
  }
}

void PrintProgramHelp(absl::string_view program, absl::string_view summary,
                      absl::Span<const Command> commands, std::ostream& out) {
  PrintWrapped(summary, 0, out);
  out << "\nUsage: " << program << " COMMAND [ARGUMENTS] [--flags]\n\n";
  size_t width = 0;
  for (const Command& command : commands) {
    width = std::max(width, command.name.size());
  }
  for (const Command& command : commands) {
    out << absl::StrFormat("  %-*s  %s\n", static_cast<int>(width),
                           command.name, command.summary);
  }
  out << "\n`" << program << " COMMAND --help` says more about a command.\n";
}

void PrintCommandHelp(absl::string_view program, const Command& command,
                      std::ostream& out) {
  PrintWrapped(command.summary, 0, out);
  out << "\nUsage: " << program << " " << command.name
      << (command.arguments.empty() ? "" : " ") << command.arguments
      << " [--flags]\n";
  if (!command.details.empty()) {
    out << "\n";
    PrintWrapped(command.details, 0, out);
  }
  out << "\nFlags:\n";
  command.flags.PrintHelp(out);
}

// Checks that `given` has as many words as `form` asks for.
absl::Status CheckForm(absl::string_view form,
                       absl::Span<const std::string> given) {
  const std::vector<std::string> wanted =
      absl::StrSplit(form, ' ', absl::SkipEmpty());
  const bool open_ended = absl::EndsWith(form, "...");
  if (given.size() < wanted.size() &&
      !absl::StartsWith(wanted[given.size()], "[")) {
    return absl::InvalidArgumentError(
        absl::StrCat(wanted[given.size()], " is missing"));
  }
  if (given.size() > wanted.size() && !open_ended) {
    return absl::InvalidArgumentError(
        absl::Substitute("\"$0\" is one word too many", given[wanted.size()]));
  }
  return absl::OkStatus();
}

// Checks that `given` matches one of the command's forms.
absl::Status CheckArguments(const Command& command,
                            absl::Span<const std::string> given) {
  if (command.arguments.empty() || !absl::ascii_islower(command.arguments[0])) {
    return CheckForm(command.arguments, given);
  }
  const std::vector<absl::string_view> forms =
      absl::StrSplit(command.arguments, " | ");
  for (const absl::string_view form : forms) {
    if (!given.empty() && given[0] == form.substr(0, form.find(' '))) {
      return CheckForm(form, given);
    }
  }
  return absl::InvalidArgumentError(absl::Substitute(
      "$0 takes `$1`", command.name, absl::StrJoin(forms, "` or `")));
}

}  // namespace

absl::Status UsageError(absl::string_view message) {
  absl::Status error = absl::InvalidArgumentError(message);
  error.SetPayload(kUsageUrl, absl::Cord());
  return error;
}

absl::Status AsUsageError(const absl::Status& status) {
  return absl::IsInvalidArgument(status) ? UsageError(status.message())
                                         : status;
}

void FlagSet::Add(std::string name, std::string value, std::string help,
                  Target target, Check check) {
  std::string default_value = std::visit(DefaultValue(), target);
  flags_.push_back({std::move(name), std::move(value), std::move(help), target,
                    check, std::move(default_value)});
}

void FlagSet::AddRequired(std::string name, std::string value, std::string help,
                          Target target, Check check) {
  Add(std::move(name), std::move(value), std::move(help), target, check);
  flags_.back().required = true;
}

absl::StatusOr<const FlagSet::Flag*> FlagSet::Find(
    absl::string_view name) const {
  std::vector<std::string> names;
  for (const Flag& flag : flags_) {
    if (flag.name == name) return &flag;
    names.push_back(absl::StrCat("--", flag.name));
  }
  return absl::InvalidArgumentError(
      absl::Substitute("there is no flag --$0; there are: $1", name,
                       names.empty() ? "none" : absl::StrJoin(names, ", ")));
}

absl::StatusOr<std::vector<std::string>> FlagSet::Parse(
    absl::Span<const std::string> words) const {
  std::vector<std::string> arguments;
  std::set<const Flag*> given;
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i] == "--") {
      arguments.insert(arguments.end(), words.begin() + i + 1, words.end());
      break;
    }
    if (!IsFlag(words[i])) {
      arguments.push_back(words[i]);
      continue;
    }
    const std::pair<std::string, std::string> parts = absl::StrSplit(
        absl::string_view(words[i]).substr(2), absl::MaxSplits('=', 1));
    ASSIGN_OR_RETURN(const Flag* flag, Find(parts.first));
    given.insert(flag);
    std::vector<std::string> values;
    if (absl::StrContains(words[i], '=')) {
      values = {parts.second};
    } else if (std::holds_alternative<bool*>(flag->target)) {
      values = {"true"};
    } else {
      const bool list =
          std::holds_alternative<std::vector<std::string>*>(flag->target);
      while (i + 1 < words.size() && words[i + 1] != "--" &&
             !IsFlag(words[i + 1]) && (list || values.empty())) {
        values.push_back(words[++i]);
      }
    }
    if (values.empty()) {
      return absl::InvalidArgumentError(
          absl::Substitute("--$0 needs $1", flag->name, flag->value));
    }
    for (const std::string& value : values) {
      const absl::string_view allowed = std::visit(Assign{value}, flag->target);
      if (!allowed.empty()) {
        return absl::InvalidArgumentError(absl::Substitute(
            "--$0 is \"$1\"; allowed: $2", flag->name, value, allowed));
      }
      if (flag->check == nullptr) continue;
      const absl::Status checked = flag->check(value);
      if (!checked.ok()) {
        return absl::InvalidArgumentError(
            absl::Substitute("--$0: $1", flag->name, checked.message()));
      }
    }
  }
  for (const Flag& flag : flags_) {
    if (flag.required && given.count(&flag) == 0) {
      return absl::InvalidArgumentError(
          absl::Substitute("--$0 $1 is missing", flag.name, flag.value));
    }
  }
  return arguments;
}

void FlagSet::PrintHelp(std::ostream& out) const {
  for (const Flag& flag : flags_) {
    out << "  --" << flag.name << (flag.value.empty() ? "" : " ") << flag.value
        << "\n";
    std::string help = flag.help;
    if (flag.required) help += " Required.";
    if (!flag.default_value.empty()) {
      absl::StrAppend(&help, " Default: ", flag.default_value, ".");
    }
    PrintWrapped(help, 6, out);
  }
  out << "  --help\n      Shows this text.\n";
}

int RunCommandLine(absl::string_view program, absl::string_view summary,
                   absl::Span<const Command> commands,
                   absl::Span<const std::string> words, std::ostream& out,
                   std::ostream& err) {
  if (words.empty()) {
    PrintProgramHelp(program, summary, commands, err);
    return kExitUsage;
  }
  std::string name = words[0];
  absl::Span<const std::string> rest = words.subspan(1);
  if (name == "help" && !rest.empty()) {
    name = rest[0];
    rest = {};
    words = {};
  } else if (name == "help" || name == "--help" || name == "-h") {
    PrintProgramHelp(program, summary, commands, out);
    return kExitOk;
  } else if (name == "--version") {
    out << program << " " << kVersion << "\n";
    return kExitOk;
  }
  const auto command =
      std::find_if(commands.begin(), commands.end(),
                   [&](const Command& c) { return c.name == name; });
  if (command == commands.end()) {
    err << program << ": there is no command \"" << name << "\"; `" << program
        << " --help` lists them\n";
    return kExitUsage;
  }
  const absl::Span<const std::string> flags = rest.first(static_cast<size_t>(
      std::find(rest.begin(), rest.end(), "--") - rest.begin()));
  if (words.empty() || absl::c_linear_search(flags, "--help")) {
    PrintCommandHelp(program, *command, out);
    return kExitOk;
  }
  absl::StatusOr<std::vector<std::string>> arguments =
      command->flags.Parse(rest);
  absl::Status status = AsUsageError(arguments.status());
  if (status.ok()) status = AsUsageError(CheckArguments(*command, *arguments));
  int exit_code = kExitOk;
  if (status.ok()) {
    status = command->run({*std::move(arguments), out, err, exit_code});
  }
  if (status.ok()) return exit_code;
  err << program << " " << name << ": " << PrintableLines(status.message())
      << "\n";
  if (!status.GetPayload(kUsageUrl).has_value()) return kExitFailure;
  err << "See `" << program << " " << name << " --help`.\n";
  return kExitUsage;
}

}  // namespace causeway
