// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/elections/elected_coordinator.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace causeway::simulation {
namespace {

using etcdserverpb::TxnResponse;
using TxnAnswer = absl::StatusOr<TxnResponse>;

v1::Replica ReplicaOf(const std::string& name) {
  v1::Replica replica;
  replica.set_name(name);
  replica.set_address(name);
  return replica;
}

}  // namespace

ElectedCoordinator::ElectedCoordinator(const ElectionParts& parts,
                                       uint32_t machine, uint64_t number)
    : parts_(parts),
      machine_(machine),
      number_(number),
      name_(CoordinatorName(machine)),
      process_(parts.world, parts.scenario->Has(ElectionFault::kClockSkew)
                                ? 0.9 + 0.01 * static_cast<double>(
                                                   parts.world->chance.Pick(21))
                                : 1),
      book_("/run/", ReplicaOf(name_)),
      voter_(name_),
      run_id_(disk().run_id),
      epoch_(disk().epoch) {
  parts_.world->Trace(name_, "          starts, with ", disk().log.size(),
                      " changes, epoch ", epoch_);
  OfficeLoop();
  Loop();
  MakeChanges();
}

void ElectedCoordinator::Die() {
  parts_.world->Trace(name_, "          dies");
  process_.Die();
  disk().Crash(chance());
  (*parts_.running)[machine_] = nullptr;
  BreakStreams(std::nullopt, absl::Milliseconds(100));
}

void ElectedCoordinator::BreakStreams(std::optional<uint32_t> machine,
                                      absl::Duration noticed) {
  std::vector<Stream> broken = followers_;
  if (stream_ != nullptr) broken.push_back(stream_);
  for (const Stream& stream : broken) {
    if (machine.has_value() && stream->follower->machine_ != *machine &&
        stream->leader_machine != *machine) {
      continue;
    }
    Break(stream, noticed);
  }
}

void ElectedCoordinator::Break(const Stream& stream, absl::Duration noticed) {
  if (std::exchange(stream->is_broken, true)) return;
  stream->follower->process_.After(
      chance().Between(absl::Milliseconds(10), noticed),
      [stream] { stream->follower->Lost(stream); });
  if (stream->leader == nullptr) return;
  stream->leader->process_.After(
      chance().Between(absl::Milliseconds(10), noticed),
      [stream] { stream->leader->Leave(stream); });
}

absl::Duration ElectedCoordinator::WriteTime() {
  const bool is_slow =
      parts_.scenario->Has(ElectionFault::kSlowDisk) && chance().OneIn(10);
  return is_slow
             ? chance().Between(absl::Milliseconds(100), absl::Seconds(3))
             : chance().Between(absl::Milliseconds(1), absl::Milliseconds(30));
}

void ElectedCoordinator::Append(std::shared_ptr<const v1::LogChange> change,
                                uint64_t epoch, std::function<void()> done) {
  is_busy_ = true;
  disk().log.push_back(std::move(change));
  process_.After(WriteTime(), [this, epoch, done = std::move(done)] {
    is_busy_ = false;
    disk().durable = disk().log.size();
    disk().epoch = epoch;
    done();
    HandleNext();
  });
}

std::shared_ptr<const v1::LogChange> ElectedCoordinator::NewChange(
    uint64_t epoch, const std::optional<v1::FragmentHead>& head) {
  auto change = std::make_shared<v1::LogChange>();
  if (head.has_value()) *change->add_commits() = *head;
  const v1::LogPosition before = disk().Position();
  change->set_rows(absl::StrCat(number_, ".", ++changes_made_));
  change->mutable_position()->set_index(before.index() + 1);
  change->mutable_position()->set_hash(
      ChainOf(before.hash(), epoch, change->rows()));
  return change;
}

uint64_t ElectedCoordinator::NewestVersion() const {
  const LogOfChanges& written = (*parts_.disks)[machine_].log;
  for (const LogOfChanges* log : {&waiting_, &written}) {
    for (auto change = log->rbegin(); change != log->rend(); ++change) {
      if ((*change)->commits_size() > 0) {
        return (*change)->commits(0).version();
      }
    }
  }
  return 0;
}

void ElectedCoordinator::Loop() {
  process_.After(absl::Milliseconds(100), [this] { Loop(); });
  if (leads()) {
    LeadLoop();
  } else {
    Vote();
  }
}

void ElectedCoordinator::Ask(const etcdserverpb::TxnRequest& request,
                             std::function<void(const TxnAnswer&)> done) {
  parts_.etcd->Ask<TxnAnswer>(
      machine_, &process_,
      [request, token = request.compare().empty()
                            ? nullptr
                            : parts_.etcd->change_token()](EtcdModel& etcd) {
        return etcd.Transact(request);
      },
      std::move(done));
}

void ElectedCoordinator::GrantLease(
    std::function<void(const absl::StatusOr<int64_t>&)> done) {
  parts_.etcd->Ask<absl::StatusOr<int64_t>>(
      machine_, &process_,
      [parts = parts_](EtcdModel& etcd) -> absl::StatusOr<int64_t> {
        return etcd.GrantLease(parts.scenario->lease, parts.world->loop.now());
      },
      std::move(done));
}

void ElectedCoordinator::Revoke(int64_t lease) {
  parts_.etcd->Ask<absl::Status>(
      machine_, &process_,
      [lease](EtcdModel& etcd) { return etcd.Revoke(lease); },
      [](const absl::Status&) {});
}

void ElectedCoordinator::Refresh(std::function<void()> done) {
  Ask(book_.Reading(), [this, done = std::move(done)](const TxnAnswer& answer) {
    book_.NoteRead(answer);
    done();
  });
}

void ElectedCoordinator::OfficeLoop() {
  Refresh([this] {
    TendLease([this] {
      process_.After(
          std::min(parts_.scenario->lease / 10, absl::Milliseconds(500)),
          [this] { OfficeLoop(); });
    });
  });
}

void ElectedCoordinator::TendLease(std::function<void()> done) {
  const auto replace = [this, done] {
    GrantLease([this, done](const absl::StatusOr<int64_t>& granted) {
      if (!granted.ok() || !book_.leads()) return done();
      Write(book_.Renew(*granted), [done](const absl::Status&) { done(); });
    });
  };
  switch (book_.lease_step()) {
    case OfficeBook::LeaseStep::kNone:
      return done();
    case OfficeBook::LeaseStep::kReplace:
      return replace();
    case OfficeBook::LeaseStep::kRestore:
      return Write(book_.Restore(), [done](const absl::Status&) { done(); });
    case OfficeBook::LeaseStep::kKeepAlive:
      return parts_.etcd->Ask<absl::Status>(
          machine_, &process_,
          [etcd = parts_.etcd, lease = book_.lease()](EtcdModel& model) {
            return etcd->KeepAlive(model, lease);
          },
          [done, replace](const absl::Status& kept) {
            if (absl::IsNotFound(kept)) return replace();
            done();
          });
  }
}

void ElectedCoordinator::Write(const OfficeBook::Change& change,
                               std::function<void(const absl::Status&)> done) {
  Ask(change.request,
      [this, change, done = std::move(done)](const TxnAnswer& answer) {
        done(book_.NoteChange(change, answer));
      });
}

void ElectedCoordinator::Vote() {
  // A pause lasts until the current write has ended.
  if (is_campaigning_ || (IsBusy() && stream_ == nullptr)) return;
  const absl::StatusOr<OfficeView> office = book_.view();
  const Holding holding{run_id_, disk().is_complete, epoch_,
                        disk().is_complete && disk().is_copy
                            ? CoordinatorName(disk().leader)
                            : ""};
  const absl::StatusOr<Voter::Step> step = voter_->Next(office, holding);
  if (!step.ok()) {
    parts_.checker->Fail(name_, " ends for good: ", step.status().message());
    return;
  }
  switch (*step) {
    case Voter::Step::kWait:
      return;
    case Voter::Step::kFollow:
      Pause();
      following_ = CoordinatorOf(office->leader->address());
      return Dial();
    case Voter::Step::kFollowLast:
      Pause();
      following_ = CoordinatorOf(holding.leader);
      return Dial();
    case Voter::Step::kPause:
      Pause();
      return Vote();
    case Voter::Step::kCampaign:
      return Campaign(*office, holding);
  }
}

void ElectedCoordinator::Campaign(const OfficeView& office,
                                  const Holding& holding) {
  is_campaigning_ = true;
  GrantLease([=, this](const absl::StatusOr<int64_t>& lease) {
    if (!lease.ok()) {
      is_campaigning_ = false;
      return;
    }
    const OfficeBook::Change claim = book_.Claim(office, holding, *lease);
    Write(claim, [=, this, lease = *lease](const absl::Status& won) {
      if (absl::IsAborted(won)) Revoke(lease);
      Refresh([=, this] {
        if (!won.ok()) {
          is_campaigning_ = false;
          return;
        }
        parts_.world->Trace(name_, "          is elected, epoch ",
                            claim.office.epoch());
        replaced_.reset();
        const std::string& before = office.office.leader().name();
        if (!before.empty() && before != name_) {
          replaced_ = CoordinatorOf(before);
        }
        TakeOver(claim.office.epoch());
      });
    });
  });
}

void ElectedCoordinator::TakeOver(uint64_t epoch) {
  if (IsBusy()) {
    process_.After(absl::Milliseconds(10), [this, epoch] { TakeOver(epoch); });
    return;
  }
  if (run_id_.empty()) {
    // The log of a new run has its own first epoch.
    disk() = {.run_id = absl::StrCat("run ", number_), .is_complete = true};
    epoch = 1;
  }
  is_busy_ = true;
  process_.After(WriteTime(), [this, epoch] {
    disk().epoch = std::max(disk().epoch, epoch);
    disk().is_copy = false;
    Append(NewChange(disk().epoch), disk().epoch, [this] {
      process_.After(
          chance().Between(absl::Milliseconds(50), absl::Milliseconds(500)),
          [this] { Lead(); });
    });
  });
}

}  // namespace causeway::simulation
