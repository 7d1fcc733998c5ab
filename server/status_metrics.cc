// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/status_metrics.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/metrics/island_metrics.h"
#include "common/proto_time.h"
#include "server/rules/membership.h"
#include "server/rules/run_health.h"

namespace causeway {
namespace {

using v1::FollowerStatus;
using v1::FragmentStatus;
using v1::IslandStatus;
using v1::RunStatus;
using v1::TokenLedger;

constexpr auto kCounter = prometheus::MetricType::Counter;

// The time for which an island that is not missed is shown.
constexpr absl::Duration kShownAfterwards = absl::Hours(1);

double UnixSeconds(const google::protobuf::Timestamp& time) {
  return absl::ToDoubleSeconds(ToTime(time) - absl::UnixEpoch());
}

double Problems(const RunStatus& run, v1::Severity severity) {
  return static_cast<double>(std::count_if(
      run.attention().begin(), run.attention().end(),
      [=](const auto& problem) { return problem.severity() == severity; }));
}

constexpr Metric<RunStatus> kRun[] = {
    {.name = "parameters",
     .help = "Parameters of the model.",
     .value = [](const RunStatus& r) { return Number(r.parameters()); }},
    {.name = "run_step",
     .help = "The run's position in inner steps.",
     .value = [](const RunStatus& r) { return Number(r.run_step()); }},
    {.name = "run_steps_planned",
     .help = "Inner steps of the whole run.",
     .value = [](const RunStatus& r) { return Number(r.total_steps()); }},
    {.name = "rounds_merged_total",
     .help = "Rounds merged, over all fragments.",
     .type = kCounter,
     .value = [](const RunStatus& r) { return Number(r.rounds()); }},
    {.name = "rounds_planned",
     .help = "Rounds of the whole run, over all fragments.",
     .value = [](const RunStatus& r) { return Number(r.total_rounds()); }},
    {.name = "islands_live",
     .help = "Islands whose lease is kept.",
     .value = [](const RunStatus& r) { return Number(r.live_islands()); }},
    {.name = "islands_needed",
     .help = "Ready islands without which no round closes.",
     .value = [](const RunStatus& r) { return Number(r.islands_needed()); }},
    {.name = "last_round_timestamp_seconds",
     .help = "The time at which a round was merged last, as Unix time.",
     .value =
         [](const RunStatus& r) {
           return r.has_last_round_at() ? UnixSeconds(r.last_round_at())
                                        : Known(0);
         }},
    {.name = "seconds_left",
     .help = "Estimate of the time to the end of the run.",
     .value =
         [](const RunStatus& r) {
           return r.has_seconds_left() ? r.seconds_left() : Known(0);
         }},
    {.name = "epoch",
     .help = "Rises each time a follower takes the run over.",
     .value = [](const RunStatus& r) { return Number(r.epoch()); }},
    {.name = "followers_in_sync",
     .help = "Followers that have all but what is under way.",
     .value = [](const RunStatus& r) { return Number(FollowersInSync(r)); }},
    {.name = "followers_wanted",
     .help = "storage.sync_replicas.",
     .value =
         [](const RunStatus& r) {
           return Number(r.config().storage().sync_replicas());
         }},
    {.name = "attention",
     .help = "Problems that `causeway status` shows, by severity: critical "
             "ones hold the run.",
     .value = [](const RunStatus& r) { return Problems(r, v1::CRITICAL); },
     .label = "severity",
     .label_value = "critical"},
    {.name = "attention",
     .value = [](const RunStatus& r) { return Problems(r, v1::WARNING); },
     .label = "severity",
     .label_value = "warning"},
    {.name = "lease_seconds",
     .help = "Time without a heartbeat after which an island is evicted.",
     .value =
         [](const RunStatus& r) {
           return r.config().membership().lease_seconds();
         }},
    {.name = "tokens_per_second",
     .help = "Speed of all live islands.",
     .value = [](const RunStatus& r) { return r.tokens_per_second(); }},
    {.name = "tokens_merged_total",
     .help = "Tokens whose training is part of the committed parameters.",
     .type = kCounter,
     .value = [](const RunStatus& r) { return Number(r.tokens_merged()); }},
    {.name = "training_loss",
     .help = "Mean of the live islands' losses, in nats per token.",
     .value = [](const RunStatus& r) { return Known(r.loss()); }},
    {.name = "validation_loss",
     .help = "The merged model's loss on held-out data, in nats per token.",
     .value =
         [](const RunStatus& r) {
           return Known(r.validation().validation().loss());
         }},
    {.name = "validation_version",
     .help = "Version of the model that was measured.",
     .value =
         [](const RunStatus& r) {
           return Known(Number(r.validation().validation().version()));
         }},
    {.name = "transfer_bytes_total",
     .help = "Encoded bytes that the coordinator has received from islands "
             "(up) and sent to them (down) since its start.",
     .type = kCounter,
     .value = [](const RunStatus& r) { return Number(r.bytes_received()); },
     .label = "direction",
     .label_value = "up"},
    {.name = "transfer_bytes_total",
     .type = kCounter,
     .value = [](const RunStatus& r) { return Number(r.bytes_sent()); },
     .label = "direction",
     .label_value = "down"},
    {.name = "data_parallel_bytes_total",
     .help = "Bytes that data parallel training would have moved instead.",
     .type = kCounter,
     .value =
         [](const RunStatus& r) { return Number(r.bytes_data_parallel()); }},
    {.name = "quarantined_contributions",
     .help = "Contributions that wait in quarantine for a decision.",
     .value = [](const RunStatus& r) { return Number(r.quarantined()); }},
    {.name = "staging_bytes",
     .help = "Contributions that wait in memory for their merge.",
     .value =
         [](const RunStatus& r) {
           return Number(r.storage().staging_bytes());
         }},
    {.name = "staging_limit_bytes",
     .help = "The most that may wait; further uploads come back later.",
     .value =
         [](const RunStatus& r) {
           return Number(r.storage().staging_limit_bytes());
         }},
    {.name = "disk_free_bytes",
     .help = "Space left on the disk of the state directory.",
     .value =
         [](const RunStatus& r) {
           return r.storage().disk_total_bytes() == 0
                      ? Known(0)
                      : Number(r.storage().disk_free_bytes());
         }},
    {.name = "disk_total_bytes",
     .help = "Size of the disk of the state directory.",
     .value =
         [](const RunStatus& r) {
           return Known(Number(r.storage().disk_total_bytes()));
         }},
    {.name = "certificate_expiry_timestamp_seconds",
     .help = "End of the coordinator's certificate, as Unix time.",
     .value =
         [](const RunStatus& r) {
           return r.has_certificate_expires_at()
                      ? UnixSeconds(r.certificate_expires_at())
                      : Known(0);
         }},
    {.name = "insecure",
     .help = "1 if the coordinator was started in an unsafe way.",
     .value = [](const RunStatus& r) { return r.warning().empty() ? 0. : 1.; }},
    {.name = "connections",
     .help = "Open connections to the coordinator.",
     .value =
         [](const RunStatus& r) { return Number(r.connections().open()); }},
    {.name = "connections_limit",
     .help = "The most connections that may be open.",
     .value =
         [](const RunStatus& r) { return Number(r.connections().limit()); }},
    {.name = "calls",
     .help = "Calls that are being served.",
     .value =
         [](const RunStatus& r) { return Number(r.connections().calls()); }},
    {.name = "connections_ended_total",
     .help = "Connections refused, displaced by others, cut off, or ended "
             "without a call.",
     .type = kCounter,
     .value =
         [](const RunStatus& r) { return Number(r.connections().refused()); },
     .label = "reason",
     .label_value = "refused"},
    {.name = "connections_ended_total",
     .type = kCounter,
     .value =
         [](const RunStatus& r) { return Number(r.connections().displaced()); },
     .label = "reason",
     .label_value = "displaced"},
    {.name = "connections_ended_total",
     .type = kCounter,
     .value = [](const RunStatus& r) { return Number(r.connections().cut()); },
     .label = "reason",
     .label_value = "cut"},
    {.name = "connections_ended_total",
     .type = kCounter,
     .value =
         [](const RunStatus& r) { return Number(r.connections().unused()); },
     .label = "reason",
     .label_value = "unused"},
};

// Sums over all rounds, of a run.
constexpr Metric<v1::Participation> kParticipation[] = {
    {.name = "round_islands_total",
     .help = "Islands that were live when a round closed, had begun to "
             "contribute by then, and were merged; summed over rounds.",
     .type = kCounter,
     .value = [](const v1::Participation& p) { return Number(p.live()); },
     .label = "part",
     .label_value = "live"},
    {.name = "round_islands_total",
     .type = kCounter,
     .value =
         [](const v1::Participation& p) { return Number(p.contributing()); },
     .label = "part",
     .label_value = "contributing"},
    {.name = "round_islands_total",
     .type = kCounter,
     .value = [](const v1::Participation& p) { return Number(p.merged()); },
     .label = "part",
     .label_value = "merged"},
};

// Gauges, because tokens move from one fate to another.
constexpr Metric<TokenLedger> kLedger[] = {
    {.name = "ledger_tokens",
     .help = "Reported tokens by what became of them; each token counts once "
             "for each fragment.",
     .value = [](const TokenLedger& l) { return Number(l.merged()); },
     .label = "fate",
     .label_value = "merged"},
    {.name = "ledger_tokens",
     .value = [](const TokenLedger& l) { return Number(l.partial_merged()); },
     .label = "fate",
     .label_value = "partial_merged"},
    {.name = "ledger_tokens",
     .value = [](const TokenLedger& l) { return Number(l.expired()); },
     .label = "fate",
     .label_value = "expired"},
    {.name = "ledger_tokens",
     .value = [](const TokenLedger& l) { return Number(l.refused()); },
     .label = "fate",
     .label_value = "refused"},
    {.name = "ledger_tokens",
     .value = [](const TokenLedger& l) { return Number(l.quarantined()); },
     .label = "fate",
     .label_value = "quarantined"},
    {.name = "ledger_tokens",
     .value = [](const TokenLedger& l) { return Number(l.pending()); },
     .label = "fate",
     .label_value = "pending"},
};

constexpr Metric<IslandStatus> kIsland[] = {
    {.name = "missed",
     .help = "1 if the island has gone without a word or diverged, until it is "
             "back or an operator evicts it.",
     .value =
         [](const IslandStatus& i) {
           return IsMissed(i.state(), i.reason()) ? 1. : 0.;
         }},
    {.name = "incarnation",
     .help = "Rises each time the island comes back.",
     .value = [](const IslandStatus& i) { return Number(i.incarnation()); }},
    {.name = "joined_timestamp_seconds",
     .help = "The time at which the incarnation joined, as Unix time.",
     .value = [](const IslandStatus& i) { return UnixSeconds(i.joined_at()); }},
    {.name = "heartbeat_age_seconds",
     .help = "Time since the island's last heartbeat.",
     .value =
         [](const IslandStatus& i) {
           return Known(i.heartbeat_age_seconds());
         }},
    {.name = "draining",
     .help = "1 if an operator has asked the island to leave.",
     .value = [](const IslandStatus& i) { return i.draining() ? 1. : 0.; }},
    {.name = "data_differs",
     .help = "1 if the island reads other data than the run's.",
     .value = [](const IslandStatus& i) { return i.data_differs() ? 1. : 0.; }},
    {.name = "contributions_merged_total",
     .help = "Contributions of the incarnation that were merged.",
     .type = kCounter,
     .value =
         [](const IslandStatus& i) {
           return Number(i.contributions_merged());
         }},
    {.name = "tokens_merged_total",
     .help = "Tokens of those contributions.",
     .type = kCounter,
     .value = [](const IslandStatus& i) { return Number(i.tokens_merged()); }},
    {.name = "inner_steps_per_round",
     .help = "Inner steps between two contributions to a fragment.",
     .value =
         [](const IslandStatus& i) {
           return Number(i.inner_steps_per_round());
         }},
};

constexpr Metric<FollowerStatus> kFollower[] = {
    {.name = "changes_behind",
     .help = "Changes of the log that the follower has not made durable.",
     .value =
         [](const FollowerStatus& f) { return Number(f.changes_behind()); }},
    {.name = "seconds_behind",
     .help = "The time for which it has lacked the oldest of these.",
     .value = [](const FollowerStatus& f) { return f.seconds_behind(); }},
    {.name = "sent_bytes_total",
     .help = "Bytes sent to the follower since it connected.",
     .type = kCounter,
     .value = [](const FollowerStatus& f) { return Number(f.bytes_sent()); }},
};

constexpr Metric<FragmentStatus> kFragment[] = {
    {.name = "version",
     .help = "The committed version.",
     .value =
         [](const FragmentStatus& f) { return Number(f.head().version()); }},
    {.name = "final_version",
     .help = "The version with which the run is finished.",
     .value =
         [](const FragmentStatus& f) { return Number(f.final_version()); }},
    {.name = "committed_timestamp_seconds",
     .help = "The time at which the version was committed, as Unix time.",
     .value =
         [](const FragmentStatus& f) { return UnixSeconds(f.committed_at()); }},
    {.name = "values",
     .help = "Values in the fragment.",
     .value = [](const FragmentStatus& f) { return Number(f.size()); }},
    {.name = "contributed_islands",
     .help = "Islands that have contributed to the open round.",
     .value =
         [](const FragmentStatus& f) { return Number(f.contributed_size()); }},
    {.name = "awaited_islands",
     .help = "Islands that the open round waits for.",
     .value = [](const FragmentStatus& f) { return Number(f.awaited_size()); }},
    {.name = "merged_norm",
     .help = "Euclidean norm of the last merged pseudo-gradient.",
     .value = [](const FragmentStatus& f) { return Known(f.merged_norm()); }},
    {.name = "similarity",
     .help = "Mean cosine of the contributions to the last round, in pairs.",
     .value =
         [](const FragmentStatus& f) {
           return f.has_similarity() ? f.similarity() : Known(0);
         }},
};

absl::Time LastSign(const IslandStatus& island, absl::Time now) {
  return island.heartbeat_age_seconds() > 0
             ? now - absl::Seconds(island.heartbeat_age_seconds())
             : ToTime(island.joined_at());
}

// Returns the islands to show, ordered by name.
std::vector<const IslandStatus*> Shown(const v1::ListIslandsResponse& islands,
                                       absl::Time now) {
  std::vector<const IslandStatus*> shown;
  for (const IslandStatus& island : islands.islands()) {
    if (island.state() == IslandStatus::LIVE ||
        IsMissed(island.state(), island.reason()) ||
        now - LastSign(island, now) <= kShownAfterwards) {
      shown.push_back(&island);
    }
  }
  std::sort(shown.begin(), shown.end(),
            [now](const IslandStatus* a, const IslandStatus* b) {
              const auto key = [now](const IslandStatus& island) {
                return std::make_pair(island.state() == IslandStatus::LIVE,
                                      LastSign(island, now));
              };
              return key(*a) > key(*b);
            });
  if (shown.size() > kMostIslands) shown.resize(kMostIslands);
  std::sort(shown.begin(), shown.end(),
            [](const IslandStatus* a, const IslandStatus* b) {
              return a->island_id() < b->island_id();
            });
  return shown;
}

void AddIsland(const IslandStatus& island, const std::string& run,
               MetricFamilies& families) {
  constexpr char kPrefix[] = "causeway_island_";
  const MetricLabels labels = {{"run", run}, {"island", island.island_id()}};
  families.AddState(
      {.name = absl::StrCat(kPrefix, "state"),
       .help = "1 for the island's state: evicted means that it is gone "
               "without a word."},
      *IslandStatus::State_descriptor(), island.state(), labels);
  families.Add<IslandStatus>(kPrefix, kIsland, island, labels);
  families.Add<TokenLedger>(kPrefix, kLedger, island.ledger(), labels);
  AddIslandProgress(kPrefix, island.progress(), labels, families);
}

}  // namespace

void AddStatus(const RunStatus& run, const v1::ListIslandsResponse& islands,
               const v1::ListFragmentsResponse& fragments, absl::Time now,
               MetricFamilies& families) {
  const std::string& name = run.config().name();
  const MetricLabels labels = {{"run", name}};
  families.AddState(
      {.name = "causeway_run_state", .help = "1 for the run's state."},
      *v1::RunState_descriptor(), run.state(), labels);
  families.Add<RunStatus>("causeway_", kRun, run, labels);
  families.Add<v1::Participation>("causeway_", kParticipation,
                                  run.participation(), labels);
  families.Add<TokenLedger>("causeway_", kLedger, run.ledger(), labels);
  families.AddHistogram({.name = "causeway_outer_step_seconds",
                         .help = "Outer steps, from merge to commit."},
                        run.outer_steps(), labels);
  families.AddHistogram(
      {.name = "causeway_commit_seconds",
       .help = "The part of each outer step that made its record durable."},
      run.commits(), labels);
  families.AddSample(
      {.name = "causeway_islands_ready",
       .help = "Live islands that have reported that they can train."},
      Number(std::count_if(islands.islands().begin(), islands.islands().end(),
                           [](const IslandStatus& island) {
                             return island.state() == IslandStatus::LIVE &&
                                    island.progress().ready();
                           })),
      labels);
  const std::vector<const IslandStatus*> shown = Shown(islands, now);
  families.AddSample({.name = "causeway_islands_not_shown",
                      .help = "Departed islands without metrics of their own."},
                     Number(islands.islands_size() - shown.size()), labels);
  for (const IslandStatus* island : shown) AddIsland(*island, name, families);
  for (const FollowerStatus& follower : run.followers()) {
    constexpr char kPrefix[] = "causeway_follower_";
    const MetricLabels own = {{"run", name}, {"follower", follower.name()}};
    families.AddState({.name = absl::StrCat(kPrefix, "state"),
                       .help = "1 for the follower's state."},
                      *FollowerStatus::State_descriptor(), follower.state(),
                      own);
    families.Add<FollowerStatus>(kPrefix, kFollower, follower, own);
  }
  for (const FragmentStatus& fragment : fragments.fragments()) {
    MetricLabels own = labels;
    own.push_back({"fragment", absl::StrCat(fragment.head().fragment())});
    families.Add<FragmentStatus>("causeway_fragment_", kFragment, fragment,
                                 own);
    families.Add<TokenLedger>("causeway_fragment_", kLedger, fragment.ledger(),
                              own);
  }
}

void AddLeads(const std::string& run, bool leads, MetricFamilies& families) {
  families.AddSample(
      {.name = "causeway_leads",
       .help = "1 at the coordinator that leads the run, 0 at others."},
      leads ? 1 : 0, {{"run", run}});
}

}  // namespace causeway
