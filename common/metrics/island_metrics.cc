// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/metrics/island_metrics.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace causeway {
namespace {

using v1::IslandProgress;

constexpr auto kCounter = prometheus::MetricType::Counter;

constexpr Metric<IslandProgress> kProgress[] = {
    {.name = "run_step",
     .help = "Inner steps done, on the run's schedule.",
     .value = [](const IslandProgress& p) { return Number(p.run_step()); }},
    {.name = "tokens_total",
     .help = "Tokens trained by the island's process.",
     .type = kCounter,
     .value = [](const IslandProgress& p) { return Number(p.tokens()); }},
    {.name = "tokens_per_second",
     .help = "Speed over the last seconds of training.",
     .value = [](const IslandProgress& p) { return p.tokens_per_second(); }},
    {.name = "training_loss",
     .help = "Mean training loss since the last heartbeat, in nats per token.",
     .value = [](const IslandProgress& p) { return Known(p.loss()); }},
    {.name = "validation_loss",
     .help = "The merged model's loss as the island measured it last, in nats "
             "per token.",
     .value =
         [](const IslandProgress& p) { return Known(p.validation().loss()); }},
    {.name = "step_seconds",
     .help = "Mean duration of an inner step, without waits.",
     .value = [](const IslandProgress& p) { return Known(p.step_seconds()); }},
    {.name = "wait_seconds_total",
     .help = "Time for which training waited for synchronization.",
     .type = kCounter,
     .value = [](const IslandProgress& p) { return p.wait_seconds(); }},
    {.name = "transfer_bytes_total",
     .help = "Encoded bytes that the island has sent (up) and received (down).",
     .type = kCounter,
     .value = [](const IslandProgress& p) { return Number(p.bytes_up()); },
     .label = "direction",
     .label_value = "up"},
    {.name = "transfer_bytes_total",
     .type = kCounter,
     .value = [](const IslandProgress& p) { return Number(p.bytes_down()); },
     .label = "direction",
     .label_value = "down"},
    {.name = "resident_memory_bytes",
     .help = "Resident memory of the island's process, without mapped files.",
     .value = [](const IslandProgress& p) { return Number(p.memory_bytes()); }},
    {.name = "ranks",
     .help = "Ranks that the island trains with.",
     .value = [](const IslandProgress& p) { return Number(p.ranks_size()); }},
    {.name = "rank_communication_seconds_total",
     .help = "Time for which ranks communicated in parallel with computing.",
     .type = kCounter,
     .value =
         [](const IslandProgress& p) { return p.communication_seconds(); }},
    {.name = "rank_communication_exposed_seconds_total",
     .help = "The part of that time in which rank 0 had nothing to compute.",
     .type = kCounter,
     .value =
         [](const IslandProgress& p) {
           return p.exposed_communication_seconds();
         }},
    {.name = "round_trip_seconds",
     .help = "Smoothed round-trip time of the control connection.",
     .value =
         [](const IslandProgress& p) { return Known(p.round_trip_seconds()); }},
    {.name = "overlap_steps",
     .help = "Inner steps between a contribution and the use of its update.",
     .value =
         [](const IslandProgress& p) { return Number(p.overlap_steps()); }},
    {.name = "late_updates_total",
     .help = "Updates that had not arrived when overlap_steps called for them.",
     .type = kCounter,
     .value = [](const IslandProgress& p) { return Number(p.late_updates()); }},
    {.name = "overrun_steps_total",
     .help = "Inner steps trained while an update was late.",
     .type = kCounter,
     .value =
         [](const IslandProgress& p) { return Number(p.overrun_steps()); }},
};

// The metrics of the uplink or of the downlink.
constexpr Metric<v1::LinkUse> kLink[] = {
    {.name = "link_bytes_per_second",
     .help = "Rate of transfers while any was under way.",
     .value = [](const v1::LinkUse& l) { return Known(l.bytes_per_second()); }},
    {.name = "link_pace_bytes_per_second",
     .help = "Rate that transfers are paced to.",
     .value =
         [](const v1::LinkUse& l) { return Known(l.pace_bytes_per_second()); }},
    {.name = "link_busy_seconds_total",
     .help = "Time for which a transfer was under way.",
     .type = kCounter,
     .value = [](const v1::LinkUse& l) { return l.busy_seconds(); }},
    {.name = "link_paced_seconds_total",
     .help = "Time for which pacing held transfers back.",
     .type = kCounter,
     .value = [](const v1::LinkUse& l) { return l.paced_seconds(); }},
    {.name = "link_sent_again_bytes_total",
     .help = "Encoded bytes sent again because a connection broke.",
     .type = kCounter,
     .value =
         [](const v1::LinkUse& l) { return Number(l.bytes_sent_again()); }},
    {.name = "link_retransmitted_bytes",
     .help = "Bytes that TCP retransmitted on the connections open now.",
     .value =
         [](const v1::LinkUse& l) {
           return Number(l.tcp_bytes_retransmitted());
         }},
};

constexpr Metric<v1::RankProgress> kRank[] = {
    {.name = "rank_micro_batches_total",
     .help = "Micro-batches that the rank has computed.",
     .type = kCounter,
     .value =
         [](const v1::RankProgress& r) { return Number(r.micro_batches()); }},
    {.name = "rank_tokens_total",
     .help = "Tokens that the rank has trained.",
     .type = kCounter,
     .value = [](const v1::RankProgress& r) { return Number(r.tokens()); }},
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
       .help = "Time for which training stands still now, by the reason."},
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
