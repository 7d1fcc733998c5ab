// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The part of ElectedCoordinator that follows.
#include <memory>
#include <utility>

#include "tests/simulation/elections/elected_coordinator.h"

namespace causeway::simulation {

void ElectedCoordinator::Dial() {
  if (!following_.has_value() || stream_ != nullptr || leads()) return;
  if (IsBusy()) {
    process_.After(absl::Milliseconds(10), [this] { Dial(); });
    return;
  }
  if (!disk().is_complete) disk() = ElectionDisk();
  ahead_.reset();
  stream_ = std::make_shared<FollowStream>();
  stream_->follower = this;
  stream_->leader_machine = *following_;
  Hello hello;
  if (disk().is_complete) hello = {run_id_, epoch_, disk().Position()};
  parts_.network->SendOn(
      stream_->to_leader, machine_, *following_,
      [parts = parts_, stream = stream_, hello] {
        ElectedCoordinator* const leader =
            (*parts.running)[stream->leader_machine];
        if (leader == nullptr) {
          stream->follower->process_.After(parts.network->Delay(), [stream] {
            stream->follower->Lost(stream);
          });
          return;
        }
        leader->process_.Deliver(
            [leader, stream, hello] { leader->Accept(stream, hello); });
      },
      [this, stream = stream_] { Break(stream, absl::Seconds(20)); });
  process_.After(absl::Seconds(10), [this, stream = stream_] {
    if (stream->leader == nullptr) Lost(stream);
  });
}

void ElectedCoordinator::Lost(const Stream& stream) {
  if (stream != stream_) return;
  Close();
  process_.After(chance().Between(absl::Milliseconds(200), absl::Seconds(2)),
                 [this] { Dial(); });
}

void ElectedCoordinator::Close() {
  const Stream stream = std::exchange(stream_, nullptr);
  inbox_.clear();
  if (stream == nullptr) return;
  stream->is_closed = true;
  if (stream->leader == nullptr) return;
  const auto leave = [stream] { stream->leader->Leave(stream); };
  parts_.network->SendOn(
      stream->to_leader, machine_, stream->leader_machine,
      [stream, leave] { stream->leader->process_.Deliver(leave); }, [] {});
  // If the message is lost, keep-alives are missed.
  stream->leader->process_.After(absl::Seconds(20), leave);
}

void ElectedCoordinator::Pause() {
  following_.reset();
  Close();
}

void ElectedCoordinator::Receive(const Stream& stream,
                                 std::function<void()> handle) {
  if (stream != stream_) return;
  inbox_.push_back(std::move(handle));
  HandleNext();
}

void ElectedCoordinator::HandleNext() {
  while (!is_busy_ && !inbox_.empty()) {
    const std::function<void()> handle = std::move(inbox_.front());
    inbox_.pop_front();
    handle();
  }
}

void ElectedCoordinator::TakeRun(const Stream& stream,
                                 const std::string& run_id, uint64_t epoch) {
  if (disk().is_complete && !disk().is_copy && epoch <= epoch_) {
    parts_.checker->Fail(name_, " ends for good: its directory leads");
    return;
  }
  if (epoch < epoch_) return Lost(stream);
  run_id_ = run_id;
  epoch_ = epoch;
  disk().is_copy = true;
  disk().leader = stream->leader_machine;
}

void ElectedCoordinator::TakeCopy(const Stream& stream,
                                  const LogOfChanges& log) {
  parts_.world->Trace(name_, "          begins a copy of ", log.size(),
                      " changes");
  disk() = ElectionDisk();
  is_busy_ = true;
  process_.After(3 * WriteTime(), [this, stream, log] {
    is_busy_ = false;
    disk() = {.run_id = run_id_,
              .epoch = epoch_,
              .is_copy = true,
              .leader = stream->leader_machine,
              .is_complete = true,
              .log = log,
              .durable = log.size()};
    Acknowledge(stream, log.size());
    HandleNext();
  });
}

void ElectedCoordinator::TakeRecord(const v1::FragmentHead& head) {
  ahead_.reset();
  is_busy_ = true;
  process_.After(
      chance().Between(absl::Milliseconds(1), absl::Milliseconds(100)),
      [this, head] {
        is_busy_ = false;
        if (head.version() == NewestVersion() + 1) {
          ahead_ = head;
        } else {
          parts_.checker->Fail(name_, " gets records out of order");
        }
        HandleNext();
      });
}

void ElectedCoordinator::TakeChange(
    const Stream& stream, const std::shared_ptr<const v1::LogChange>& change) {
  const v1::LogPosition before =
      waiting_.empty() ? disk().Position() : waiting_.back()->position();
  const uint64_t index = change->position().index();
  if (index != before.index() + 1 ||
      change->position().hash() !=
          ChainOf(before.hash(), epoch_, change->rows())) {
    parts_.checker->Fail(name_, " ends for good: change ", index,
                         " does not continue its log");
    return;
  }
  for (const v1::FragmentHead& head : change->commits()) {
    if (!ahead_.has_value() || ahead_->digest() != head.digest()) {
      parts_.checker->Fail(name_, " gets a version without its record");
    }
    ahead_.reset();
  }
  waiting_.push_back(change);
  WriteGroup(stream);
}

void ElectedCoordinator::WriteGroup(const Stream& stream) {
  if (is_writing_ || waiting_.empty()) return;
  is_writing_ = true;
  LogOfChanges& log = disk().log;
  log.insert(log.end(), waiting_.begin(), waiting_.end());
  waiting_.clear();
  process_.After(WriteTime(), [this, stream, epoch = epoch_] {
    is_writing_ = false;
    disk().durable = disk().log.size();
    disk().epoch = epoch;
    Acknowledge(stream, disk().durable);
    WriteGroup(stream);
  });
}

void ElectedCoordinator::Acknowledge(const Stream& stream, uint64_t index) {
  if (stream != stream_) return;
  ElectedCoordinator* const leader = stream->leader;
  if (leader->leads()) {
    parts_.checker->Acknowledges(name_, disk(), leader->disk(), index);
  }
  parts_.network->SendOn(
      stream->to_leader, machine_, stream->leader_machine,
      [stream, index] {
        if (stream->is_broken) return;
        stream->leader->process_.Deliver(
            [stream, index] { stream->leader->Hear(stream, index); });
      },
      [this, stream] { Break(stream, absl::Seconds(20)); });
}

}  // namespace causeway::simulation
