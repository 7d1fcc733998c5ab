// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "cli/watch/watch_screen.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/human.h"
#include "cli/status_facts.h"
#include "cli/watch/loss_curve.h"
#include "common/printable.h"
#include "common/proto_time.h"

namespace causeway {
namespace {

// The height of the curves: they are not drawn lower, and need not be higher.
constexpr int kLeastCurveRows = 6;
constexpr int kMostCurveRows = 14;

// The most lines of problems: after these no further problem is shown.
constexpr int kMostProblemRows = 6;

Style StyleOf(v1::Severity severity) {
  return severity == v1::CRITICAL ? Style::kBad : Style::kWarning;
}

// The state has the colour of the worst problem that the run itself has.
Style StyleOf(const v1::RunStatus& run) {
  for (const v1::Attention& problem : run.attention()) {
    if (problem.island_id().empty()) return StyleOf(problem.severity());
  }
  return Style::kGood;
}

ScreenLine Title(const v1::RunStatus& run, absl::Time now, absl::TimeZone zone,
                 const ScreenFormat& format) {
  ScreenLine line(Printable(run.run_id()), Style::kBold);
  line.Add("  ").Add(StateText(run, now), StyleOf(run));
  return line.AddRight(absl::FormatTime("%H:%M:%S", now, zone), format.columns,
                       Style::kDim);
}

// Returns the bar of the run's steps, and the facts right of it.
ScreenLine ProgressBar(const v1::RunStatus& run, const ScreenFormat& format) {
  const std::string facts = absl::StrCat("  ", ProgressFact(run));
  const int columns = std::clamp(format.columns - Characters(facts), 10, 60);
  const double share =
      run.total_steps() == 0
          ? 0
          : std::min(1.0, static_cast<double>(run.run_step()) /
                              static_cast<double>(run.total_steps()));
  const int done = static_cast<int>(share * columns);
  ScreenLine line;
  for (int i = 0; i < columns; ++i) {
    if (format.unicode) {
      line.Add(i < done ? "\u2588" : "\u2591",
               i < done ? Style::kGood : Style::kDim);
    } else {
      line.Add(i < done ? "#" : "-", i < done ? Style::kGood : Style::kDim);
    }
  }
  return line.Add(facts);
}

// Adds a problem, with its command on a line of its own if there is no room.
void AddProblem(const v1::Attention& problem, absl::Time now,
                const ScreenFormat& format, std::vector<ScreenLine>& lines) {
  const Style style = StyleOf(problem.severity());
  std::string text = Printable(ProblemText(problem, now));
  const std::string next = Printable(NextStep(problem));
  if (Characters(text) + 2 + Characters(next) <= format.columns) {
    lines.push_back({absl::StrCat(text, "  ", next), style});
    return;
  }
  lines.push_back({std::move(text), style});
  if (!next.empty()) lines.push_back({absl::StrCat("    ", next), style});
}

std::vector<ScreenLine> Header(const WatchedRun& watched,
                               const std::string& trouble, absl::Time now,
                               absl::TimeZone zone,
                               const ScreenFormat& format) {
  const v1::RunStatus& run = watched.status.run;
  std::vector<ScreenLine> lines;
  if (!trouble.empty()) lines.push_back({Printable(trouble), Style::kBad});
  lines.push_back(Title(run, now, zone, format));
  for (const v1::Attention& problem : run.attention()) {
    AddProblem(problem, now, format, lines);
    if (static_cast<int>(lines.size()) > kMostProblemRows) break;
  }
  lines.push_back(ProgressBar(run, format));
  lines.push_back(TrainingFact(run));
  lines.push_back(TrafficFact(run));
  if (!run.warning().empty()) {
    lines.push_back({Printable(run.warning()), Style::kWarning});
  }
  return lines;
}

// A column of a table whose less important columns are left out for lack of
// room.
struct Column {
  const char* title;
  // Columns of higher importance stay longer.
  int importance;
  Table::Alignment alignment;
  std::function<std::string(const v1::IslandStatus&)> text;
  // Is true if followers do not know the value.
  bool is_heard = false;
};

bool IsLive(const v1::IslandStatus& island) {
  return island.state() == v1::IslandStatus::LIVE;
}

const std::vector<Column>& IslandColumns() {
  using Island = v1::IslandStatus;
  static const auto* const kColumns = new std::vector<Column>{
      {"ISLAND", 9, Table::kLeft,
       [](const Island& island) { return island.island_id(); }},
      {"STATE", 8, Table::kLeft,
       [](const Island& island) { return StateText(island); }},
      {"STEP", 7, Table::kRight,
       [](const Island& island) { return StepText(island); }},
      {"LOSS", 6, Table::kRight,
       [](const Island& island) { return Loss(island.progress().loss()); }},
      {"TOKENS/S", 6, Table::kRight,
       [](const Island& island) { return TrainingRate(island); }},
      {"UP Mbit/s", 2, Table::kRight,
       [](const Island& island) {
         return MegabitsPerSecond(
             island.progress().uplink().bytes_per_second());
       }},
      {"DOWN", 2, Table::kRight,
       [](const Island& island) {
         return MegabitsPerSecond(
             island.progress().downlink().bytes_per_second());
       }},
      {"LATE", 1, Table::kRight,
       [](const Island& island) { return Lateness(island.progress()); }},
      {"WAITED", 4, Table::kRight,
       [](const Island& island) {
         return HumanDuration(absl::Seconds(island.progress().wait_seconds()));
       },
       /*is_heard=*/true},
      {"MEMORY", 0, Table::kRight,
       [](const Island& island) {
         return HumanBytes(island.progress().memory_bytes());
       },
       /*is_heard=*/true},
      {"HEARD", 3, Table::kRight,
       [](const Island& island) {
         return IsLive(island) ? HumanDuration(absl::Seconds(
                                     island.heartbeat_age_seconds()))
                               : "-";
       },
       /*is_heard=*/true},
  };
  return *kColumns;
}

std::string ActivityOf(const v1::IslandStatus& island) {
  return Printable(IsLive(island) ? island.progress().activity()
                                  : island.reason());
}

// Leaves out the middle of an island's name that takes more than a third of
// the screen: names often differ at the end only.
std::string ShortName(const std::string& name, const ScreenFormat& format) {
  const size_t most = static_cast<size_t>(std::max(8, format.columns / 3));
  if (name.size() <= most) return name;
  const size_t end = most / 2;
  return absl::StrCat(name.substr(0, most - end - 2), "..",
                      name.substr(name.size() - end));
}

Style StyleOf(const v1::IslandStatus& island) {
  if (!IsLive(island)) return Style::kBad;
  if (island.draining() || island.progress().has_rank_trouble()) {
    return Style::kWarning;
  }
  return Style::kPlain;
}

// Returns a title and a line for each island, and further lines for activities
// that have no room beside; at most `rows` lines.
std::vector<ScreenLine> IslandTable(const StatusSnapshot& status, int rows,
                                    const ScreenFormat& format) {
  constexpr int kActivityColumns = 20;
  const auto& islands = status.islands.islands();
  if (islands.empty()) return {{"no island takes part", Style::kDim}};
  const std::vector<Column>& columns = IslandColumns();
  const auto text_of = [&](const Column& column,
                           const v1::IslandStatus& island) {
    if (&column == &columns.front()) {
      return ShortName(column.text(island), format);
    }
    return OrDash(!column.is_heard || !island.is_unheard(),
                  Printable(column.text(island)));
  };
  std::vector<int> widths;
  for (const Column& column : columns) {
    int width = Characters(column.title);
    for (const v1::IslandStatus& island : islands) {
      width = std::max(width, Characters(text_of(column, island)));
    }
    widths.push_back(width);
  }
  // The most important columns that leave room for the activity.
  std::vector<size_t> by_importance(columns.size());
  for (size_t i = 0; i < columns.size(); ++i) by_importance[i] = i;
  std::stable_sort(by_importance.begin(), by_importance.end(),
                   [&](size_t a, size_t b) {
                     return columns[a].importance > columns[b].importance;
                   });
  std::vector<bool> shown(columns.size(), false);
  int room = format.columns - kActivityColumns;
  for (const size_t i : by_importance) {
    if (widths[i] + 2 > room) break;
    room -= widths[i] + 2;
    shown[i] = true;
  }
  const int activity_columns = room + kActivityColumns;
  const auto row = [&](const auto& text, Style style) {
    ScreenLine line;
    for (size_t i = 0; i < columns.size(); ++i) {
      if (!shown[i]) continue;
      line.Add(Padded(text(columns[i]), widths[i], columns[i].alignment) + "  ",
               style);
    }
    return line;
  };
  std::vector<ScreenLine> lines = {
      row([](const Column& column) { return std::string(column.title); },
          Style::kDim)
          .Add("ACTIVITY", Style::kDim)};
  int left = islands.size();
  for (const v1::IslandStatus& island : islands) {
    const std::string activity = ActivityOf(island);
    const bool beside = Characters(activity) <= activity_columns;
    const int needed = (beside ? 1 : 2) + (left > 1 ? 1 : 0);
    if (static_cast<int>(lines.size()) + needed > rows) break;
    --left;
    const Style style = StyleOf(island);
    lines.push_back(row(
        [&](const Column& column) { return text_of(column, island); }, style));
    if (beside) {
      lines.back().Add(activity, style);
    } else {
      lines.push_back({absl::StrCat("    ", activity), style});
    }
  }
  if (left > 0) {
    lines.push_back(
        {absl::StrCat("and ", left, " more; `causeway islands`"), Style::kDim});
  }
  return lines;
}

std::vector<ScreenLine> FragmentTable(const StatusSnapshot& status,
                                      absl::Time now) {
  std::vector<ScreenLine> lines = {
      {"FRAGMENT  VERSION  OF     TOOK PART             COMMITTED     AWAITED",
       Style::kDim}};
  for (const v1::FragmentStatus& fragment : status.fragments.fragments()) {
    const v1::FragmentHead& head = fragment.head();
    lines.emplace_back(absl::StrFormat(
        "%8d  %7d  %-5d  %-20s  %-12s  %s", head.fragment(), head.version(),
        fragment.final_version(),
        head.version() > 0 ? Participants(fragment.participation()) : "-",
        absl::StrCat(HumanDuration(now - ToTime(fragment.committed_at())),
                     " ago"),
        Printable(FirstOf(fragment.awaited()))));
  }
  return lines;
}

// Returns a title and the last events, as many as there is room for.
std::vector<ScreenLine> EventList(const std::deque<v1::Event>& events, int rows,
                                  absl::TimeZone zone) {
  std::vector<ScreenLine> lines = {{"EVENTS", Style::kDim}};
  const size_t count = std::min(events.size(), static_cast<size_t>(rows - 1));
  for (auto event = events.end() - static_cast<std::ptrdiff_t>(count);
       event != events.end(); ++event) {
    ScreenLine line(absl::FormatTime("%H:%M:%S  ", ToTime(event->time()), zone),
                    Style::kDim);
    line.Add(absl::StrFormat("%-19s  ", event->kind()));
    if (!event->island_id().empty()) {
      line.Add(absl::StrCat(Printable(event->island_id()), "  "), Style::kBold);
    }
    lines.push_back(std::move(line.Add(Printable(event->text()))));
  }
  return lines;
}

}  // namespace

std::vector<ScreenLine> DrawWatchScreen(const WatchedRun& run,
                                        const std::string& trouble,
                                        absl::Time now, absl::TimeZone zone,
                                        const ScreenFormat& format) {
  if (run.status.run.run_id().empty()) {
    return {{Printable(trouble), Style::kBad}};
  }
  std::vector<ScreenLine> lines = Header(run, trouble, now, zone, format);
  const auto rows_left = [&] {
    return format.rows - static_cast<int>(lines.size());
  };
  // Each block has an empty line before it.
  const auto add = [&](std::vector<ScreenLine> block) {
    lines.emplace_back();
    std::move(block.begin(), block.end(), std::back_inserter(lines));
  };
  // Islands take up to half of the room, and the room that the curves do not
  // need.
  const int islands = std::max(3, (rows_left() - 1) / 2);
  std::vector<ScreenLine> island_table =
      IslandTable(run.status, islands, format);
  const int after_islands =
      rows_left() - 1 - static_cast<int>(island_table.size());
  constexpr int kEventRows = 4;
  const int curve_rows =
      std::min(after_islands - 1 - kEventRows, kMostCurveRows);
  if (curve_rows >= kLeastCurveRows) {
    std::vector<ScreenLine> curves =
        DrawLossCurves(MakeLossCurves(run.history),
                       run.status.run.total_steps(), curve_rows, format);
    if (!curves.empty()) add(std::move(curves));
  }
  add(std::move(island_table));
  std::vector<ScreenLine> fragments = FragmentTable(run.status, now);
  if (rows_left() >= static_cast<int>(fragments.size()) + 1 + kEventRows) {
    add(std::move(fragments));
  }
  if (rows_left() >= 3 && !run.events.empty()) {
    add(EventList(run.events, rows_left() - 1, zone));
  }
  if (rows_left() < 0) lines.resize(static_cast<size_t>(format.rows));
  return lines;
}

}  // namespace causeway
