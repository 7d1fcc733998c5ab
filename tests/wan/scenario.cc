// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/wan/scenario.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/config/run_config.h"
#include "common/os/file.h"
#include "common/status_macros.h"
#include "google/protobuf/io/tokenizer.h"
#include "google/protobuf/text_format.h"

namespace causeway {
namespace {

using google::protobuf::TextFormat;

constexpr double kMaxMegabits = kUnlimitedBitsPerSecond / 1e6;
// The least queue: one that holds less than a burst of TCP is useless.
constexpr int64_t kMinQueueBytes = 64 << 10;
constexpr int kMaxIslands = 200;

// Keeps the first error of the parser, with its place.
class FirstError : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int line, int column, const std::string& message) override {
    if (!error_.empty()) return;
    error_ = absl::StrCat(line + 1, ":", column + 1, ": ", message);
  }
  const std::string& error() const { return error_; }

 private:
  std::string error_;
};

absl::Status Wrong(absl::string_view what) {
  return absl::InvalidArgumentError(what);
}

absl::Status CheckDirection(const wan::DirectionShape& shape,
                            absl::string_view where) {
  if (!(shape.rate_mbit_s() > 0 && shape.rate_mbit_s() <= kMaxMegabits)) {
    return Wrong(absl::StrCat(where, ".rate_mbit_s is ", shape.rate_mbit_s(),
                              "; allowed: above 0, to ", kMaxMegabits));
  }
  for (const auto& [name, value] : {std::pair("delay_ms", shape.delay_ms()),
                                    std::pair("jitter_ms", shape.jitter_ms()),
                                    std::pair("queue_ms", shape.queue_ms())}) {
    if (!(value >= 0 && value <= 60'000)) {
      return Wrong(absl::StrCat(where, ".", name, " is ", value,
                                "; allowed: 0 to 60000"));
    }
  }
  if (!(shape.loss() >= 0 && shape.loss() <= 1)) {
    return Wrong(
        absl::StrCat(where, ".loss is ", shape.loss(), "; allowed: 0 to 1"));
  }
  return absl::OkStatus();
}

absl::Status CheckLinkShape(const wan::LinkShape& link,
                            absl::string_view where) {
  RETURN_IF_ERROR(CheckDirection(link.both(), absl::StrCat(where, ".both")));
  RETURN_IF_ERROR(CheckDirection(link.up(), absl::StrCat(where, ".up")));
  return CheckDirection(link.down(), absl::StrCat(where, ".down"));
}

using IslandNames = std::set<std::string>;

absl::Status CheckIsland(const IslandNames& islands, const std::string& name,
                         absl::string_view where) {
  if (islands.count(name) > 0) return absl::OkStatus();
  return Wrong(absl::StrCat(where, " names island \"", name,
                            "\", which is not one of the scenario's"));
}

absl::StatusOr<IslandNames> CheckIslands(const wan::Scenario& scenario) {
  if (scenario.islands_size() < 1 || scenario.islands_size() > kMaxIslands) {
    return Wrong(absl::StrCat("there are ", scenario.islands_size(),
                              " islands; allowed: 1 to ", kMaxIslands));
  }
  IslandNames names;
  for (const wan::Island& island : scenario.islands()) {
    if (!IsValidName(island.name()) || !names.insert(island.name()).second) {
      return Wrong(
          absl::StrCat("islands.name is \"", island.name(),
                       "\"; allowed: 1 to 64 of [a-z0-9-], each once"));
    }
  }
  return names;
}

absl::Status CheckNetworks(const wan::Scenario& scenario,
                           const IslandNames& islands) {
  if (scenario.networks().empty()) return Wrong("there are no networks");
  std::set<std::string> names;
  for (const wan::Network& network : scenario.networks()) {
    if (network.name().empty() || !names.insert(network.name()).second) {
      return Wrong(absl::StrCat("networks.name is \"", network.name(),
                                "\"; allowed: not empty, each once"));
    }
    const std::string where = absl::StrCat("network \"", network.name(), "\"");
    if (network.mtu() < 576 || network.mtu() > 65'521) {
      return Wrong(absl::StrCat(where, ".mtu is ", network.mtu(),
                                "; allowed: 576 to 65521"));
    }
    RETURN_IF_ERROR(
        CheckLinkShape(network.link(), absl::StrCat(where, ".link")));
    for (const wan::Island& island : scenario.islands()) {
      if (PartitionedBetween(scenario, network, island.name(), kBeforeTheRun,
                             kBeforeTheRun)) {
        return Wrong(
            absl::StrCat(where,
                         " is partitioned from the beginning, "
                         "so that it cannot be checked; use an event"));
      }
    }
    for (const wan::IslandLink& exception : network.exceptions()) {
      RETURN_IF_ERROR(CheckIsland(islands, exception.island(), where));
      RETURN_IF_ERROR(CheckLinkShape(exception.link(),
                                     absl::StrCat(where, ".exceptions.link")));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckEvents(const wan::Scenario& scenario,
                         const IslandNames& islands) {
  for (const wan::Event& event : scenario.events()) {
    if (!(event.at_seconds() >= 0) || !(event.for_seconds() >= 0)) {
      return Wrong(
          "events.at_seconds and events.for_seconds must be 0 or more");
    }
    if (event.has_island()) {
      RETURN_IF_ERROR(CheckIsland(islands, event.island(), "an event"));
    }
    RETURN_IF_ERROR(CheckLinkShape(event.link(), "events.link"));
  }
  return absl::OkStatus();
}

// The configuration takes the same path as at the coordinator.
absl::Status CheckRun(const wan::Scenario& scenario,
                      const wan::Setting& setting) {
  std::string text;
  TextFormat::PrintToString(RunOf(scenario, setting), &text);
  return ParseRunConfig(
             text, absl::StrCat("the run of setting \"", setting.name(), "\""))
      .status();
}

absl::Status CheckSettings(const wan::Scenario& scenario) {
  if (scenario.settings().empty()) return Wrong("there are no settings");
  std::set<std::string> names;
  for (const wan::Setting& setting : scenario.settings()) {
    if (setting.name().empty() || !names.insert(setting.name()).second) {
      return Wrong(absl::StrCat("settings.name is \"", setting.name(),
                                "\"; allowed: not empty, each once"));
    }
    RETURN_IF_ERROR(CheckRun(scenario, setting));
    const v1::RunConfig run = RunOf(scenario, setting);
    if (run.training().total_steps() <
        2 * uint64_t{run.synchronization().inner_steps_per_round()}) {
      return Wrong(absl::StrCat("setting \"", setting.name(),
                                "\" makes less than two rounds, too few to "
                                "measure a speed"));
    }
  }
  return CheckRun(scenario, BaselineSetting(scenario));
}

absl::Status Check(const wan::Scenario& scenario) {
  if (!IsValidName(scenario.name())) {
    return Wrong(absl::StrCat("name is \"", scenario.name(),
                              "\"; allowed: 1 to 64 of [a-z0-9-]"));
  }
  if (scenario.repeats() < 1 || scenario.repeats() > 1000) {
    return Wrong(absl::StrCat("repeats is ", scenario.repeats(),
                              "; allowed: 1 to 1000"));
  }
  ASSIGN_OR_RETURN(const IslandNames islands, CheckIslands(scenario));
  RETURN_IF_ERROR(CheckNetworks(scenario, islands));
  RETURN_IF_ERROR(CheckEvents(scenario, islands));
  return CheckSettings(scenario);
}

void Override(const wan::LinkShape& by, wan::LinkShape& link) {
  link.mutable_up()->MergeFrom(by.both());
  link.mutable_up()->MergeFrom(by.up());
  link.mutable_down()->MergeFrom(by.both());
  link.mutable_down()->MergeFrom(by.down());
}

ShaperSettings ToShaper(const wan::DirectionShape& shape) {
  const double bits_per_second = 1e6 * shape.rate_mbit_s();
  return {.bits_per_second = bits_per_second,
          .delay = absl::Milliseconds(shape.delay_ms()),
          .jitter = absl::Milliseconds(shape.jitter_ms()),
          .loss = shape.loss(),
          .queue_bytes = std::max(kMinQueueBytes,
                                  static_cast<int64_t>(bits_per_second / 8 *
                                                       shape.queue_ms() / 1e3)),
          .partitioned = shape.partitioned()};
}

absl::Duration Begin(const wan::Event& event) {
  return absl::Seconds(event.at_seconds());
}

absl::Duration End(const wan::Event& event) {
  return event.for_seconds() == 0
             ? absl::InfiniteDuration()
             : Begin(event) + absl::Seconds(event.for_seconds());
}

}  // namespace

absl::StatusOr<wan::Scenario> ParseScenario(const std::string& text,
                                            absl::string_view file) {
  wan::Scenario scenario;
  FirstError collector;
  TextFormat::Parser parser;
  parser.RecordErrorsTo(&collector);
  if (!parser.ParseFromString(text, &scenario)) {
    return Wrong(absl::StrCat(file, ":", collector.error()));
  }
  const absl::Status status = Check(scenario);
  if (!status.ok()) return Wrong(absl::StrCat(file, ": ", status.message()));
  return scenario;
}

absl::StatusOr<wan::Scenario> LoadScenario(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  return ParseScenario(text, path);
}

v1::RunConfig RunOf(const wan::Scenario& scenario,
                    const wan::Setting& setting) {
  v1::RunConfig config = scenario.run();
  config.MergeFrom(setting.run());
  return config;
}

wan::Setting BaselineSetting(const wan::Scenario& scenario) {
  wan::Setting setting;
  setting.set_name("without synchronization");
  auto& synchronization = *setting.mutable_run()->mutable_synchronization();
  synchronization.set_inner_steps_per_round(
      static_cast<uint32_t>(scenario.run().training().total_steps()));
  synchronization.set_fragments(1);
  synchronization.set_overlap_steps(0);
  synchronization.set_max_overlap_steps(0);
  return setting;
}

wan::Network BaselineNetwork() {
  wan::Network network;
  network.set_name("unlimited");
  return network;
}

LinkSettings LinkAt(const wan::Scenario& scenario, const wan::Network& network,
                    absl::string_view island, absl::Duration elapsed) {
  wan::LinkShape link;
  Override(network.link(), link);
  for (const wan::IslandLink& exception : network.exceptions()) {
    if (exception.island() == island) Override(exception.link(), link);
  }
  for (const wan::Event& event : scenario.events()) {
    if (event.has_island() && event.island() != island) continue;
    if (Begin(event) <= elapsed && elapsed < End(event)) {
      Override(event.link(), link);
    }
  }
  return {.up = ToShaper(link.up()), .down = ToShaper(link.down())};
}

bool PartitionedBetween(const wan::Scenario& scenario,
                        const wan::Network& network, absl::string_view island,
                        absl::Duration from, absl::Duration to) {
  // The link is constant between the times at which events begin or end.
  std::vector<absl::Duration> times = {from};
  for (const wan::Event& event : scenario.events()) {
    for (const absl::Duration time : {Begin(event), End(event)}) {
      if (from < time && time <= to) times.push_back(time);
    }
  }
  return std::any_of(times.begin(), times.end(), [&](absl::Duration time) {
    const LinkSettings link = LinkAt(scenario, network, island, time);
    return link.up.partitioned || link.down.partitioned;
  });
}

}  // namespace causeway
