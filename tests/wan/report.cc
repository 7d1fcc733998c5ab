// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/wan/report.h"

#include <algorithm>
#include <functional>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/table.h"
#include "glog/logging.h"

namespace causeway {
namespace {

using nlohmann::ordered_json;

using Windows = std::vector<int64_t>;

double PeakMegabits(const Windows& bytes_by_second) {
  const auto peak =
      std::max_element(bytes_by_second.begin(), bytes_by_second.end());
  return peak == bytes_by_second.end() ? 0
                                       : static_cast<double>(*peak) * 8 / 1e6;
}

void Add(const Windows& windows, Windows& sum) {
  sum.resize(std::max(sum.size(), windows.size()));
  for (size_t i = 0; i < windows.size(); ++i) sum[i] += windows[i];
}

double MeanOverIslands(
    const TrialResult& result,
    const std::function<double(const IslandResult&)>& figure) {
  double sum = 0;
  for (const IslandResult& island : result.islands) sum += figure(island);
  return sum / static_cast<double>(result.islands.size());
}

double Utilization(const TrialResult& result) {
  return MeanOverIslands(result, [](const IslandResult& island) {
    return island.speed.utilization;
  });
}

double RelativeSpeed(const TrialResult& result, const TrialResult& baseline) {
  CHECK_EQ(result.islands.size(), baseline.islands.size());
  double sum = 0;
  for (size_t i = 0; i < result.islands.size(); ++i) {
    sum += result.islands[i].speed.steps_per_second /
           baseline.islands[i].speed.steps_per_second;
  }
  return sum / static_cast<double>(result.islands.size());
}

struct Traffic {
  int64_t bytes_up = 0;
  int64_t bytes_down = 0;
  double peak_megabits = 0;
  double coordinator_peak_megabits = 0;
};

Traffic TrafficOf(const TrialResult& result) {
  Traffic traffic;
  Windows up;
  Windows down;
  for (const IslandResult& island : result.islands) {
    const LinkCounters& link = island.counters;
    traffic.bytes_up += link.up.bytes;
    traffic.bytes_down += link.down.bytes;
    Add(link.up.bytes_by_second, up);
    Add(link.down.bytes_by_second, down);
    traffic.peak_megabits =
        std::max({traffic.peak_megabits, PeakMegabits(link.up.bytes_by_second),
                  PeakMegabits(link.down.bytes_by_second)});
  }
  traffic.coordinator_peak_megabits =
      std::max(PeakMegabits(up), PeakMegabits(down));
  return traffic;
}

ordered_json DirectionJson(const ShaperSettings& settings,
                           double measured_bits_per_second,
                           const Shaper::Counters& counters) {
  return {{"rate_mbit_s", settings.bits_per_second / 1e6},
          {"measured_mbit_s", measured_bits_per_second / 1e6},
          {"delay_ms", absl::ToDoubleMilliseconds(settings.delay)},
          {"loss", settings.loss},
          {"bytes", counters.bytes},
          {"frames", counters.frames},
          {"frames_lost", counters.lost},
          {"frames_overflowed", counters.overflowed},
          {"frames_partitioned", counters.partitioned}};
}

ordered_json IslandJson(const IslandResult& island) {
  return {{"name", island.name},
          {"compute_utilization", island.speed.utilization},
          {"steps_per_second", island.speed.steps_per_second},
          {"measured_round_trip_ms",
           absl::ToDoubleMilliseconds(island.measured.round_trip)},
          {"up", DirectionJson(island.settings.up, island.measured.up,
                               island.counters.up)},
          {"down", DirectionJson(island.settings.down, island.measured.down,
                                 island.counters.down)}};
}

// `baseline` may be null.
ordered_json RunJson(const TrialResult& result, const TrialResult* baseline) {
  const Traffic traffic = TrafficOf(result);
  ordered_json run = {{"compute_utilization", Utilization(result)}};
  if (baseline != nullptr) {
    run["relative_speed"] = RelativeSpeed(result, *baseline);
  }
  run["bytes_up"] = result.bytes_up;
  run["bytes_down"] = result.bytes_down;
  run["bytes_data_parallel"] = result.bytes_data_parallel;
  run["wire_bytes_up"] = traffic.bytes_up;
  run["wire_bytes_down"] = traffic.bytes_down;
  run["peak_mbit_s"] = traffic.peak_megabits;
  run["coordinator_peak_mbit_s"] = traffic.coordinator_peak_megabits;
  run["val_loss"] = result.validation_loss;
  run["seconds"] = absl::ToDoubleSeconds(result.duration);
  // Processors that all links together kept busy.
  run["emulator_processors"] =
      absl::FDivDuration(result.emulator_processor_time, result.duration);
  run["congestion_control"] = result.congestion_control;
  run["false_evictions"] = result.false_evictions;
  run["evictions"] = result.evictions;
  run["islands"] = ordered_json::array();
  for (const IslandResult& island : result.islands) {
    run["islands"].push_back(IslandJson(island));
  }
  return run;
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle]
                                : (values[middle - 1] + values[middle]) / 2;
}

// Adds the medians and the extremes of the numbers that all `runs` have.
void Summarize(const ordered_json& runs, ordered_json& summary) {
  for (const auto& [name, first] : runs[0].items()) {
    if (!first.is_number()) continue;
    std::vector<double> values;
    for (const ordered_json& run : runs) values.push_back(run[name]);
    if (name == "false_evictions" || name == "evictions") {
      int sum = 0;
      for (const ordered_json& run : runs) sum += run[name].get<int>();
      summary[name] = sum;
      continue;
    }
    summary[name] = Median(values);
    summary[name + "_min"] = *std::min_element(values.begin(), values.end());
    summary[name + "_max"] = *std::max_element(values.begin(), values.end());
  }
}

}  // namespace

ordered_json MakeReport(const std::string& scenario,
                        const std::vector<TrialRecord>& records,
                        const std::vector<TrialResult>& baselines) {
  std::vector<std::pair<std::string, std::string>> order;
  std::map<std::pair<std::string, std::string>, ordered_json> runs;
  for (const TrialRecord& record : records) {
    const auto key = std::pair(record.setting, record.network);
    const auto [group, is_new] = runs.try_emplace(key, ordered_json::array());
    if (is_new) order.push_back(key);
    group->second.push_back(
        RunJson(record.result,
                baselines.empty() ? nullptr : &baselines.at(record.repeat)));
  }
  ordered_json report = {{"scenario", scenario},
                         {"baselines", ordered_json::array()},
                         {"settings", ordered_json::array()}};
  for (const TrialResult& baseline : baselines) {
    report["baselines"].push_back(RunJson(baseline, nullptr));
  }
  for (const auto& key : order) {
    ordered_json group = {{"setting", key.first}, {"network", key.second}};
    Summarize(runs[key], group);
    group["runs"] = std::move(runs[key]);
    report["settings"].push_back(std::move(group));
  }
  return report;
}

void PrintReport(const ordered_json& report, std::ostream& out) {
  Table table({{"SETTING"},
               {"NETWORK"},
               {"UTILIZATION", Table::kRight},
               {"SPEED", Table::kRight},
               {"UP MB", Table::kRight},
               {"DOWN MB", Table::kRight},
               {"PEAK MBIT/S", Table::kRight},
               {"FALSE EVICTIONS", Table::kRight},
               {"VAL LOSS", Table::kRight}});
  for (const ordered_json& group : report["settings"]) {
    const auto figure = [&](const char* name) {
      return group[name].get<double>();
    };
    table.AddRow(
        {group["setting"], group["network"],
         absl::StrFormat("%.2f %%", 100 * figure("compute_utilization")),
         group.contains("relative_speed")
             ? absl::StrFormat("%.2f %%", 100 * figure("relative_speed"))
             : "-",
         absl::StrFormat("%.1f", figure("bytes_up") / 1e6),
         absl::StrFormat("%.1f", figure("bytes_down") / 1e6),
         absl::StrFormat("%.1f", figure("peak_mbit_s")),
         absl::StrCat(group["false_evictions"].get<int>()),
         absl::StrFormat("%.4f", figure("val_loss"))});
  }
  table.Print(out);
}

}  // namespace causeway
