// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "cli/validate.h"

#include <memory>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/human.h"
#include "common/checkpoint/initial_values.h"
#include "common/config/run_config.h"
#include "common/status_macros.h"
#include "common/tensors/model_layout.h"
#include "outer_optimizer/fragment_plan.h"
#include "outer_optimizer/sync_schedule.h"
#include "quantization/codec.h"
#include "quantization/codec_config.h"
#include "server/footprint.h"
#include "worker/data/dataset.h"

namespace causeway {
namespace {

void PrintFragmentPlan(const v1::RunConfig& config,
                       const v1::FragmentPlan& plan,
                       const SyncSchedule& schedule, std::ostream& out) {
  const v1::SynchronizationConfig& sync = config.synchronization();
  const auto bytes = [](const CodecSpec& spec, const v1::Fragment& fragment) {
    return absl::StrCat(spec.entropy_coded ? "at most " : "",
                        HumanBytes(MaxEncodedBytes(spec, fragment.size())));
  };
  Table table({">FRAGMENT", ">TENSORS", ">VALUES", ">SENT AT", ">ROUNDS",
               ">CONTRIBUTION", ">UPDATE"});
  for (const v1::Fragment& fragment : plan.fragments()) {
    table.AddRow({absl::StrCat(fragment.id()),
                  absl::StrCat(fragment.tensors_size()),
                  HumanCount(fragment.size()),
                  absl::StrCat("+", fragment.send_offset_steps()),
                  absl::StrCat(schedule.FinalVersion(fragment.id())),
                  bytes(UplinkSpec(sync), fragment),
                  bytes(DownlinkSpec(sync), fragment)});
  }
  table.Print(out);
}

void PrintData(const v1::RunConfig& config, const Dataset& dataset,
               std::ostream& out) {
  const Split& split = dataset.split;
  const double windows = static_cast<double>(split.training_windows(0));
  const double used = static_cast<double>(config.training().total_steps()) *
                      config.training().batch_size();
  out << absl::StrFormat(
      "data      %s tokens, the largest below %d; %s validation %s; "
      "%d %s of %s training sequences\n",
      HumanCount(dataset.corpus.size()), dataset.corpus.vocabulary(),
      HumanCount(split.validation_windows()),
      split.validation_windows() == 1 ? "sequence" : "sequences",
      split.shards(), split.shards() == 1 ? "shard" : "shards",
      HumanCount(windows));
  out << absl::StrFormat(
      "epochs    an island reads its shard %.3g times in %u steps\n",
      used / windows, config.training().total_steps());
}

}  // namespace

absl::Status Validate(const v1::RunConfig& config,
                      const std::string& checkpoint,
                      absl::Span<const std::string> paths, std::ostream& out) {
  ASSIGN_OR_RETURN(const ModelLayout layout, NewRunLayout(config, checkpoint));
  ASSIGN_OR_RETURN(const v1::FragmentPlan plan,
                   MakeFragmentPlan(layout, config));
  ASSIGN_OR_RETURN(const SyncSchedule schedule,
                   SyncSchedule::Create(config, plan));
  std::optional<Dataset> dataset;
  if (!paths.empty()) {
    if (config.has_tensors()) {
      return absl::InvalidArgumentError(
          "the islands of a run that is defined by its tensors read their own "
          "data: leave --data and --text out");
    }
    ASSIGN_OR_RETURN(dataset, OpenDataset(config, paths));
  }
  const v1::TrainingConfig& training = config.training();
  const double step_tokens = static_cast<double>(TokensPerStep(config));
  const uint32_t blocks = CountBlocks(layout);
  out << absl::StrFormat(
      "model     %s parameters in %u %s%s\n", HumanCount(layout.size), blocks,
      config.has_tensors() ? "block" : "layer", blocks == 1 ? "" : "s");
  out << absl::StrFormat(
      "training  %u steps of %s tokens on each island: %s tokens\n",
      training.total_steps(), HumanCount(step_tokens),
      HumanCount(step_tokens * static_cast<double>(training.total_steps())));
  out << absl::StrFormat(
      "rounds    %u, one every %u steps for each of %d fragments\n",
      schedule.TotalRounds(), config.synchronization().inner_steps_per_round(),
      plan.fragments_size());
  if (const v1::SynchronizationConfig& sync = config.synchronization();
      sync.uplink_bits_floor() > 0) {
    out << absl::StrFormat(
        "uplinks   %.3g bits per value, and down to %.3g where a contribution "
        "would be late\n",
        sync.ecq_bits(), sync.uplink_bits_floor());
  }
  const Footprint footprint = CoordinatorFootprint(config, plan);
  out << absl::StrFormat(
      "memory    coordinator: at most %s with %d islands, and connections\n",
      HumanBytes(footprint.most_memory), config.membership().max_islands());
  out << absl::StrFormat(
      "disk      coordinator: %s to begin; at most %s, and the log\n",
      HumanBytes(footprint.first_disk), HumanBytes(footprint.most_disk));
  if (dataset.has_value()) PrintData(config, *dataset, out);
  out << "\n";
  PrintFragmentPlan(config, plan, schedule, out);
  return absl::OkStatus();
}

Command ValidateCommand() {
  const auto paths = std::make_shared<std::vector<std::string>>();
  Command command{
      .name = "validate",
      .arguments = "CONFIG",
      .summary = "Checks a run's configuration and data before it is started.",
      .details =
          "CONFIG is a RunConfig in protobuf's text format "
          "(proto/run_config.proto describes its fields). The command shows "
          "every mistake with its line and the allowed values. With data, it "
          "also checks that they fit the model and are long enough for the "
          "shards; with a checkpoint, that it has the run's tensors. A run of "
          "`tensors` that the configuration does not list needs the "
          "checkpoint. The table shows the plan: what each fragment holds, "
          "when it is sent, and how many bytes that takes."};
  const auto checkpoint = std::make_shared<std::string>();
  command.flags.Add("initial_parameters", "PATH",
                    "The checkpoint that the run will begin with.",
                    checkpoint.get());
  command.flags.Add("data", "FILE...", "Token files to train on.", paths.get());
  command.flags.Add("text", "FILE...",
                    "Text files to train on, for a run with tokenizer BYTES.",
                    paths.get());
  command.run = [=](const Invocation& call) -> absl::Status {
    ASSIGN_OR_RETURN(const v1::RunConfig config,
                     LoadRunConfig(call.arguments[0]));
    return Validate(config, *checkpoint, *paths, call.out);
  };
  return command;
}

}  // namespace causeway
