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

// The time for which an island that is not missed is shown.
constexpr absl::Duration kShownAfterwards = absl::Hours(1);

// Returns a field as Unix time; a field without a time is left out.
template <auto getter, typename Message>
double UnixTime(const Message& message) {
  return Known(
      absl::ToDoubleSeconds(ToTime((message.*getter)()) - absl::UnixEpoch()));
}

double Problems(const RunStatus& run, v1::Severity severity) {
  return static_cast<double>(std::count_if(
      run.attention().begin(), run.attention().end(),
      [=](const auto& problem) { return problem.severity() == severity; }));
}

constexpr Metric<RunStatus> kRun[] = {
    {"parameters", "Parameters of the model.", Field<&RunStatus::parameters>},
    {"run_step", "The run's position in inner steps.",
     Field<&RunStatus::run_step>},
    {"run_steps_planned", "Inner steps of the whole run.",
     Field<&RunStatus::total_steps>},
    {"rounds_merged_total", "Rounds merged, over all fragments.",
     Field<&RunStatus::rounds>},
    {"rounds_planned", "Rounds of the whole run, over all fragments.",
     Field<&RunStatus::total_rounds>},
    {"islands_live", "Islands whose lease has not run out.",
     Field<&RunStatus::live_islands>},
    {"islands_needed", "Ready islands without which no round closes.",
     Field<&RunStatus::islands_needed>},
    {"last_round_timestamp_seconds",
     "The time at which a round was merged last, as Unix time.",
     UnixTime<&RunStatus::last_round_at>},
    {"seconds_left", "Estimate of the time to the end of the run.",
     [](const RunStatus& r) {
       return r.has_seconds_left() ? r.seconds_left() : Known(0);
     }},
    {"epoch", "Rises each time a follower takes the run over.",
     Field<&RunStatus::epoch>},
    {"followers_in_sync", "Followers that have all but what is under way.",
     [](const RunStatus& r) { return Number(FollowersInSync(r)); }},
    {"followers_wanted", "storage.sync_replicas.",
     [](const RunStatus& r) {
       return Number(r.config().storage().sync_replicas());
     }},
    {"attention", "Problems that `causeway status` shows, by severity.",
     [](const RunStatus& r) { return Problems(r, v1::CRITICAL); }, "severity",
     "critical"},
    {"attention", "",
     [](const RunStatus& r) { return Problems(r, v1::WARNING); }, "severity",
     "warning"},
    {"lease_seconds",
     "Time without a heartbeat after which an island is evicted.",
     [](const RunStatus& r) {
       return r.config().membership().lease_seconds();
     }},
    {"tokens_per_second", "Speed of all live islands.",
     Field<&RunStatus::tokens_per_second>},
    {"tokens_merged_total",
     "Tokens whose training is part of the committed parameters.",
     Field<&RunStatus::tokens_merged>},
    {"training_loss", "Mean of the live islands' losses, in nats per token.",
     KnownField<&RunStatus::loss>},
    {"transfer_bytes_total",
     "Encoded bytes that the coordinator has received from islands (up) and "
     "sent to them (down) since its start.",
     Field<&RunStatus::bytes_received>, "direction", "up"},
    {"transfer_bytes_total", "", Field<&RunStatus::bytes_sent>, "direction",
     "down"},
    {"data_parallel_bytes_total",
     "Bytes that data parallel training would have moved instead.",
     Field<&RunStatus::bytes_data_parallel>},
    {"quarantined_contributions",
     "Contributions that wait in quarantine for a decision.",
     Field<&RunStatus::quarantined>},
    {"certificate_expiry_timestamp_seconds",
     "End of the coordinator's certificate, as Unix time.",
     UnixTime<&RunStatus::certificate_expires_at>},
    {"certificate_notice_timestamp_seconds",
     "Unix time by which the coordinator's certificate should be renewed.",
     UnixTime<&RunStatus::certificate_notice_at>},
    {"insecure",
     "1 if the coordinator listens beyond its machine, and anyone who can "
     "reach it can change the run.",
     [](const RunStatus& r) { return r.warning().empty() ? 0. : 1.; }},
};

constexpr Metric<v1::Validation> kValidation[] = {
    {"validation_loss",
     "The merged model's loss on held-out data, in nats per token.",
     KnownField<&v1::Validation::loss>},
    {"validation_version", "Version of the model that was measured.",
     KnownField<&v1::Validation::version>},
};

constexpr Metric<v1::StorageUse> kStorage[] = {
    {"staging_bytes", "Contributions that wait in memory for their merge.",
     Field<&v1::StorageUse::staging_bytes>},
    {"staging_limit_bytes",
     "The most that may wait; further uploads are told to retry.",
     Field<&v1::StorageUse::staging_limit_bytes>},
    {"disk_free_bytes", "Space left on the disk of the state directory.",
     [](const v1::StorageUse& s) {
       return s.disk_total_bytes() == 0 ? Known(0)
                                        : Number(s.disk_free_bytes());
     }},
    {"disk_total_bytes", "Size of the disk of the state directory.",
     KnownField<&v1::StorageUse::disk_total_bytes>},
};

constexpr Metric<v1::ConnectionUse> kConnections[] = {
    {"connections", "Open connections to the coordinator.",
     Field<&v1::ConnectionUse::open>},
    {"connections_limit", "The most connections that may be open.",
     Field<&v1::ConnectionUse::limit>},
    {"calls", "Calls that are being served.", Field<&v1::ConnectionUse::calls>},
    {"connections_ended_total",
     "Connections refused, displaced by others, cut off, or ended without a "
     "call.",
     Field<&v1::ConnectionUse::refused>, "reason", "refused"},
    {"connections_ended_total", "", Field<&v1::ConnectionUse::displaced>,
     "reason", "displaced"},
    {"connections_ended_total", "", Field<&v1::ConnectionUse::cut>, "reason",
     "cut"},
    {"connections_ended_total", "", Field<&v1::ConnectionUse::unused>, "reason",
     "unused"},
};

constexpr Metric<v1::Participation> kParticipation[] = {
    {"round_islands_total",
     "Islands that were live when a round closed, had begun to contribute by "
     "then, and were merged; summed over rounds.",
     Field<&v1::Participation::live>, "part", "live"},
    {"round_islands_total", "", Field<&v1::Participation::contributing>, "part",
     "contributing"},
    {"round_islands_total", "", Field<&v1::Participation::merged>, "part",
     "merged"},
};

// Gauges, because tokens move from one fate to another.
constexpr Metric<TokenLedger> kLedger[] = {
    {"ledger_tokens",
     "Reported tokens by fate; each token counts once for each fragment.",
     Field<&TokenLedger::merged>, "fate", "merged"},
    {"ledger_tokens", "", Field<&TokenLedger::partial_merged>, "fate",
     "partial_merged"},
    {"ledger_tokens", "", Field<&TokenLedger::expired>, "fate", "expired"},
    {"ledger_tokens", "", Field<&TokenLedger::refused>, "fate", "refused"},
    {"ledger_tokens", "", Field<&TokenLedger::quarantined>, "fate",
     "quarantined"},
    {"ledger_tokens", "", Field<&TokenLedger::pending>, "fate", "pending"},
};

constexpr Metric<IslandStatus> kIsland[] = {
    {"missed",
     "1 if the island was lost, failed or diverged, until it rejoins or an "
     "operator evicts it.",
     [](const IslandStatus& i) {
       return IsMissed(i.state(), i.reason()) ? 1. : 0.;
     }},
    {"incarnation", "Rises each time the island rejoins.",
     Field<&IslandStatus::incarnation>},
    {"joined_timestamp_seconds",
     "The time at which the incarnation joined, as Unix time.",
     UnixTime<&IslandStatus::joined_at>},
    {"heartbeat_age_seconds", "Time since the island's last heartbeat.",
     KnownField<&IslandStatus::heartbeat_age_seconds>},
    {"draining", "1 if an operator has asked the island to leave.",
     Field<&IslandStatus::draining>},
    {"data_differs", "1 if the island reads other data than the run's.",
     Field<&IslandStatus::data_differs>},
    {"contributions_merged_total",
     "Contributions of the incarnation that were merged.",
     Field<&IslandStatus::contributions_merged>},
    {"tokens_merged_total", "Tokens of those contributions.",
     Field<&IslandStatus::tokens_merged>},
    {"uplink_bits_in_time",
     "Bits per value with which contributions would just arrive in time.",
     KnownField<&IslandStatus::uplink_bits_in_time>},
    {"inner_steps_per_round",
     "Inner steps between two contributions to a fragment.",
     Field<&IslandStatus::inner_steps_per_round>},
};

constexpr Metric<FollowerStatus> kFollower[] = {
    {"changes_behind",
     "Changes of the log that the follower has not made durable.",
     Field<&FollowerStatus::changes_behind>},
    {"seconds_behind", "The time for which it has lacked the oldest of these.",
     Field<&FollowerStatus::seconds_behind>},
    {"sent_bytes_total", "Bytes sent to the follower since it connected.",
     Field<&FollowerStatus::bytes_sent>},
};

constexpr Metric<FragmentStatus> kFragment[] = {
    {"version", "The committed version.",
     [](const FragmentStatus& f) { return Number(f.head().version()); }},
    {"final_version", "The version with which the run is finished.",
     Field<&FragmentStatus::final_version>},
    {"committed_timestamp_seconds",
     "The time at which the version was committed, as Unix time.",
     UnixTime<&FragmentStatus::committed_at>},
    {"values", "Values in the fragment.", Field<&FragmentStatus::size>},
    {"contributed_islands", "Islands that have contributed to the open round.",
     Field<&FragmentStatus::contributed_size>},
    {"awaited_islands", "Islands that the open round waits for.",
     Field<&FragmentStatus::awaited_size>},
    {"merged_norm", "Euclidean norm of the last merged pseudo-gradient.",
     KnownField<&FragmentStatus::merged_norm>},
    {"similarity",
     "Mean cosine of the contributions to the last round, in pairs.",
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
  families.AddState({.name = absl::StrCat(kPrefix, "state"),
                     .help = "1 for the island's state; evicted also covers "
                             "islands whose lease ran out."},
                    *IslandStatus::State_descriptor(), island.state(), labels);
  families.Add<IslandStatus>(kPrefix, kIsland, island, labels);
  families.Add<TokenLedger>(kPrefix, kLedger, island.ledger(), labels);
  // Zeros would look like restarts of its counters.
  if (island.is_unheard()) return;
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
  families.Add<v1::Validation>("causeway_", kValidation,
                               run.validation().validation(), labels);
  families.Add<v1::StorageUse>("causeway_", kStorage, run.storage(), labels);
  families.Add<v1::ConnectionUse>("causeway_", kConnections, run.connections(),
                                  labels);
  families.Add<v1::Participation>("causeway_", kParticipation,
                                  run.participation(), labels);
  families.Add<TokenLedger>("causeway_", kLedger, run.ledger(), labels);
  families.AddHistogram({.name = "causeway_outer_step_seconds",
                         .help = "Outer steps, from merge to commit."},
                        run.outer_steps(), labels);
  families.AddHistogram(
      {.name = "causeway_commit_seconds",
       .help = "The part of each outer step after its record was synced: "
               "until the commit is durable, also at followers."},
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
