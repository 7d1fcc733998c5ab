// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/footprint.h"

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/human_units.h"
#include "quantization/codec.h"
#include "quantization/codec_config.h"
#include "quantization/strips/layout.h"

namespace causeway {
namespace {

// The most bytes of decompressed codes for a value that may be in an outer
// step: those of 32 islands with four bits.
constexpr double kMostCodesPerValue = 16;

// Returns the number of values in the largest fragments that may be in outer
// steps at once.
double ValuesInSteps(const v1::FragmentPlan& plan) {
  return LargestFragments(
      plan, OuterStepsAtOnce(static_cast<size_t>(plan.fragments_size())));
}

// Returns the most bytes that records of merges take. For each kept snapshot
// these are snapshot_log_ratio times the run's `state` in bytes, and the merge
// that exceeds this, of `uploads` bytes of contributions to `values` values.
// Does not count records that are kept for ever (record_contributions).
double RecordBytes(const v1::StorageConfig& storage, double state,
                   double uploads, double values) {
  const double merge = RecordsGradient(storage, uploads, values)
                           ? sizeof(float) * values
                           : uploads;
  return storage.versions_kept() *
         (storage.snapshot_log_ratio() * state + merge);
}

}  // namespace

double StateBytesPerValue(const v1::RunConfig& config) {
  const auto algorithm = config.outer_optimizer().algorithm();
  int vectors = 1;
  if (algorithm != v1::OuterOptimizerConfig::SGD) ++vectors;
  if (algorithm == v1::OuterOptimizerConfig::DELAYED_NESTEROV) ++vectors;
  if (!IsLossless(config.synchronization().downlink_format())) ++vectors;
  return static_cast<double>(sizeof(float)) * vectors;
}

bool RecordsGradient(const v1::StorageConfig& storage, double encoded_bytes,
                     double values) {
  return !storage.record_contributions() &&
         encoded_bytes > 2 * sizeof(float) * values;
}

size_t OuterStepsAtOnce(size_t fragments) {
  constexpr size_t kMostAtOnce = 4;
  return std::clamp<size_t>(fragments / 2, 1, kMostAtOnce);
}

double LargestFragments(const v1::FragmentPlan& plan, size_t count) {
  std::vector<uint64_t> sizes;
  for (const v1::Fragment& fragment : plan.fragments()) {
    sizes.push_back(fragment.size());
  }
  std::sort(sizes.begin(), sizes.end(), std::greater<>());
  double sum = 0;
  for (size_t i = 0; i < std::min(count, sizes.size()); ++i) {
    sum += static_cast<double>(sizes[i]);
  }
  return sum;
}

double KeptCodeBytes(const v1::SynchronizationConfig& config, double uploaded,
                     double in_steps) {
  const auto strip =
      static_cast<double>(CodeBytes(UplinkSpec(config), kStripValues));
  return std::min(uploaded * strip / kStripValues,
                  kMostCodesPerValue * in_steps);
}

StagingBytes StagingBytesOf(const v1::RunConfig& config,
                            const v1::FragmentPlan& plan) {
  const CodecSpec uplink = UplinkSpec(config.synchronization());
  StagingBytes bytes;
  double values = 0;
  for (const v1::Fragment& fragment : plan.fragments()) {
    bytes.uploads += MaxEncodedBytes(uplink, fragment.size());
    values += static_cast<double>(fragment.size());
  }
  bytes.uploads *= config.membership().max_islands();
  bytes.codes = static_cast<uint64_t>(KeptCodeBytes(
      config.synchronization(), values * config.membership().max_islands(),
      ValuesInSteps(plan)));
  return bytes;
}

Footprint CoordinatorFootprint(const v1::RunConfig& config,
                               const v1::FragmentPlan& plan) {
  const v1::SynchronizationConfig& sync = config.synchronization();
  const v1::StorageConfig& storage = config.storage();
  const double state = StateBytesPerValue(config);
  double values = 0;
  double down = 0;
  double largest_down = 0;
  for (const v1::Fragment& fragment : plan.fragments()) {
    const auto size = static_cast<double>(fragment.size());
    const auto update = static_cast<double>(
        MaxEncodedBytes(DownlinkSpec(sync), fragment.size()));
    values += size;
    down += update;
    largest_down = std::max(largest_down, update);
  }
  const double largest = LargestFragments(plan, 1);
  const size_t steps =
      OuterStepsAtOnce(static_cast<size_t>(plan.fragments_size()));
  const double in_steps = ValuesInSteps(plan);
  const StagingBytes staging = StagingBytesOf(config, plan);
  const auto uploads = static_cast<double>(staging.uploads);
  const bool gradient = RecordsGradient(storage, uploads, values);
  return {.first_disk = values * state,
          .uploads = uploads,
          .most_memory = uploads + static_cast<double>(staging.codes) +
                         (values + in_steps) * state +
                         static_cast<double>(steps) * largest_down +
                         (gradient ? sizeof(float) * in_steps : 0),
          .most_disk = (values * storage.versions_kept() + largest) * state +
                       RecordBytes(storage, values * state, uploads, values) +
                       down * storage.update_history() + largest_down};
}

std::string MemoryWarning(v1::RunConfig config, const v1::FragmentPlan& plan,
                          uint64_t memory) {
  const uint32_t islands = config.membership().min_islands();
  config.mutable_membership()->set_max_islands(islands);
  const double needed = CoordinatorFootprint(config, plan).most_memory;
  if (needed <= static_cast<double>(memory)) return "";
  return absl::StrFormat(
      "with %d island%s this run takes up to %s of memory, but the machine and "
      "the limits of this process leave %s: the system may kill this "
      "coordinator. Raise the limit of its container or unit",
      islands, islands == 1 ? "" : "s", HumanBytes(needed), HumanBytes(memory));
}

absl::Status CheckRoom(const Footprint& footprint, uint64_t disk) {
  if (footprint.first_disk <= static_cast<double>(disk)) {
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError(
      absl::StrCat("a new run with this configuration needs ",
                   HumanBytes(footprint.first_disk), " of disk space, but ",
                   HumanBytes(disk),
                   " are there; `causeway validate` says what a run needs"));
}

}  // namespace causeway
