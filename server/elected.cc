// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/elected.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "common/metrics/metric_families.h"
#include "common/status_macros.h"
#include "glog/logging.h"
#include "server/election/office.h"
#include "server/follow.h"
#include "server/fragment_heads.h"
#include "server/lead.h"
#include "server/replication/follower.h"

namespace causeway {
namespace {

// A coordinator that does not lead, and does what the office asks for.
class Voter {
 public:
  Voter(std::string name, Election* election, Follower* follower)
      : name_(std::move(name)), election_(election), follower_(follower) {}

  // Makes the next move. Returns whether this coordinator is the leader now.
  absl::StatusOr<bool> Step() {
    const absl::StatusOr<OfficeView> office = election_->view();
    // The leader, which may be well, is followed on while etcd is away.
    if (!office.ok()) return false;
    const Follower::View own = follower_->view();
    const Holding holding{own.run_id, own.is_complete, own.epoch};
    ASSIGN_OR_RETURN(const Move move, NextMove(*office, name_, holding));
    switch (move) {
      case Move::kWait:
        return false;
      case Move::kFollow:
        // A leader that was elected again is dialled at once.
        if (following_ != office->office.epoch()) {
          following_ = office->office.epoch();
          follower_->Follow(office->leader->address());
        }
        return false;
      case Move::kCampaign:
        return Campaign(*office, holding);
    }
    return absl::InternalError("an unknown move");
  }

  // The address of the leader before.
  const std::string& replaced() const { return replaced_; }

 private:
  absl::StatusOr<bool> Campaign(const OfficeView& office,
                                const Holding& holding) {
    following_ = 0;
    follower_->Pause();
    // What came until now may have changed what is there.
    const Follower::View own = follower_->view();
    if (own.run_id != holding.run_id ||
        own.is_complete != holding.is_complete) {
      return false;
    }
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
  // The epoch of the leader that is followed; 0 if none is.
  uint64_t following_ = 0;
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
      Voter voter(options.name, &election, follower.get());
      ASSIGN_OR_RETURN(
          const bool is_elected,
          ServeFollower(options, *follower, [&] { return voter.Step(); }));
      if (!is_elected) return absl::OkStatus();
      replaced = voter.replaced();
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
