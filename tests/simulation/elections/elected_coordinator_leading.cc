// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The part of ElectedCoordinator that leads.
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/simulation/elections/elected_coordinator.h"

namespace causeway::simulation {

void ElectedCoordinator::Lead() {
  Pause();
  is_campaigning_ = false;
  run_id_ = disk().run_id;
  epoch_ = disk().epoch;
  stood_down_ = false;
  awaited_ = 0;
  parts_.checker->Leads(name_, number_, epoch_);
  feed_ = std::make_unique<LogFeed>();
  first_ = disk().log.size();
  is_begun_ = false;
  feed_->Begin(disk().Position(), /*is_elected=*/true);
  // An engine's threads look before it is known who is in sync.
  TryPublish();
  electorate_.emplace(book_.office(), name_, run_id_, feed_.get());
  if (replaced_.has_value()) TellReplaced();
}

void ElectedCoordinator::LeadLoop() {
  feed_->Tick(process_.now());
  for (const Stream& stream : std::vector<Stream>(followers_)) Pump(stream);
  TryPublish();
  if (const uint64_t epoch = book_.ReplacedBy(); epoch > 0) StandDown(epoch);
  // The main loop waits for etcd.
  if (is_tending_) return;
  if (!stood_down_) return Tend();
  if (!is_busy_) EndLeading();
}

void ElectedCoordinator::Tend() {
  const std::optional<v1::Office> next = electorate_->Next(book_.office());
  TryPublish();
  if (!next.has_value()) return;
  is_tending_ = true;
  Write(book_.Alter(*next), [this](const absl::Status& changed) {
    is_tending_ = false;
    if (!changed.ok()) return;
    parts_.world->Trace(name_, "          has changed who is in sync");
    electorate_->NoteMade();
    TryPublish();
  });
}

void ElectedCoordinator::MakeChanges() {
  process_.After(
      chance().Between(absl::Milliseconds(50), absl::Milliseconds(700)),
      [this] { MakeChanges(); });
  if (!leads() || stood_down_ || is_busy_) return;
  // Not every change is a version, and only one version is under way.
  if (is_begun_ && awaited_ == 0 && chance().Percent(70)) {
    MakeVersion();
  } else {
    Commit(NewChange(epoch_));
  }
}

void ElectedCoordinator::MakeVersion() {
  v1::FragmentHead head;
  head.set_version(NewestVersion() + 1);
  head.set_digest(absl::StrCat(number_, ".", ++changes_made_));
  feed_->Announce(head, nullptr);
  PumpSome();
  is_busy_ = true;
  process_.After(WriteTime(), [this, head] {
    is_busy_ = false;
    // The disk may refuse the record. Another one is made later.
    if (stood_down_ || chance().OneIn(8)) return;
    Commit(NewChange(epoch_, head));
  });
}

void ElectedCoordinator::Commit(
    const std::shared_ptr<const v1::LogChange>& change) {
  Append(change, epoch_, [this, change] {
    feed_->Add(change);
    if (change->commits_size() > 0) awaited_ = change->position().index();
    PumpSome();
    TryPublish();
  });
}

void ElectedCoordinator::TryPublish() {
  if (stood_down_) return;
  if (!is_begun_ && feed_->IsBegun()) {
    // Islands may come, and get the newest version of the log.
    is_begun_ = true;
    parts_.checker->Published(name_, disk(), first_);
  }
  if (awaited_ == 0) return;
  if (!feed_->TryDurable(awaited_, 0)) return;
  parts_.world->Trace(name_, "          publishes change ", awaited_);
  parts_.checker->Published(name_, disk(), std::exchange(awaited_, 0));
}

void ElectedCoordinator::StandDown(uint64_t epoch) {
  if (epoch <= epoch_) return;
  parts_.world->Trace(name_, "          stands down for epoch ", epoch);
  stood_down_ = true;
}

void ElectedCoordinator::EndLeading() {
  for (const Stream& stream : std::vector<Stream>(followers_)) Refuse(stream);
  electorate_.reset();
  feed_ = nullptr;
  replaced_.reset();
  voter_.emplace(name_);
  if (const int64_t lease = book_.Resign(); lease != 0) Revoke(lease);
  Refresh([] {});
}

void ElectedCoordinator::Accept(const Stream& stream, const Hello& hello) {
  if (leads() && hello.run_id == run_id_ && hello.epoch > epoch_) {
    StandDown(hello.epoch);
  }
  if (stream->is_broken || stream->is_closed) return;
  stream->leader = this;
  const std::string& name = stream->follower->name_;
  if (!leads() || stood_down_ ||
      !feed_->Join(name, name, process_.now()).ok()) {
    return Refuse(stream);
  }
  stream->has_joined = true;
  followers_.push_back(stream);
  Send(stream, [stream, run_id = run_id_, epoch = epoch_] {
    stream->follower->TakeRun(stream, run_id, epoch);
  });
  if (!hello.run_id.empty() && feed_->Continues(hello.position)) {
    const uint64_t index = hello.position.index();
    stream->reader.emplace(feed_.get(), index);
    Send(stream,
         [stream, index] { stream->follower->Acknowledge(stream, index); });
  } else {
    const size_t sent = disk().durable;
    stream->reader.emplace(feed_.get(), sent);
    LogOfChanges log(disk().log.begin(),
                     disk().log.begin() + static_cast<std::ptrdiff_t>(sent));
    Send(stream, [stream, log = std::move(log)] {
      stream->follower->TakeCopy(stream, log);
    });
  }
  Pump(stream);
}

void ElectedCoordinator::Send(const Stream& stream,
                              std::function<void()> handle) {
  parts_.network->SendOn(
      stream->to_follower, machine_, stream->follower->machine_,
      [stream, handle = std::move(handle)] {
        if (stream->is_broken) return;
        stream->follower->process_.Deliver(
            [stream, handle] { stream->follower->Receive(stream, handle); });
      },
      [this, stream] { Break(stream, absl::Seconds(20)); });
}

void ElectedCoordinator::PumpSome() {
  for (const Stream& stream : std::vector<Stream>(followers_)) {
    if (!chance().OneIn(3)) Pump(stream);
  }
}

void ElectedCoordinator::Pump(const Stream& stream) {
  const auto send_record = [&](const v1::FragmentHead& head) {
    Send(stream, [stream, head] { stream->follower->TakeRecord(head); });
  };
  while (true) {
    const auto next = stream->reader->Next();
    if (!next.ok()) return Refuse(stream);
    for (const LogFeed::AnnouncedRecord& record : next->ahead) {
      send_record(record.head);
    }
    for (const v1::FragmentHead& head : next->lacking) send_record(head);
    if (next->change != nullptr) {
      Send(stream, [stream, change = next->change] {
        stream->follower->TakeChange(stream, change);
      });
    } else if (next->ahead.empty()) {
      return;
    }
  }
}

void ElectedCoordinator::Hear(const Stream& stream, uint64_t index) {
  if (!stream->has_joined) return;
  feed_->Acknowledge(stream->follower->name_, index);
  TryPublish();
}

void ElectedCoordinator::Leave(const Stream& stream) {
  if (!std::exchange(stream->has_joined, false)) return;
  feed_->Leave(stream->follower->name_, "its stream has ended");
  std::erase(followers_, stream);
}

void ElectedCoordinator::Refuse(const Stream& stream) {
  Leave(stream);
  stream->follower->process_.After(
      parts_.network->Delay(), [stream] { stream->follower->Lost(stream); });
}

void ElectedCoordinator::TellReplaced() {
  if (!leads()) return;
  process_.After(absl::Seconds(2), [this] { TellReplaced(); });
  if (!replaced_.has_value()) return;
  parts_.network->Send(machine_, *replaced_,
                       [parts = parts_, machine = *replaced_, epoch = epoch_] {
                         ElectedCoordinator* const before =
                             (*parts.running)[machine];
                         if (before == nullptr) return;
                         before->process_.Deliver([before, epoch] {
                           if (before->leads()) before->StandDown(epoch);
                         });
                       });
}

}  // namespace causeway::simulation
