// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "cli/plan/run_plan.h"

#include <algorithm>
#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status_macros.h"
#include "outer_optimizer/fragment_plan.h"
#include "outer_optimizer/sync_schedule.h"
#include "quantization/codec.h"
#include "server/footprint.h"
#include "server/rules/uplink_bits.h"
#include "worker/training/rank_trainer.h"

namespace causeway {
namespace {

constexpr double kBytesPerFloat = 4;
constexpr double kDataParallelBytesPerValue = 2;

// Returns the bits per value of an entropy-coded format, including scales of 16
// bits for blocks of 256 values, as measured on pseudo-gradients
// (docs/benchmarks.md, "Rate and distortion"); 0 for formats that are not
// entropy coded.
double EntropyCodedBits(v1::Format format) {
  switch (format) {
    case v1::INT8:
      return 7.57;
    case v1::INT4:
      return 3.41;
    case v1::E3M0:
      return 3.54;
    default:
      return 0;
  }
}

absl::StatusOr<double> BitsPerValue(double assumed, v1::Format format,
                                    const v1::SynchronizationConfig& sync,
                                    const char* flag) {
  if (assumed > 0) return assumed;
  if (format == v1::ECQ) {
    if (sync.ecq_bits() > 0) return sync.ecq_bits();
    return absl::InvalidArgumentError(
        absl::StrFormat("the rate of ECQ at a target distortion depends on the "
                        "values; set ecq_bits or give --%s",
                        flag));
  }
  const CodecSpec spec{.format = format, .block_size = sync.block_size()};
  RETURN_IF_ERROR(CheckCodecSpec(spec));
  if (const double bits = EntropyCodedBits(format);
      sync.entropy_coding() && bits > 0) {
    constexpr double kScaleBits = 16;
    return bits + kScaleBits / sync.block_size() - kScaleBits / 256;
  }
  // The vector is so long that a partial last block does not matter.
  constexpr uint64_t kValues = 1 << 20;
  return 8.0 * static_cast<double>(MaxEncodedBytes(spec, kValues)) / kValues;
}

absl::StatusOr<SyncSchedule> MakeSchedule(const v1::SynchronizationConfig& sync,
                                          const v1::FragmentPlan& plan) {
  const uint64_t round_steps = sync.inner_steps_per_round();
  SyncSchedule::Options options{.round_steps = round_steps,
                                .overlap_steps = sync.overlap_steps(),
                                // The end of the run is far away.
                                .total_steps = 4 * round_steps};
  for (const v1::Fragment& fragment : plan.fragments()) {
    options.send_offsets.push_back(fragment.send_offset_steps());
  }
  const uint64_t latest =
      uint64_t{sync.overlap_steps()} + sync.max_overlap_steps();
  if (round_steps > 0 && latest >= round_steps) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "overlap_steps + max_overlap_steps is %d; it must be less than "
        "inner_steps_per_round, which is %d",
        latest, round_steps));
  }
  return SyncSchedule::Create(std::move(options));
}

// Returns the bits that the coordinator will plan for each island's uplink
// (server/rules/uplink_bits.h); `most` is the configured number.
std::vector<double> PlanUplinkBits(const Simulation& simulation,
                                   const v1::FragmentPlan& plan,
                                   const v1::SynchronizationConfig& sync,
                                   double most) {
  const double floor = sync.uplink_bits_floor();
  const double islands = static_cast<double>(simulation.islands.size());
  std::vector<double> bits(simulation.islands.size(), most);
  if (floor == 0 || floor > most || sync.uplink_format() != v1::ECQ) {
    return bits;
  }
  double step_seconds = 0;
  double round_trip = 0;
  double down_rate = simulation.coordinator.down / islands;
  for (const SimulatedIsland& island : simulation.islands) {
    step_seconds = std::max(step_seconds, island.step_seconds);
    round_trip = std::max(round_trip, island.round_trip_seconds);
    down_rate = std::min(down_rate, island.link.down);
  }
  for (size_t i = 0; i < bits.size(); ++i) {
    const SimulatedIsland& island = simulation.islands[i];
    std::vector<UplinkSend> sends;
    for (size_t id = 0; id < simulation.exchanges.size(); ++id) {
      const Exchange& exchange = simulation.exchanges[id];
      const double elsewhere = exchange.merge_seconds +
                               exchange.down_bits / down_rate + round_trip / 2 +
                               island.round_trip_seconds;
      sends.push_back({.values = static_cast<double>(
                           plan.fragments(static_cast<int>(id)).size()),
                       .at_seconds = exchange.ready_at * step_seconds,
                       .available_seconds = UploadSeconds(
                           sync.overlap_steps() * step_seconds, elsewhere)});
    }
    bits[i] = UplinkBits::Plan(
        {.floor = floor, .target = most},
        BitsInTime(
            sends, simulation.period_steps * step_seconds,
            std::min(island.link.up, simulation.coordinator.up / islands)));
  }
  return bits;
}

struct BytesPerValue {
  double up = 0;
  double down = 0;
};

void PredictMemory(const RunAssumptions& assumptions,
                   const v1::FragmentPlan& plan, const BytesPerValue& wire,
                   RunPrediction& prediction) {
  const v1::RunConfig& config = assumptions.config;
  const double values = static_cast<double>(assumptions.layout.size);
  const double in_flight =
      LargestFragments(plan, prediction.simulated.in_flight);
  const bool error_feedback = config.synchronization().error_feedback() > 0;
  // Exchanges hold the encodings, and the decoded change beside the next
  // anchor.
  prediction.island_bytes =
      static_cast<double>(RankTrainerBytes(config.training(),
                                           assumptions.layout, /*ranks=*/1)) +
      values * kBytesPerFloat * (1 + (error_feedback ? 1 : 0)) +
      in_flight * (wire.up + wire.down + 2 * kBytesPerFloat);
  const double state = StateBytesPerValue(config);
  const double in_steps = LargestFragments(
      plan,
      std::min(prediction.simulated.in_flight,
               OuterStepsAtOnce(static_cast<size_t>(plan.fragments_size()))));
  const double uploaded =
      in_flight * static_cast<double>(assumptions.islands.size());
  prediction.coordinator_bytes =
      uploaded * wire.up +
      KeptCodeBytes(config.synchronization(), uploaded, in_steps) +
      (values + in_steps) * state + in_steps * wire.down;
  v1::RunConfig planned = config;
  planned.mutable_membership()->set_max_islands(
      static_cast<uint32_t>(assumptions.islands.size()));
  const Footprint footprint = CoordinatorFootprint(planned, plan);
  prediction.coordinator_most_bytes = footprint.most_memory;
  prediction.coordinator_disk_bytes = footprint.most_disk;
}

}  // namespace

absl::StatusOr<ModelLayout> MakeUniformLayout(uint64_t parameters,
                                              uint64_t outside_layers,
                                              uint64_t layers) {
  if (layers == 0 || parameters < outside_layers ||
      parameters - outside_layers < layers) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%d parameters, of which %d are outside the layers, "
        "cannot make a model of %d %s",
        parameters, outside_layers, layers, layers == 1 ? "layer" : "layers"));
  }
  ModelLayout layout;
  const auto add = [&](int block, uint64_t size) {
    layout.tensors.push_back({.name = absl::StrCat("tensor.", block),
                              .shape = {static_cast<int64_t>(size)},
                              .block = block,
                              .size = static_cast<int64_t>(size),
                              .offset = layout.size});
    layout.size += static_cast<int64_t>(size);
  };
  const uint64_t in_layers = parameters - outside_layers;
  for (uint64_t i = 0; i < layers; ++i) {
    add(static_cast<int>(i),
        in_layers / layers + (i < in_layers % layers ? 1 : 0));
  }
  if (outside_layers > 0) add(-1, outside_layers);
  return layout;
}

absl::StatusOr<RunPrediction> PredictRun(const RunAssumptions& assumptions) {
  const v1::SynchronizationConfig& sync = assumptions.config.synchronization();
  ASSIGN_OR_RETURN(const v1::FragmentPlan plan,
                   MakeFragmentPlan(assumptions.layout, assumptions.config));
  ASSIGN_OR_RETURN(const SyncSchedule schedule, MakeSchedule(sync, plan));
  ASSIGN_OR_RETURN(const double up_bits,
                   BitsPerValue(assumptions.uplink_bits, sync.uplink_format(),
                                sync, "uplink_bits"));
  ASSIGN_OR_RETURN(const double down_bits,
                   BitsPerValue(assumptions.downlink_bits,
                                sync.downlink_format(), sync, "downlink_bits"));

  Simulation simulation{
      .period_steps = static_cast<double>(schedule.round_steps()),
      .islands = assumptions.islands,
      .coordinator = assumptions.coordinator,
      .slow_start_after_idle = assumptions.slow_start_after_idle,
      .periods = assumptions.rounds};
  for (const v1::Fragment& fragment : plan.fragments()) {
    const uint64_t sent = schedule.NextSend(fragment.id(), 0)->step;
    const uint64_t waited_at =
        schedule.ApplyStep(sent) + sync.max_overlap_steps();
    const double size = static_cast<double>(fragment.size());
    simulation.exchanges.push_back(
        {.ready_at = static_cast<double>(sent),
         .needed_at = static_cast<double>(waited_at),
         .up_bits = size * up_bits,
         .down_bits = size * down_bits,
         .merge_seconds = size / assumptions.merge_rate});
  }

  RunPrediction prediction;
  prediction.uplink_bits = PlanUplinkBits(simulation, plan, sync, up_bits);
  double sum_of_bits = 0;
  for (size_t i = 0; i < simulation.islands.size(); ++i) {
    simulation.islands[i].up_share = prediction.uplink_bits[i] / up_bits;
    sum_of_bits += prediction.uplink_bits[i];
  }
  ASSIGN_OR_RETURN(prediction.simulated, Simulate(simulation));
  const double values = static_cast<double>(assumptions.layout.size);
  const double mean_bits = sum_of_bits / static_cast<double>(std::max<size_t>(
                                             1, simulation.islands.size()));
  const BytesPerValue wire = {.up = mean_bits / 8, .down = down_bits / 8};
  prediction.up_bytes_per_round = values * wire.up;
  prediction.down_bytes_per_round = values * wire.down;
  const v1::StorageConfig& storage = assumptions.config.storage();
  const double uploads =
      values * wire.up * static_cast<double>(assumptions.islands.size());
  prediction.record_bytes_per_round = RecordsGradient(storage, uploads, values)
                                          ? values * kBytesPerFloat
                                          : uploads;
  const double state = values * StateBytesPerValue(assumptions.config);
  const double rounds_per_snapshot = std::min(
      storage.snapshot_log_ratio() * state / prediction.record_bytes_per_round,
      storage.replay_seconds() * assumptions.merge_rate / values);
  prediction.snapshot_bytes_per_round =
      state / std::max(1.0, rounds_per_snapshot);
  prediction.data_parallel_ratio = 2 * kDataParallelBytesPerValue *
                                   simulation.period_steps /
                                   (wire.up + wire.down);
  PredictMemory(assumptions, plan, wire, prediction);
  return prediction;
}

}  // namespace causeway
