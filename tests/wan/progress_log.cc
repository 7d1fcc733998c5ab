// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/wan/progress_log.h"

#include <algorithm>
#include <optional>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace causeway {
namespace {

// Returns the text between `before` and the next `after` in `line`.
std::optional<absl::string_view> Between(absl::string_view line,
                                         absl::string_view before,
                                         absl::string_view after) {
  const size_t begin = line.find(before);
  if (begin == absl::string_view::npos) return std::nullopt;
  line.remove_prefix(begin + before.size());
  const size_t end = line.find(after);
  if (end == absl::string_view::npos) return std::nullopt;
  return line.substr(0, end);
}

// Parses a line such as
//   I20261121 11:05:47.614780 15790 island.cc:245] step 40/40  loss 3.5875 ...
//   ...  waited 0.125 s
std::optional<LoggedStep> ParseLine(absl::string_view line) {
  constexpr size_t kPrefixSize = sizeof("I20261121 11:05:47.614780") - 1;
  const auto step = Between(line, "] step ", "/");
  const auto waited = Between(line, "  waited ", " s");
  if (!step.has_value() || !waited.has_value() || line.size() < kPrefixSize) {
    return std::nullopt;
  }
  // %Y would also take the month and the day.
  const std::string time =
      absl::StrCat(line.substr(1, 4), "-", line.substr(5, 2), "-",
                   line.substr(7, kPrefixSize - 7));
  LoggedStep logged;
  double waited_seconds = 0;
  if (!absl::SimpleAtoi(*step, &logged.step) ||
      !absl::SimpleAtod(*waited, &waited_seconds) ||
      !absl::ParseTime("%Y-%m-%d %H:%M:%E*S", time, &logged.time, nullptr)) {
    return std::nullopt;
  }
  logged.waited = absl::Seconds(waited_seconds);
  return logged;
}

}  // namespace

std::vector<LoggedStep> ParseProgressLog(absl::string_view log) {
  std::vector<LoggedStep> steps;
  for (const absl::string_view line : absl::StrSplit(log, '\n')) {
    if (const std::optional<LoggedStep> step = ParseLine(line)) {
      steps.push_back(*step);
    }
  }
  return steps;
}

absl::StatusOr<IslandSpeed> MeasureSpeed(const std::vector<LoggedStep>& steps,
                                         uint64_t round_steps) {
  const auto ends_a_round = [&](const LoggedStep& step) {
    return step.step % round_steps == 0;
  };
  const auto first = std::find_if(steps.begin(), steps.end(), ends_a_round);
  const auto last = std::find_if(steps.rbegin(), steps.rend(), ends_a_round);
  if (first == steps.end() || first->step >= last->step) {
    return absl::FailedPreconditionError(
        absl::StrCat("the island's log has less than two rounds of ",
                     round_steps, " steps; it has ", steps.size(), " steps"));
  }
  const double seconds = absl::ToDoubleSeconds(last->time - first->time);
  return IslandSpeed{
      .training_share =
          1 - absl::ToDoubleSeconds(last->waited - first->waited) / seconds,
      .steps_per_second =
          static_cast<double>(last->step - first->step) / seconds};
}

}  // namespace causeway
