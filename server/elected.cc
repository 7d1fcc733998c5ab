// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/elected.h"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "common/metrics/metric_families.h"
#include "common/status_macros.h"
#include "glog/logging.h"
#include "server/election/office.h"
#include "server/election/voter.h"
#include "server/follow.h"
#include "server/fragment_heads.h"
#include "server/lead.h"
#include "server/replication/follower.h"

namespace causeway {
namespace {

// A coordinator that does not lead. It acts as the office requires.
class Candidate {
 public:
  Candidate(std::string name, Election* election, Follower* follower)
      : name_(std::move(name)),
        election_(election),
        follower_(follower),
        voter_(name_) {}

  // Makes the next move. Returns whether this coordinator now leads.
  absl::StatusOr<bool> Step() {
    const absl::StatusOr<OfficeView> office = election_->view();
    const Follower::View own = follower_->view();
    const Holding holding{own.run_id, own.is_complete, own.epoch};
    ASSIGN_OR_RETURN(const Voter::Step step, voter_.Next(office, holding));
    switch (step) {
      case Voter::Step::kWait:
        return false;
      case Voter::Step::kFollow:
        follower_->Follow(office->leader->address());
        return false;
      case Voter::Step::kPause:
        follower_->Pause();
        return Step();
      case Voter::Step::kCampaign:
        return Campaign(*office, holding);
    }
    return absl::InternalError("an unknown step");
  }

  // The address of the previous leader.
  const std::string& replaced() const { return replaced_; }

 private:
  absl::StatusOr<bool> Campaign(const OfficeView& office,
                                const Holding& holding) {
    const absl::StatusOr<uint64_t> epoch = election_->Campaign(office, holding);
    if (!epoch.ok()) {
      LOG(INFO) << "not elected: " << epoch.status();
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
};

}  // namespace

absl::Status RunElected(ServeOptions options, const v1::RunConfig& config,
                        Election& election) {
  options.add_metrics = [&election,
                         name = config.name()](MetricFamilies& families) {
    families.AddSample({.name = "causeway_etcd_up",
                        .help = "1 if etcd has answered this coordinator."},
                       election.view().ok() ? 1 : 0, {{"run", name}});
  };
  while (true) {
    std::string replaced;
    OpenedRun opened;
    {
      ASSIGN_OR_RETURN(const std::unique_ptr<Follower> follower,
                       OpenFollower(options));
      Candidate candidate(options.name, &election, follower.get());
      ASSIGN_OR_RETURN(
          const bool is_elected,
          ServeFollower(options, *follower, [&] { return candidate.Step(); }));
      if (!is_elected) return absl::OkStatus();
      replaced = candidate.replaced();
      opened = follower->Release();
    }
    const absl::StatusOr<LeadEnd> end =
        Lead(options, config, replaced, &election, std::move(opened));
    election.Resign();
    RETURN_IF_ERROR(end.status());
    if (*end == LeadEnd::kStopped) return absl::OkStatus();
  }
}

}  // namespace causeway
