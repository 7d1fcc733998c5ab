// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/disk.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/checksum.h"

namespace causeway::simulation {

std::string InitialDigest(uint32_t fragment) {
  return Digest128(absl::StrCat("fragment ", fragment));
}

std::string NextDigest(const std::string& digest,
                       const std::vector<std::string>& encodings) {
  return Digest128(absl::StrCat(digest, absl::StrJoin(encodings, "")));
}

Disk::Disk(const Scenario* scenario, World* world,
           std::function<void(const Commit&)> committed)
    : scenario_(scenario), world_(world), committed_(std::move(committed)) {
  for (const v1::Fragment& fragment : scenario->plan.fragments()) {
    Commit initial;
    initial.head.set_fragment(fragment.id());
    initial.head.set_digest(InitialDigest(fragment.id()));
    commits_.push_back({initial});
  }
}

absl::Duration Disk::Latency() {
  Chance& chance = world_->chance;
  const bool slow = !healed_ && scenario_->Has(kSlowDisk) && chance.OneIn(8);
  return slow ? chance.Between(absl::Milliseconds(500), absl::Seconds(6))
              : chance.Between(absl::Milliseconds(1), absl::Milliseconds(8));
}

void Disk::Write(Batch batch, absl::Duration work, Done done) {
  under_way_.push_back(std::move(batch));
  busy_until_ = std::max(busy_until_, world_->loop.now() + work) + Latency();
  world_->loop.At(busy_until_, [this, life = life_, done = std::move(done)] {
    if (life == life_) Finish(done);
  });
}

void Disk::Finish(const Done& done) {
  const Batch batch = std::move(under_way_.front());
  under_way_.pop_front();
  done(Try(batch));
}

absl::Status Disk::Try(const Batch& batch) {
  if (poisoned()) {
    return absl::FailedPreconditionError("an earlier write's outcome unknown");
  }
  Chance& chance = world_->chance;
  if (!healed_ && scenario_->Has(kFailedWrite) && chance.OneIn(12)) {
    world_->Trace("disk       a write fails, nothing is written");
    return absl::ResourceExhaustedError("the disk is full");
  }
  if (!healed_ && scenario_->Has(kUnknownWrite) && chance.OneIn(25)) {
    world_->Trace("disk       a write fails, its outcome is unknown");
    unknown_ = batch;
    return absl::UnknownError("outcome unknown of a commit");
  }
  Apply(batch);
  return absl::OkStatus();
}

void Disk::Crash() {
  ++life_;
  busy_until_ = absl::InfinitePast();
  if (unknown_.has_value()) {
    Reconcile();
  } else {
    for (const Batch& batch : under_way_) {
      if (!world_->chance.OneIn(2)) break;
      world_->Trace("disk       a write under way is there");
      Apply(batch);
    }
  }
  under_way_.clear();
}

bool Disk::Reconcile() {
  const bool written = world_->chance.OneIn(2);
  world_->Trace("disk       the write of unknown outcome is ",
                written ? "there" : "not there");
  if (written) Apply(*unknown_);
  unknown_.reset();
  return written;
}

void Disk::Apply(const Batch& batch) {
  for (const Member& member : batch.members) {
    processes_[{member.island_id, member.incarnation}] = member.instance_id;
    Member& stored = members_[member.island_id];
    // Earlier incarnations are separate rows, which nobody reads.
    if (stored.incarnation > member.incarnation) continue;
    stored = member;
    // The commit log does not keep these.
    stored.progress.Clear();
    stored.last_heartbeat = absl::InfinitePast();
  }
  for (const AccountRecord& account : batch.accounts) {
    accounts_[account.key] = account;
    // The process is stored with the member.
    accounts_[account.key].process = 0;
  }
  for (const QuarantineEntry& entry : batch.quarantine) {
    QuarantineEntry& stored = quarantine_[entry.id];
    stored = entry;
    stored.in_round = false;
  }
  for (const uint64_t id : batch.admitted) {
    const auto found = quarantine_.find(id);
    if (found != quarantine_.end()) {
      found->second.state = v1::QuarantinedContribution::ADMITTED;
    }
  }
  if (batch.flags.has_value()) flags_ = *batch.flags;
  if (!batch.validations.empty()) validation_ = batch.validations.back();
  if (!batch.commit.has_value()) return;
  commits_[batch.commit->head.fragment()].push_back(*batch.commit);
  committed_(*batch.commit);
}

CoordinatorHistory Disk::History() const {
  CoordinatorHistory history{.flags = flags_, .validation = validation_};
  for (const auto& [key, account] : accounts_) {
    history.accounts.push_back(account);
    history.accounts.back().process = processes_.at(key);
  }
  for (const std::vector<Commit>& versions : commits_) {
    for (const Commit& commit : versions) {
      for (const v1::ContributionHeader& header : commit.merged) {
        history.settled.push_back({.key = {header.identity().island_id(),
                                           header.identity().incarnation()},
                                   .fragment = header.fragment(),
                                   .fate = header.partial()
                                               ? TokenLedger::Fate::kPartial
                                               : TokenLedger::Fate::kMerged,
                                   .tokens = header.tokens(),
                                   .restored = header.restored_tokens()});
      }
    }
  }
  for (const auto& [id, entry] : quarantine_) {
    history.quarantine.push_back(entry);
    // The merged contributions include the admitted ones.
    if (entry.state == v1::QuarantinedContribution::ADMITTED) continue;
    const v1::ContributionHeader& header = entry.header;
    history.settled.push_back(
        {.key = {header.identity().island_id(),
                 header.identity().incarnation()},
         .fragment = header.fragment(),
         .fate = entry.state == v1::QuarantinedContribution::HELD
                     ? TokenLedger::Fate::kQuarantined
                     : TokenLedger::Fate::kRefused,
         .tokens = header.tokens(),
         .restored = header.restored_tokens()});
  }
  return history;
}

}  // namespace causeway::simulation
