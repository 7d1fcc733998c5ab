// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/metrics/island_metrics.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace causeway {
namespace {

using v1::IslandProgress;

constexpr Metric<IslandProgress> kProgress[] = {
    {"run_step", "Inner steps done, on the run's schedule.",
     Field<&IslandProgress::run_step>},
    {"tokens_total", "Tokens trained by the island's process.",
     Field<&IslandProgress::tokens>},
    {"tokens_per_second", "Speed over the last seconds of training.",
     Field<&IslandProgress::tokens_per_second>},
    {"training_loss",
     "Mean training loss since the last heartbeat, in nats per token.",
     KnownField<&IslandProgress::loss>},
    {"validation_loss",
     "The merged model's loss as the island measured it last, in nats per "
     "token.",
     [](const IslandProgress& p) { return Known(p.validation().loss()); }},
    {"step_seconds", "Mean duration of an inner step, without waits.",
     KnownField<&IslandProgress::step_seconds>},
    {"wait_seconds_total",
     "Time for which training waited for synchronization.",
     Field<&IslandProgress::wait_seconds>},
    {"transfer_bytes_total",
     "Encoded bytes that the island has sent (up) and received (down).",
     Field<&IslandProgress::bytes_up>, "direction", "up"},
    {"transfer_bytes_total", "", Field<&IslandProgress::bytes_down>,
     "direction", "down"},
    {"resident_memory_bytes",
     "Resident memory of the island's process, without mapped files.",
     Field<&IslandProgress::memory_bytes>},
    {"ranks", "Ranks that the island trains with.",
     Field<&IslandProgress::ranks_size>},
    {"rank_communication_seconds_total",
     "Time for which ranks communicated in parallel with computing.",
     Field<&IslandProgress::communication_seconds>},
    {"rank_communication_exposed_seconds_total",
     "The part of that time in which rank 0 had nothing to compute.",
     Field<&IslandProgress::exposed_communication_seconds>},
    {"round_trip_seconds",
     "Smoothed round-trip time of the control connection.",
     KnownField<&IslandProgress::round_trip_seconds>},
    {"overlap_steps",
     "Inner steps between a contribution and the use of its update.",
     Field<&IslandProgress::overlap_steps>},
    {"uplink_bits", "Bits per value that contributions aim at.",
     KnownField<&IslandProgress::uplink_bits>},
    {"late_updates_total",
     "Updates that had not arrived when overlap_steps called for them.",
     Field<&IslandProgress::late_updates>},
    {"overrun_steps_total", "Inner steps trained while an update was late.",
     Field<&IslandProgress::overrun_steps>},
};

// The metrics of the uplink or of the downlink.
constexpr Metric<v1::LinkUse> kLink[] = {
    {"link_bytes_per_second", "Rate of transfers while any was under way.",
     KnownField<&v1::LinkUse::bytes_per_second>},
    {"link_pace_bytes_per_second", "Rate that transfers are paced to.",
     KnownField<&v1::LinkUse::pace_bytes_per_second>},
    {"link_busy_seconds_total", "Time for which a transfer was under way.",
     Field<&v1::LinkUse::busy_seconds>},
    {"link_paced_seconds_total", "Time for which pacing held transfers back.",
     Field<&v1::LinkUse::paced_seconds>},
    {"link_sent_again_bytes_total",
     "Encoded bytes sent again because a connection broke.",
     Field<&v1::LinkUse::bytes_sent_again>},
    {"link_retransmitted_bytes",
     "Bytes that TCP retransmitted on the connections open now.",
     Field<&v1::LinkUse::tcp_bytes_retransmitted>},
};

constexpr Metric<v1::RankProgress> kRank[] = {
    {"rank_micro_batches_total", "Micro-batches that the rank has computed.",
     Field<&v1::RankProgress::micro_batches>},
    {"rank_tokens_total", "Tokens that the rank has trained.",
     Field<&v1::RankProgress::tokens>},
};

MetricLabels With(MetricLabels labels, absl::string_view name,
                  absl::string_view value) {
  labels.push_back({std::string(name), std::string(value)});
  return labels;
}

}  // namespace

void AddIslandProgress(absl::string_view prefix, const IslandProgress& progress,
                       const MetricLabels& labels, MetricFamilies& families) {
  families.Add<IslandProgress>(prefix, kProgress, progress, labels);
  families.Add<v1::LinkUse>(prefix, kLink, progress.uplink(),
                            With(labels, "direction", "up"));
  families.Add<v1::LinkUse>(prefix, kLink, progress.downlink(),
                            With(labels, "direction", "down"));
  const v1::RankTrouble::Kind trouble = progress.rank_trouble().kind();
  families.AddSample(
      {.name = absl::StrCat(prefix, "rank_trouble"),
       .help = "1 for the problem that slows the island's ranks down now."},
      Known(trouble == v1::RankTrouble::KIND_UNSPECIFIED ? 0 : 1), labels,
      "kind", absl::AsciiStrToLower(v1::RankTrouble::Kind_Name(trouble)));
  const v1::Wait& wait = progress.wait();
  const std::string reason =
      wait.reason() == v1::Wait::REASON_UNSPECIFIED
          ? ""
          : absl::AsciiStrToLower(v1::Wait::Reason_Name(wait.reason()));
  families.AddSample(
      {.name = absl::StrCat(prefix, "current_wait_seconds"),
       .help = "How long training has been waiting now, by reason."},
      reason.empty() ? Known(0) : wait.seconds(), labels, "reason", reason);
}

void AddRanks(absl::string_view prefix, const IslandProgress& progress,
              const MetricLabels& labels, MetricFamilies& families) {
  for (int rank = 0; rank < progress.ranks_size(); ++rank) {
    families.Add<v1::RankProgress>(prefix, kRank, progress.ranks(rank),
                                   With(labels, "rank", absl::StrCat(rank)));
  }
}

}  // namespace causeway
