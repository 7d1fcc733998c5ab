// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/collective/operation_messages.h"

#include <utility>

#include "glog/logging.h"

namespace causeway {
namespace {

// The bits of a tag for the message's number; the others hold the operation's.
constexpr int kMessageBits = 24;

}  // namespace

OperationMessages::OperationMessages(Transport* transport, Clock now)
    : transport_(transport),
      now_(std::move(now)),
      limit_(absl::ZeroDuration(), &now_) {}

void OperationMessages::Begin(Collective collective, absl::Duration limit) {
  CHECK(sends_.empty());
  times_ = {.collective = collective,
            .sequence = times_.sequence + 1,
            .peers = std::vector<CollectiveTimes::Peer>(size())};
  set_limit(limit);
  suspect_ = rank();
}

uint64_t OperationMessages::Tag(int64_t message) const {
  CHECK_LT(message, int64_t{1} << kMessageBits);
  return sequence() << kMessageBits | static_cast<uint64_t>(message);
}

void OperationMessages::Send(int peer, int64_t message,
                             absl::Span<const char> bytes) {
  if (bytes.empty()) return;
  sends_.push_back({peer, transport_->Send(peer, Tag(message), bytes)});
}

std::unique_ptr<Transfer> OperationMessages::Receive(int peer, int64_t message,
                                                     absl::Span<char> bytes) {
  if (bytes.empty()) return nullptr;
  return transport_->Receive(peer, Tag(message), bytes);
}

absl::Status OperationMessages::Await(Transfer* transfer, int peer,
                                      absl::Duration& waited) {
  if (transfer == nullptr) return absl::OkStatus();
  const absl::Time begin = now_();
  absl::Status status = transfer->Wait(limit_);
  waited += now_() - begin;
  if (!status.ok()) suspect_ = peer;
  return status;
}

absl::Status OperationMessages::AwaitSends() {
  for (const Sent& send : sends_) {
    RETURN_IF_ERROR(AwaitData(send.transfer.get(), send.peer));
  }
  sends_.clear();
  return absl::OkStatus();
}

}  // namespace causeway
