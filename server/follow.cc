// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/follow.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/http/http_server.h"
#include "common/metrics/metric_families.h"
#include "common/metrics/metrics_server.h"
#include "common/os/daemon.h"
#include "common/os/service_manager.h"
#include "common/status_macros.h"
#include "common/transport/certificate_expiry.h"
#include "common/transport/credentials.h"
#include "common/transport/enrolment.h"
#include "common/transport/socket_address.h"
#include "glog/logging.h"
#include "server/edge/copy_source.h"
#include "server/edge/server.h"
#include "server/election/office.h"
#include "server/fragment_heads.h"
#include "server/lead.h"
#include "server/page/page_handlers.h"
#include "server/status_metrics.h"
#include "server/storage/state_directory.h"

namespace causeway {
namespace {

// The time that calls under way get to end.
constexpr absl::Duration kFarewell = absl::Seconds(2);
// The time that they get before this coordinator leads: the connection of a
// leader that hangs does not end by itself.
constexpr absl::Duration kTakeoverFarewell = absl::Milliseconds(500);

// The interval at which a follower looks whether it shall lead.
constexpr absl::Duration kStepInterval = absl::Milliseconds(100);

// Returns the coordinator from which this state directory took its run over, if
// it did. With `promote`, takes it over, also from coordinators that elect
// their leader or have an epoch up to `above_epoch`, unless `config` cannot
// continue the run; returns a record also if the run is this coordinator's
// already.
absl::StatusOr<std::optional<LeaderRecord>> FindTakenOver(
    const std::string& state_dir, bool promote, uint64_t above_epoch,
    std::optional<v1::RunConfig> config) {
  ASSIGN_OR_RETURN(const std::unique_ptr<StateDirectory> state,
                   StateDirectory::Open(state_dir, {}));
  ASSIGN_OR_RETURN(LeaderRecord leader, state->log().LoadLeader());
  if (leader.config.name().empty()) return std::nullopt;
  const bool has_followed = !leader.address.empty();
  const bool is_own = !leader.is_followed && !leader.is_elected;
  if (!promote) {
    if (!is_own || !has_followed) return std::nullopt;
    return leader;
  }
  ASSIGN_OR_RETURN(const RunRecord run, state->log().LoadRun());
  // A later start with the same flags finds the epoch raised.
  if (is_own && run.epoch > above_epoch) return leader;
  if (config.has_value()) {
    RETURN_IF_ERROR(CheckContinues(*state, run, *config));
  }
  ASSIGN_OR_RETURN(const uint64_t epoch,
                   state->log().TakeOver(std::nullopt, above_epoch));
  LOG(INFO) << "taking over run " << run.run_id << ", epoch " << epoch;
  return leader;
}

void AddMetrics(const Follower::View& view, uint64_t bytes_sent,
                MetricFamilies& families) {
  const MetricLabels labels = {{"run", view.config.name()}};
  AddLeads(view.config.name(), false, families);
  families.AddSample({.name = "causeway_copy_complete",
                      .help = "1 if this copy can take over the run."},
                     view.is_complete ? 1 : 0, labels);
  families.AddSample({.name = "causeway_copy_connected",
                      .help = "1 while the leader sends changes."},
                     view.is_connected ? 1 : 0, labels);
  families.AddSample(
      {.name = "causeway_copy_changes_behind",
       .help = "Changes of the leader's that the copy is known to lack."},
      Number(view.leader_changes - std::min(view.leader_changes, view.changes)),
      labels);
  families.AddSample(
      {.name = "causeway_copy_sent_bytes_total",
       .help = "Bytes of updates and parameters that were sent to islands."},
      Number(bytes_sent), labels);
}

// Returns null if no metrics were asked for.
absl::StatusOr<std::unique_ptr<HttpServer>> ServeMetrics(
    const ServeOptions& options, Follower& follower) {
  return StartMetricsServer(
      options.metrics_listen, options.now,
      [&follower] {
        return follower.view().is_complete
                   ? absl::OkStatus()
                   : absl::UnavailableError("there is no complete copy yet");
      },
      [&follower, add = options.add_metrics](MetricFamilies& families) {
        const Follower::View view = follower.view();
        if (!view.run_id.empty()) {
          AddMetrics(view, follower.published().bytes_sent(), families);
        }
        if (add != nullptr) add(families);
      });
}

absl::StatusOr<std::unique_ptr<Follower>> OpenFollower(
    const ServeOptions& options, bool is_candidate) {
  RETURN_IF_ERROR(CheckAddresses(options));
  ASSIGN_OR_RETURN(
      auto credentials,
      MakeChannelCredentials(options.peer_files, options.wall_clock()));
  return Follower::Open(
      {.credentials = std::move(credentials),
       .state_dir = options.state_dir,
       .name = options.name,
       .region = options.region,
       .address = options.region.empty() ? "" : options.advertised,
       .is_candidate = is_candidate,
       .seed = options.random(),
       .merge_threads = options.merge_threads,
       .evictable_state = options.evictable_state});
}

// Serves a follower, once it knows its run, until `is_over`, called every
// kStepInterval, returns true. Returns false if a signal came. Sets
// options.address to the port that it listens on. `awaited` says what a
// follower without a leader waits for. `election` may be null.
absl::StatusOr<bool> ServeFollower(
    ServeOptions& options, Follower& follower,
    const std::function<absl::StatusOr<bool>()>& is_over,
    const std::function<std::string()>& awaited, const Election* election) {
  ASSIGN_OR_RETURN(auto credentials,
                   MakeServerCredentials(options.files, options.wall_clock()));
  CertificateExpiry certificate(options.files.tls_cert, options.wall_clock);
  CertificateWatch watch(&certificate);
  ASSIGN_OR_RETURN(const std::unique_ptr<HttpServer> metrics,
                   ServeMetrics(options, follower));
  CopySource source(&follower, options.now);
  std::unique_ptr<CoordinatorServer> server;
  ASSIGN_OR_RETURN(const std::unique_ptr<HttpServer> page,
                   ServePage(options, PageOf(&source)));
  ServiceManager& manager = *options.manager;
  std::optional<ServiceManager::Phase> serving(std::in_place, &manager,
                                               /*is_busy=*/false);
  bool is_signalled = false;
  while (true) {
    is_signalled = AwaitTerminationSignal(kStepInterval) != 0;
    if (is_signalled) break;
    ASSIGN_OR_RETURN(const bool over, is_over());
    if (over) break;
    source.Observe(awaited, election == nullptr ? "" : election->Problem());
    const Follower::View view = follower.view();
    RETURN_IF_ERROR(view.ended);
    if (server == nullptr && !view.run_id.empty()) {
      ASSIGN_OR_RETURN(
          server,
          CoordinatorServer::StartFollower(
              &follower, &source,
              {.address = options.address,
               .now = options.now,
               .wall_clock = options.wall_clock,
               .credentials = credentials,
               .client_certificates = options.ClientsShowCertificates(),
               .check_certificate =
                   [&follower](const ClientCertificate& certificate) {
                     return follower.CheckCertificate(certificate.serial);
                   },
               .certificate = &certificate,
               .max_connections = options.max_connections}));
      options.address =
          absl::StrCat(HostOf(options.address), ":", server->port());
      RETURN_IF_ERROR(WritePortFile(options, server->port()));
      manager.Ready();
    }
    manager.SetStatus(absl::StrCat(
        view.is_connected ? "following " : "waiting for ",
        view.leader.empty() ? "a leader" : view.leader, ", run ", view.run_id,
        ", ", view.changes, " of ", view.leader_changes, " changes"));
    manager.Alive();
  }
  serving.reset();
  if (is_signalled) {
    LOG(INFO) << "signal received; ending";
    manager.Stopping();
  }
  if (server != nullptr) {
    server->Shutdown(is_signalled ? kFarewell : kTakeoverFarewell);
  }
  return !is_signalled;
}

// A coordinator that does not lead: it waits, follows or campaigns.
class Candidate {
 public:
  Candidate(std::string name, Election* election, Follower* follower)
      : name_(std::move(name)),
        election_(election),
        follower_(follower),
        // The lease of a process that has ended ends within one lease, and
        // at most another if etcd changes its own leader.
        voter_(name_, static_cast<int>(3 * election->lease() / kStepInterval)) {
  }

  // Makes the next move. Call it every kStepInterval. Returns whether this
  // coordinator now leads.
  absl::StatusOr<bool> Step() {
    const absl::StatusOr<OfficeView> office = election_->view();
    const Follower::View own = follower_->view();
    const Holding holding = HoldingOf(own);
    ASSIGN_OR_RETURN(const Voter::Step step, voter_.Next(office, holding));
    switch (step) {
      case Voter::Step::kWait:
        return false;
      case Voter::Step::kFollow:
        follower_->Follow(office->leader->address());
        return false;
      case Voter::Step::kFollowLast:
        LOG(WARNING) << "etcd has not answered yet: following the coordinator "
                        "at "
                     << holding.leader << ", which led last";
        follower_->Follow(holding.leader);
        return false;
      case Voter::Step::kPause:
        follower_->Pause();
        if (own.is_complete && !follower_->view().is_complete) {
          // Nothing opens it again, because this coordinator does not follow.
          return absl::UnavailableError(
              "the copy of the run can no longer be opened; the log says why. "
              "Restart this coordinator");
        }
        return Step();
      case Voter::Step::kCampaign:
        return Campaign(*office, holding);
    }
    return absl::InternalError("an unknown step");
  }

  // Tells an operator what this coordinator waits for.
  std::string Awaited() const {
    std::string problem = election_->Problem();
    const absl::StatusOr<OfficeView> office = election_->view();
    if (!problem.empty() || !office.ok()) return problem;
    return AwaitedBy(name_, *office, HoldingOf(follower_->view()));
  }

  // The address of the previous leader.
  const std::string& replaced() const { return replaced_; }

 private:
  // The steps between two campaigns, if the first fails for another reason than
  // another candidate.
  static constexpr int kRest = 10;

  static Holding HoldingOf(const Follower::View& own) {
    return {own.run_id, own.is_complete, own.epoch, own.recorded_leader};
  }

  absl::StatusOr<bool> Campaign(const OfficeView& office,
                                const Holding& holding) {
    if (rest_ > 0) {
      --rest_;
      return false;
    }
    const absl::StatusOr<uint64_t> epoch = election_->Campaign(office, holding);
    if (absl::IsAborted(epoch.status())) {
      LOG(INFO) << "not elected: " << epoch.status();
      return false;
    }
    if (!epoch.ok()) {
      LOG_EVERY_T(WARNING, 60) << "not elected: " << epoch.status();
      rest_ = kRest;
      return false;
    }
    LOG(INFO) << "elected, epoch " << *epoch;
    if (office.office.leader().name() != name_) {
      replaced_ = office.office.leader().address();
    }
    if (!holding.run_id.empty()) {
      RETURN_IF_ERROR(follower_->TakeOver(*epoch));
    }
    return true;
  }

  const std::string name_;
  Election* const election_;
  Follower* const follower_;
  Voter voter_;
  std::string replaced_;
  // Counts the steps until the next campaign.
  int rest_ = 0;
};

// Follows the coordinator at `leader` until an operator promotes this one, and
// then leads.
absl::StatusOr<LeadEnd> FollowAndLead(ServeOptions& options,
                                      const std::string& leader) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Follower> follower,
                   OpenFollower(options, /*is_candidate=*/false));
  follower->Follow(leader);
  std::optional<CertificateRenewer> renewer;
  if (const std::string& folder = options.peer_files.tls; !folder.empty()) {
    renewer.emplace(leader, folder, options.wall_clock, options.random());
  }
  ASSIGN_OR_RETURN(
      const bool is_promoted,
      ServeFollower(
          options, *follower, [&] { return follower->view().is_promoted; },
          [&] {
            return absl::StrCat(
                "the one at ", leader,
                " does not answer; if that one is lost, promote "
                "a follower (causeway promote)");
          },
          /*election=*/nullptr));
  if (!is_promoted) return LeadEnd::kStopped;
  renewer.reset();
  const Follower::View view = follower->view();
  LOG(INFO) << "taking over run " << view.run_id << ", epoch " << view.epoch;
  return Lead(options, view.config, leader, nullptr, follower->Release());
}

}  // namespace

absl::Status RunFollower(ServeOptions options, const std::string& leader,
                         bool promote,
                         const std::optional<v1::RunConfig>& config) {
  options.end_when_replaced = !leader.empty();
  const absl::StatusOr<std::optional<LeaderRecord>> before =
      FindTakenOver(options.state_dir, promote, options.above_epoch, config);
  LeadEnd end = LeadEnd::kReplaced;
  if (before.ok() && before->has_value()) {
    const LeaderRecord& taken = **before;
    ASSIGN_OR_RETURN(end, Lead(options, config.value_or(taken.config),
                               taken.address, nullptr));
  } else if (leader.empty() || (config.has_value() &&
                                absl::IsFailedPrecondition(before.status()))) {
    // Only --promote comes with a configuration, which may not fit the run.
    RETURN_IF_ERROR(before.status());
    return absl::FailedPreconditionError(
        absl::StrCat("--promote: ", options.state_dir, " has no run"));
  }
  while (end == LeadEnd::kReplaced) {
    ASSIGN_OR_RETURN(end, FollowAndLead(options, leader));
    LOG_IF(WARNING, end == LeadEnd::kReplaced)
        << "following the coordinator at " << leader
        << " again; if it is not the one that leads now, start this one with "
           "--follow and the address of that one";
  }
  return absl::OkStatus();
}

absl::Status RunElected(ServeOptions options, const v1::RunConfig& config,
                        Election& election) {
  options.add_metrics = [&election,
                         name = config.name()](MetricFamilies& families) {
    families.AddSample({.name = "causeway_etcd_up",
                        .help = "1 if etcd answers this coordinator, and "
                                "takes what it writes."},
                       election.Problem().empty() ? 1 : 0, {{"run", name}});
  };
  options.end_when_replaced = true;
  while (true) {
    std::string replaced;
    OpenedRun opened;
    {
      ASSIGN_OR_RETURN(const std::unique_ptr<Follower> follower,
                       OpenFollower(options, /*is_candidate=*/true));
      Candidate candidate(options.name, &election, follower.get());
      const auto step = [&] {
        // A step may wait until the follower has ended a large outer step.
        const ServiceManager::Phase phase(options.manager, /*is_busy=*/true);
        return candidate.Step();
      };
      ASSIGN_OR_RETURN(const bool is_elected,
                       ServeFollower(
                           options, *follower, step,
                           [&] { return candidate.Awaited(); }, &election));
      if (!is_elected) return absl::OkStatus();
      replaced = candidate.replaced();
      opened = follower->Release();
    }
    const absl::StatusOr<LeadEnd> end =
        Lead(options, config, replaced, &election, std::move(opened));
    // Lead has resigned unless it failed.
    election.Resign();
    RETURN_IF_ERROR(end.status());
    if (*end == LeadEnd::kStopped) return absl::OkStatus();
  }
}

}  // namespace causeway
