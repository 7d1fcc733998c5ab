// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "cli/status_facts.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "cli/human.h"
#include "common/proto_time.h"

namespace causeway {
namespace {

// Returns "WAITING_FOR_ISLANDS" as "waiting for islands".
std::string InWords(absl::string_view name) {
  return absl::StrReplaceAll(absl::AsciiStrToLower(name), {{"_", " "}});
}

}  // namespace

absl::Time TimeOf(const v1::RunStatus& run, absl::Time now) {
  return run.has_time() ? ToTime(run.time()) : now;
}

std::string StateText(const v1::RunStatus& run, absl::Time now) {
  if (run.has_alone_since() && run.state() != v1::FINISHED) {
    return absl::StrCat(InWords(v1::RunState_Name(run.state())),
                        " when last heard of");
  }
  if (run.has_missing_since()) {
    return absl::StrCat("waiting for islands for ",
                        HumanDuration(now - ToTime(run.missing_since())));
  }
  if (run.state() == v1::RUNNING && run.attention_size() > 0 &&
      run.attention(0).severity() == v1::CRITICAL) {
    return "standing still";
  }
  return InWords(v1::RunState_Name(run.state()));
}

std::string StateText(const v1::IslandStatus& island) {
  const bool draining =
      island.state() == v1::IslandStatus::LIVE && island.draining();
  return absl::StrCat(
      draining ? "draining"
               : InWords(v1::IslandStatus::State_Name(island.state())),
      island.data_differs() ? ", other data" : "");
}

std::string ProblemText(const v1::Attention& problem, absl::Time now) {
  return absl::StrCat(InWords(v1::Severity_Name(problem.severity())), " for ",
                      HumanDuration(now - ToTime(problem.since())), ": ",
                      problem.text());
}

std::string NextStep(const v1::Attention& problem) {
  return problem.command().empty()
             ? ""
             : absl::StrCat("next: `", problem.command(), "`");
}

std::string ProgressFact(const v1::RunStatus& run) {
  std::string text =
      absl::StrCat("step ", Ratio(run.run_step(), run.total_steps()),
                   ", round ", run.rounds(), " of ", run.total_rounds());
  if (run.has_seconds_left()) {
    absl::StrAppend(&text, ", about ",
                    HumanDuration(absl::Seconds(run.seconds_left())), " left");
  }
  return text;
}

std::string TrainingFact(const v1::RunStatus& run) {
  return absl::StrCat(
      run.live_islands(), run.live_islands() == 1 ? " island" : " islands",
      run.tokens_per_second() > 0
          ? absl::StrCat(", ", HumanCount(run.tokens_per_second()), " tokens/s")
          : "",
      run.loss() > 0 ? absl::StrCat(", loss ", Loss(run.loss())) : "", ", ",
      HumanCount(run.tokens_merged()), " tokens merged");
}

std::string TrafficFact(const v1::RunStatus& run) {
  const double moved =
      static_cast<double>(run.bytes_received() + run.bytes_sent());
  std::string text =
      absl::StrCat(HumanBytes(run.bytes_received()), " received, ",
                   HumanBytes(run.bytes_sent()), " sent");
  if (moved > 0 && run.bytes_data_parallel() > 0) {
    const double data_parallel = static_cast<double>(run.bytes_data_parallel());
    absl::StrAppend(
        &text, "; data parallel: ", HumanBytes(data_parallel),
        absl::StrFormat(" (%.1f times that)", data_parallel / moved));
  }
  return text;
}

std::string OrDash(bool known, std::string text) {
  return known ? std::move(text) : "-";
}

std::string StepText(const v1::IslandStatus& island) {
  const uint64_t step = island.progress().run_step();
  return OrDash(step > 0 || !island.is_unheard(), absl::StrCat(step));
}

std::string Loss(double loss) {
  return OrDash(loss > 0, absl::StrFormat("%.4f", loss));
}

std::string TrainingRate(const v1::IslandStatus& island) {
  const double rate = island.progress().tokens_per_second();
  return island.state() == v1::IslandStatus::LIVE && rate > 0 ? HumanCount(rate)
                                                              : "-";
}

std::string Lateness(const v1::IslandProgress& progress) {
  // Without overlap islands wait for every update.
  if (progress.overlap_steps() == 0) return "-";
  if (progress.overrun_steps() == 0) {
    return absl::StrCat(progress.late_updates());
  }
  return absl::StrFormat("%d (+%d)", progress.late_updates(),
                         progress.overrun_steps());
}

std::string UplinkBitsText(const v1::IslandStatus& island) {
  const double bits = island.progress().uplink_bits();
  const double in_time = island.uplink_bits_in_time();
  return OrDash(bits > 0, in_time > 0
                              ? absl::StrFormat("%.3g (%.3g)", bits, in_time)
                              : absl::StrFormat("%.3g", bits));
}

std::string Participants(const v1::Participation& round) {
  return absl::StrCat(
      round.merged(), " of ", round.live(),
      round.contributing() == round.merged()
          ? ""
          : absl::StrCat(" (", round.contributing(), " began)"));
}

std::string FirstOf(
    const google::protobuf::RepeatedPtrField<std::string>& names) {
  constexpr int kMost = 3;
  const int shown = std::min(names.size(), kMost);
  const std::string list =
      absl::StrJoin(names.begin(), names.begin() + shown, ",");
  return shown == names.size()
             ? list
             : absl::StrCat(list, " and ", names.size() - shown, " more");
}

std::string Ratio(uint64_t part, uint64_t whole) {
  double percent =
      whole == 0 ? 0
                 : 100 * static_cast<double>(part) / static_cast<double>(whole);
  // Nearly all is not all.
  if (part < whole) percent = std::min(percent, 99.0);
  return absl::StrFormat("%u of %u (%.0f %%)", part, whole, percent);
}

std::string MegabitsPerSecond(double bytes_per_second) {
  return bytes_per_second > 0
             ? absl::StrFormat("%.1f", bytes_per_second * 8 / 1e6)
             : "-";
}

}  // namespace causeway
