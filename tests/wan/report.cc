// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/wan/report.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "cli/human.h"

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

double TrainingShare(const TrialResult& result) {
  return MeanOverIslands(result, [](const IslandResult& island) {
    return island.speed.training_share;
  });
}

// `baseline` is the run without synchronization.
double Utilization(const TrialResult& result, const ordered_json& baseline) {
  double sum = 0;
  for (size_t i = 0; i < result.islands.size(); ++i) {
    sum += result.islands[i].speed.steps_per_second /
           baseline["islands"][i]["steps_per_second"].get<double>();
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
          {"training_share", island.speed.training_share},
          {"steps_per_second", island.speed.steps_per_second},
          {"measured_round_trip_ms",
           absl::ToDoubleMilliseconds(island.measured.round_trip)},
          {"achieved_up_mbit_s", island.achieved_up * 8 / 1e6},
          {"achieved_down_mbit_s", island.achieved_down * 8 / 1e6},
          {"up", DirectionJson(island.settings.up, island.measured.up,
                               island.counters.up)},
          {"down", DirectionJson(island.settings.down, island.measured.down,
                                 island.counters.down)}};
}

// `baseline` may be null.
ordered_json RunJson(uint64_t repeat, const TrialResult& result,
                     const ordered_json* baseline) {
  const Traffic traffic = TrafficOf(result);
  ordered_json run = {{"repeat", repeat}};
  if (baseline != nullptr) {
    run["compute_utilization"] = Utilization(result, *baseline);
  }
  run["training_share"] = TrainingShare(result);
  run["bytes_up"] = result.bytes_up;
  run["bytes_down"] = result.bytes_down;
  run["bytes_data_parallel"] = result.bytes_data_parallel;
  if (const uint64_t moved = result.bytes_up + result.bytes_down; moved > 0) {
    run["data_parallel_ratio"] =
        static_cast<double>(result.bytes_data_parallel) /
        static_cast<double>(moved);
  }
  run["wire_bytes_up"] = traffic.bytes_up;
  run["wire_bytes_down"] = traffic.bytes_down;
  run["peak_mbit_s"] = traffic.peak_megabits;
  run["coordinator_peak_mbit_s"] = traffic.coordinator_peak_megabits;
  run["achieved_up_mbit_s"] = MeanOverIslands(
      result,
      [](const IslandResult& island) { return island.achieved_up * 8 / 1e6; });
  run["achieved_down_mbit_s"] =
      MeanOverIslands(result, [](const IslandResult& island) {
        return island.achieved_down * 8 / 1e6;
      });
  run["val_loss"] = result.validation_loss;
  run["seconds"] = absl::ToDoubleSeconds(result.duration);
  // The number of processors that all links together kept busy.
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
    if (!first.is_number() || name == "repeat") continue;
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

absl::StatusOr<Report> Report::Parse(std::string scenario,
                                     const std::string& text) {
  const auto wrong = [&](absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the report to go on with is none of scenario \"", scenario, "\" (",
        what, "); remove it, or name another file"));
  };
  Report report(scenario);
  // The library throws at a value that is missing or of another type.
  try {
    const ordered_json json = ordered_json::parse(text);
    if (json.at("scenario") != scenario) {
      return wrong(absl::StrCat("but of ", json.at("scenario").dump()));
    }
    for (const ordered_json& run : json.at("baselines")) {
      report.baselines_[run.at("repeat").get<uint64_t>()] = run;
    }
    for (const ordered_json& group : json.at("settings")) {
      Group& added = report.GroupOf(group.at("setting").get<std::string>(),
                                    group.at("network").get<std::string>());
      for (const ordered_json& run : group.at("runs")) {
        added.runs[run.at("repeat").get<uint64_t>()] = run;
      }
    }
  } catch (const ordered_json::exception& error) {
    return wrong(error.what());
  }
  return report;
}

bool Report::Has(const std::string& setting, const std::string& network,
                 uint64_t repeat) const {
  for (const Group& group : groups_) {
    if (group.setting == setting && group.network == network) {
      return group.runs.count(repeat) > 0;
    }
  }
  return false;
}

Report::Group& Report::GroupOf(const std::string& setting,
                               const std::string& network) {
  for (Group& group : groups_) {
    if (group.setting == setting && group.network == network) return group;
  }
  groups_.push_back({.setting = setting, .network = network, .runs = {}});
  return groups_.back();
}

void Report::AddBaseline(uint64_t repeat, const TrialResult& result) {
  baselines_[repeat] = RunJson(repeat, result, nullptr);
}

void Report::Add(const std::string& setting, const std::string& network,
                 uint64_t repeat, const TrialResult& result) {
  const auto baseline = baselines_.find(repeat);
  GroupOf(setting, network).runs[repeat] =
      RunJson(repeat, result,
              baseline == baselines_.end() ? nullptr : &baseline->second);
}

ordered_json Report::ToJson() const {
  ordered_json report = {{"scenario", scenario_},
                         {"baselines", ordered_json::array()},
                         {"settings", ordered_json::array()}};
  for (const auto& [repeat, baseline] : baselines_) {
    report["baselines"].push_back(baseline);
  }
  for (const Group& group : groups_) {
    ordered_json runs = ordered_json::array();
    for (const auto& [repeat, run] : group.runs) runs.push_back(run);
    ordered_json json = {{"setting", group.setting},
                         {"network", group.network}};
    Summarize(runs, json);
    json["runs"] = std::move(runs);
    report["settings"].push_back(std::move(json));
  }
  return report;
}

void PrintReport(const ordered_json& report, std::ostream& out) {
  Table table({"SETTING", "NETWORK", ">UTILIZATION", ">TRAINING", ">UP MB",
               ">DOWN MB", ">PEAK MBIT/S", ">FALSE EVICTIONS", ">VAL LOSS"});
  for (const ordered_json& group : report["settings"]) {
    const auto figure = [&](const char* name) {
      return group[name].get<double>();
    };
    table.AddRow(
        {group["setting"], group["network"],
         group.contains("compute_utilization")
             ? absl::StrFormat("%.2f %%", 100 * figure("compute_utilization"))
             : "-",
         absl::StrFormat("%.2f %%", 100 * figure("training_share")),
         absl::StrFormat("%.1f", figure("bytes_up") / 1e6),
         absl::StrFormat("%.1f", figure("bytes_down") / 1e6),
         absl::StrFormat("%.1f", figure("peak_mbit_s")),
         absl::StrCat(group["false_evictions"].get<int>()),
         absl::StrFormat("%.4f", figure("val_loss"))});
  }
  table.Print(out);
}

}  // namespace causeway
