// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "cli/plan/plan_settings.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "common/checkpoint/initial_values.h"
#include "common/config/run_config.h"
#include "common/status_macros.h"
#include "common/tensors/model_layout.h"
#include "google/protobuf/io/tokenizer.h"
#include "google/protobuf/text_format.h"

namespace causeway {
namespace {

constexpr double kBitsPerMegabit = 1e6;
constexpr double kSecondsPerMillisecond = 1e-3;
constexpr double kValuesPerMillion = 1e6;

// About a third of what two cores and a disk of 350 MB/s reach with eight
// islands (docs/benchmarks.md).
constexpr double kDefaultMergeRate = 100e6;
constexpr size_t kDefaultIslands = 2;

// More parameters than any model has, and exactly a double. The other two are
// the limits of a RunConfig.
constexpr double kMostParameters = 1e15;
constexpr uint64_t kMostLayers = 1024;
constexpr size_t kMostIslands = 4096;

struct SynchronizationFlag {
  const char* field;
  const char* value;
  const char* help;
};

constexpr SynchronizationFlag kSynchronizationFlags[] = {
    {"inner_steps_per_round", "H", "Inner steps per round."},
    {"fragments", "P", "The number of fragments of the model."},
    {"pattern", "NAME", "How layers are assigned to fragments."},
    {"overlap_steps", "TAU",
     "Steps from sending a fragment to applying its update."},
    {"max_overlap_steps", "N",
     "Further steps before training waits for the update."},
    {"uplink_format", "FORMAT", "Format of contributions."},
    {"downlink_format", "FORMAT", "Format of updates."},
    {"block_size", "N", "Values that share a scale."},
    {"entropy_coding", "BOOL", "Whether codes are entropy coded."},
    {"ecq_bits", "BITS", "Bits per value of ECQ."},
    {"uplink_bits_floor", "BITS",
     "The fewest bits that an island sends if its uplink is slow; 0 for "
     "ecq_bits."},
};

class LastError : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int /*line*/, int /*column*/,
                const std::string& message) override {
    message_ = message;
  }

  const std::string& message() const { return message_; }

 private:
  std::string message_;
};

absl::Status SetSynchronization(
    const std::map<std::string, std::string>& fields,
    v1::SynchronizationConfig& sync) {
  for (const auto& [field, value] : fields) {
    if (value.empty()) continue;
    v1::SynchronizationConfig parsed;
    LastError error;
    google::protobuf::TextFormat::Parser parser;
    parser.RecordErrorsTo(&error);
    if (!parser.ParseFromString(absl::StrCat(field, ": ", value), &parsed)) {
      return UsageError(absl::StrCat("--", field, ": ", error.message()));
    }
    sync.MergeFrom(parsed);
  }
  return absl::OkStatus();
}

// Returns one number for each island; none if there are no words.
absl::StatusOr<std::vector<double>> PerIsland(
    absl::string_view flag, const std::vector<std::string>& words,
    size_t islands) {
  std::vector<double> numbers;
  for (const std::string& word : words) {
    double number = 0;
    if (!absl::SimpleAtod(word, &number) || !(number >= 0)) {
      return UsageError(absl::StrFormat(
          "--%s: \"%s\" is no number of 0 or more", flag, word));
    }
    numbers.push_back(number);
  }
  if (numbers.size() == 1) numbers.resize(islands, numbers[0]);
  if (!numbers.empty() && numbers.size() != islands) {
    return UsageError(absl::StrFormat(
        "--%s has %d values for %d islands; give one for all or one for each",
        flag, numbers.size(), islands));
  }
  return numbers;
}

absl::StatusOr<ModelLayout> LayoutOfSize(const PlanSettings& settings) {
  if (!(settings.parameters >= 1 && settings.parameters <= kMostParameters &&
        settings.layers <= kMostLayers)) {
    return UsageError(absl::StrFormat(
        "say what is trained: --config FILE, or --parameters N (1 to %g; "
        "--outside_layers of them are in no layer) and --layers N (1 to %d)",
        kMostParameters, kMostLayers));
  }
  if (!(settings.outside_layers >= 0 &&
        settings.outside_layers <= settings.parameters)) {
    return UsageError(absl::StrFormat(
        "--outside_layers is %g; it is 0 to --parameters, which is %g",
        settings.outside_layers, settings.parameters));
  }
  return AsUsageError(MakeUniformLayout(
      static_cast<uint64_t>(settings.parameters),
      static_cast<uint64_t>(settings.outside_layers), settings.layers));
}

size_t CountIslands(const PlanSettings& settings, const v1::RunConfig& config) {
  if (settings.islands > 0) return settings.islands;
  const size_t listed =
      std::max({settings.step_seconds.size(), settings.up_mbit.size(),
                settings.down_mbit.size(), settings.rtt_ms.size()});
  if (listed > 1) return listed;
  return settings.config.empty() ? kDefaultIslands
                                 : config.membership().min_islands();
}

// Applies the flags, except the number of islands.
absl::Status ApplySettings(const PlanSettings& settings,
                           RunAssumptions& assumptions) {
  RETURN_IF_ERROR(SetSynchronization(
      settings.synchronization, *assumptions.config.mutable_synchronization()));
  const size_t islands = assumptions.islands.size();
  ASSIGN_OR_RETURN(const std::vector<double> steps,
                   PerIsland("step_seconds", settings.step_seconds, islands));
  ASSIGN_OR_RETURN(const std::vector<double> up,
                   PerIsland("up_mbit", settings.up_mbit, islands));
  ASSIGN_OR_RETURN(std::vector<double> down,
                   PerIsland("down_mbit", settings.down_mbit, islands));
  ASSIGN_OR_RETURN(const std::vector<double> round_trips,
                   PerIsland("rtt_ms", settings.rtt_ms, islands));
  if (down.empty()) down = up;
  for (size_t i = 0; i < islands; ++i) {
    SimulatedIsland& island = assumptions.islands[i];
    if (!steps.empty()) island.step_seconds = steps[i];
    if (!up.empty()) island.link.up = up[i] * kBitsPerMegabit;
    if (!down.empty()) island.link.down = down[i] * kBitsPerMegabit;
    if (!round_trips.empty()) {
      island.round_trip_seconds = round_trips[i] * kSecondsPerMillisecond;
    }
  }
  assumptions.coordinator = {
      .up = settings.coordinator_in_mbit * kBitsPerMegabit,
      .down = settings.coordinator_out_mbit * kBitsPerMegabit};
  // A NaN is refused, too.
  if (!(settings.merge_mvalues >= 0 && settings.uplink_bits >= 0 &&
        settings.downlink_bits >= 0)) {
    return UsageError(
        "--merge_mvalues, --uplink_bits and --downlink_bits must be 0 or more");
  }
  if (settings.merge_mvalues > 0) {
    assumptions.merge_rate = settings.merge_mvalues * kValuesPerMillion;
  }
  assumptions.uplink_bits = settings.uplink_bits;
  assumptions.downlink_bits = settings.downlink_bits;
  return absl::OkStatus();
}

}  // namespace

void AddSettingsFlags(FlagSet& flags, PlanSettings& settings) {
  flags.Add("config", "FILE", "The run's configuration.", &settings.config);
  flags.Add("initial_parameters", "PATH",
            "The checkpoint of a run whose configuration does not list its "
            "tensors.",
            &settings.initial_parameters);
  flags.Add("parameters", "N",
            "The number of the model's parameters, instead of --config.",
            &settings.parameters);
  flags.Add("layers", "N",
            "The number of the model's layers, with --parameters.",
            &settings.layers);
  flags.Add("outside_layers", "N",
            "Parameters outside the layers (embedding, final norm, head), with "
            "--parameters.",
            &settings.outside_layers);
  flags.Add("islands", "N",
            "The number of islands; 0 for as many as the longest list below "
            "has, or else the configuration's min_islands, or else 2.",
            &settings.islands);
  flags.Add("step_seconds", "SECONDS...",
            "Time of an inner step without synchronization. This list and the "
            "next three have one value for all islands, or one for each.",
            &settings.step_seconds);
  flags.Add("up_mbit", "RATE...",
            "Rate of the islands' uplinks in Mbit/s; inf for no bound.",
            &settings.up_mbit);
  flags.Add("down_mbit", "RATE...",
            "Rate of the islands' downlinks in Mbit/s; --up_mbit if not given.",
            &settings.down_mbit);
  flags.Add(
      "rtt_ms", "MS...",
      "Round-trip time to the coordinator in milliseconds; 0 if not given.",
      &settings.rtt_ms);
  flags.Add("coordinator_in_mbit", "RATE",
            "Rate at which the coordinator can receive, in Mbit/s.",
            &settings.coordinator_in_mbit);
  flags.Add("coordinator_out_mbit", "RATE",
            "Rate at which the coordinator can send, in Mbit/s.",
            &settings.coordinator_out_mbit);
  flags.Add(
      "merge_mvalues", "RATE",
      "Speed of outer steps, including the commit, in millions of values per "
      "second; inf if they take no time. 0 stands for 100, about a third of "
      "what two cores and a disk of 350 MB/s reach with eight islands.",
      &settings.merge_mvalues);
  flags.Add("slow_start_after_idle", "",
            "Whether TCP begins with a small window after each pause, as Linux "
            "does unless net.ipv4.tcp_slow_start_after_idle is 0 or congestion "
            "control is BBR.",
            &settings.slow_start_after_idle);
  flags.Add("rounds", "N",
            "Simulates the first N rounds and measures all but the first; 0 "
            "predicts the long run.",
            &settings.rounds);
  for (const SynchronizationFlag& flag : kSynchronizationFlags) {
    flags.Add(flag.field, flag.value,
              absl::StrCat(flag.help, " Replaces the configuration's value."),
              &settings.synchronization[flag.field]);
  }
  flags.Add("uplink_bits", "BITS",
            "Bits per value of uploads, including scales; 0 stands for the "
            "format's size, which is a measured one if entropy coded.",
            &settings.uplink_bits);
  flags.Add("downlink_bits", "BITS", "The same for downloads.",
            &settings.downlink_bits);
}

absl::StatusOr<RunAssumptions> MakeAssumptions(const PlanSettings& settings) {
  RunAssumptions assumptions;
  if (settings.config.empty()) {
    ASSIGN_OR_RETURN(assumptions.layout, LayoutOfSize(settings));
  } else {
    if (settings.parameters > 0) {
      return UsageError("--config says what the model is; --parameters cannot");
    }
    ASSIGN_OR_RETURN(assumptions.config, LoadRunConfig(settings.config));
    ASSIGN_OR_RETURN(
        assumptions.layout,
        NewRunLayout(assumptions.config, settings.initial_parameters));
  }
  if (settings.step_seconds.empty() || settings.up_mbit.empty()) {
    return UsageError(
        "say how fast islands and their links are: --step_seconds SECONDS "
        "--up_mbit RATE");
  }
  const size_t islands = CountIslands(settings, assumptions.config);
  if (islands > kMostIslands) {
    return UsageError(absl::StrFormat("--islands is %d; allowed: 0 to %d",
                                      islands, kMostIslands));
  }
  assumptions.islands.resize(islands);
  assumptions.merge_rate = kDefaultMergeRate;
  assumptions.slow_start_after_idle = settings.slow_start_after_idle;
  assumptions.rounds = settings.rounds;
  RETURN_IF_ERROR(ApplySettings(settings, assumptions));
  return assumptions;
}

}  // namespace causeway
