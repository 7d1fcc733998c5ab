// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The part of Coordinator that plans the bits of contributions from what
// islands measure (server/rules/uplink_bits.h).
#include <algorithm>
#include <optional>
#include <vector>

#include "absl/strings/str_format.h"
#include "quantization/codec.h"
#include "quantization/codec_config.h"
#include "server/rules/coordinator.h"

namespace causeway {
namespace {

// Returns the most bits per value of an update.
double DownlinkBits(const v1::SynchronizationConfig& sync) {
  if (sync.downlink_format() == v1::ECQ) return sync.ecq_bits();
  constexpr uint64_t kValues = 1 << 20;
  return 8.0 *
         static_cast<double>(MaxEncodedBytes(DownlinkSpec(sync), kValues)) /
         kValues;
}

// Returns a time that an island claims, or 0 if it is impossible.
double PossibleSeconds(double seconds) {
  constexpr double kMost = 1e6;
  return seconds > 0 && seconds < kMost ? seconds : 0;
}

std::string Describe(const Member& member, double before,
                     double bits_per_second, double largest_seconds) {
  const UplinkBits& plan = *member.uplink_bits;
  return absl::StrFormat(
      "island %s sends %.3g bits per value from now on, not %.3g: its uplink "
      "reaches %.3g Mbit/s, and an upload has %.2f s%s",
      member.island_id, plan.bits(), before, bits_per_second / 1e6,
      largest_seconds,
      plan.is_too_slow()
          ? absl::StrFormat(
                ", enough for %.2g only; so islands wait for it, as "
                "synchronization.uplink_bits_floor allows no fewer",
                plan.in_time())
          : "");
}

}  // namespace

std::vector<UplinkSend> Coordinator::SendsOfRound(double step_seconds) {
  // An update is due first at the island whose overlap is the shortest.
  const uint64_t overlap_of_run = schedule().overlap_steps();
  uint64_t overlap_steps = schedule().round_steps();
  double round_trip = 0;
  double download_seconds_per_bit = 0;
  for (const Member* member : membership_.Live()) {
    const v1::IslandProgress& progress = member->progress;
    const uint64_t own = progress.overlap_steps();
    overlap_steps = std::min(overlap_steps, own > 0 ? own : overlap_of_run);
    round_trip =
        std::max(round_trip, PossibleSeconds(progress.round_trip_seconds()));
    const double rate = 8 * progress.downlink().bytes_per_second();
    if (rate > 0) {
      download_seconds_per_bit = std::max(download_seconds_per_bit, 1 / rate);
    }
  }
  const double overlap = std::max(static_cast<double>(overlap_steps),
                                  static_cast<double>(overlap_of_run) / 2) *
                         step_seconds;
  const double download_bits = DownlinkBits(options_.config.synchronization());
  std::vector<UplinkSend> sends;
  for (const v1::Fragment& fragment : options_.plan.fragments()) {
    const double values = static_cast<double>(fragment.size());
    // Uploads must leave time for the slowest download, and for the way there
    // and back. But one island's claim takes at most half of the others' time,
    // as above.
    const double download =
        std::min(overlap / 2, round_trip + values * download_bits *
                                               download_seconds_per_bit);
    sends.push_back(
        {.values = values,
         .at_seconds =
             static_cast<double>(fragment.send_offset_steps()) * step_seconds,
         .available_seconds = UploadSeconds(
             overlap, absl::ToDoubleSeconds(outer_step_) + download)});
  }
  return sends;
}

void Coordinator::PlanUplinkBits(Effects& effects) {
  if (options_.config.synchronization().uplink_bits_floor() == 0) return;
  // All islands train at the pace of the island whose round takes longest.
  const double round_steps = static_cast<double>(schedule().round_steps());
  double step_seconds = 0;
  for (const Member* member : membership_.Live()) {
    if (IsSilent(member->island_id)) continue;
    const uint64_t trained = InnerStepsPerRound(*member);
    const double share =
        trained == 0 ? 1 : static_cast<double>(trained) / round_steps;
    step_seconds = std::max(
        step_seconds, share * PossibleSeconds(member->progress.step_seconds()));
  }
  if (step_seconds == 0) return;
  const std::vector<UplinkSend> sends = SendsOfRound(step_seconds);
  const UplinkSend& largest = *std::max_element(
      sends.begin(), sends.end(), [](const UplinkSend& a, const UplinkSend& b) {
        return a.values < b.values;
      });
  for (Member* member : membership_.Live()) {
    const v1::IslandProgress& progress = member->progress;
    if (!member->uplink_bits.has_value() || progress.own_uplink_bits()) {
      continue;
    }
    const std::optional<double> rate = member->uplink_bits->RateAt(
        progress.bytes_up(), progress.uplink().busy_seconds());
    if (!rate.has_value()) continue;
    const std::optional<double> before = member->uplink_bits->Heard(
        BitsInTime(sends, round_steps * step_seconds, *rate));
    if (!before.has_value()) continue;
    effects.view_changed = true;
    effects.events.push_back(
        {member->uplink_bits->is_too_slow() ? "uplink_too_slow" : "uplink_bits",
         member->island_id,
         Describe(*member, *before, *rate, largest.available_seconds)});
  }
}

}  // namespace causeway
