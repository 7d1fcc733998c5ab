// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/collective/message_communicator.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/as_bytes.h"
#include "common/status_macros.h"
#include "glog/logging.h"
#include "worker/collective/culprit.h"
#include "worker/collective/message_collectives.h"
#include "worker/collective/operation_messages.h"

namespace causeway {
namespace {

constexpr size_t kTimesKept = 1024;

// Ranks wait this long after the time limit for the outcomes of a device
// operation, because failing ranks report at slightly different times.
constexpr absl::Duration kOutcomeTime = absl::Seconds(2);

// The operation that a rank is about to do. Headers and values are sent as they
// are in memory, because ranks run the same program on the same kind of
// machine.
struct Header {
  uint64_t sequence = 0;
  int64_t bytes = 0;
  int64_t away_nanoseconds = 0;
  int32_t collective = 0;
  int32_t root = 0;
  // The address of the memory, for ranks of one process.
  uint64_t address = 0;
};

class MessageCommunicator : public Communicator {
 public:
  MessageCommunicator(const MessageCommunicatorOptions& options,
                      std::unique_ptr<Transport> transport,
                      Rendezvous* rendezvous,
                      std::unique_ptr<DeviceCollectives> device)
      : options_(options),
        transport_(std::move(transport)),
        device_(std::move(device)),
        rendezvous_(rendezvous),
        idle_since_(options.now()),
        messages_(transport_.get(), options.now) {}

  int rank() const override { return transport_->rank(); }
  int size() const override { return transport_->size(); }

  absl::Status ReduceScatter(absl::Span<float> values) override {
    return Execute(
        {.collective = Collective::kReduceScatter, .memory = AsBytes(values)},
        [&] {
          return device_ == nullptr
                     ? collectives_.ReduceScatter(values, Shards(values),
                                                  messages_)
                     : RunOnDevice(values, &DeviceCollectives::ReduceScatter);
        });
  }
  absl::Status AllGather(absl::Span<float> values) override {
    return Execute(
        {.collective = Collective::kAllGather, .memory = AsBytes(values)}, [&] {
          return device_ == nullptr
                     ? collectives_.AllGather(values, Shards(values), messages_)
                     : RunOnDevice(values, &DeviceCollectives::AllGather);
        });
  }
  absl::Status AllReduce(absl::Span<double> values) override {
    return Execute(
        {.collective = Collective::kAllReduce, .memory = AsBytes(values)},
        [&] { return collectives_.AllReduce(values, messages_); });
  }
  absl::Status Broadcast(int root, absl::Span<char> bytes) override {
    return Execute(
        {.collective = Collective::kBroadcast, .memory = bytes, .root = root},
        [&] { return collectives_.Broadcast(root, bytes, messages_); });
  }

  absl::Status AllToAll(std::vector<absl::Span<const char>> to,
                        std::vector<absl::Span<char>> from) override {
    to.resize(size());
    from.resize(size());
    return Execute(
        {.collective = Collective::kAllToAll, .to = to, .from = from},
        [&] { return collectives_.AllToAll(to, from, messages_); });
  }

  void Abort(const absl::Status& reason) override {
    ReportOwnFailure(rank(), reason, rendezvous_);
    if (device_ != nullptr) device_->Abort();
    transport_->Close();
  }

  std::vector<CollectiveTimes> TakeTimes() override {
    absl::MutexLock lock(&mu_);
    std::vector<CollectiveTimes> times(times_.begin(), times_.end());
    times_.clear();
    return times;
  }

 private:
  struct Operation {
    Collective collective = Collective::kReduceScatter;
    absl::Span<char> memory;
    int root = 0;
    // For all-to-all, by rank.
    absl::Span<const absl::Span<const char>> to;
    absl::Span<const absl::Span<char>> from;

    // The bytes to and from a peer that headers announce. In other operations
    // than all-to-all, both are the size of the vector.
    int64_t BytesTo(int peer) const {
      return static_cast<int64_t>(to.empty() ? memory.size() : to[peer].size());
    }
    int64_t BytesFrom(int peer) const {
      return static_cast<int64_t>(from.empty() ? memory.size()
                                               : from[peer].size());
    }
  };
  // Executes the operation: calls `run` once the ranks have agreed on it.
  absl::Status Execute(const Operation& operation,
                       absl::FunctionRef<absl::Status()> run) {
    if (!broken_.ok()) return broken_;
    std::optional<RankSectionScope> stamp;
    if (options_.lane.has_value()) {
      stamp.emplace(rank(), *options_.lane, RankSection::kCollective);
    }
    const absl::Time begin = options_.now();
    messages_.Begin(operation.collective, options_.timeout);
    messages_.times(rank()).away = begin - idle_since_;
    absl::Status status = ExchangeHeaders(operation);
    if (status.ok()) status = run();
    if (status.ok()) status = messages_.AwaitSends();
    idle_since_ = options_.now();
    if (!status.ok()) {
      broken_ = Explain(operation, status, idle_since_ - begin);
      messages_.GiveUp();
      transport_->Close();
      return broken_;
    }
    messages_.times().duration = idle_since_ - begin;
    absl::MutexLock lock(&mu_);
    times_.push_back(messages_.times());
    if (times_.size() > kTimesKept) times_.pop_front();
    return status;
  }

  absl::Status Explain(const Operation& operation, const absl::Status& status,
                       absl::Duration waited) {
    if (messages_.suspect() == rank()) {
      ReportOwnFailure(rank(), status, rendezvous_);
      return status;
    }
    const bool stuck = absl::IsDeadlineExceeded(status);
    const int64_t bytes = operation.BytesFrom(messages_.suspect());
    const std::string seen =
        absl::StrCat("rank ", rank(),
                     stuck ? absl::StrCat(" has waited ",
                                          absl::FormatDuration(absl::Trunc(
                                              waited, absl::Milliseconds(100))),
                                          " for it")
                           : " has lost its connection to it",
                     " in ", CollectiveName(operation.collective), " number ",
                     messages_.sequence(), " of ", bytes, " bytes");
    return FindCulprit({.rank = rank(),
                        .ranks = size(),
                        .suspect = messages_.suspect(),
                        .status = stuck ? absl::DeadlineExceededError(seen)
                                        : absl::UnavailableError(seen),
                        .unreached = transport_->Unreached()},
                       rendezvous_, [this] { transport_->Close(); });
  }

  absl::Status ExchangeHeaders(const Operation& operation) {
    own_headers_.assign(
        size(),
        {.sequence = messages_.sequence(),
         .away_nanoseconds =
             absl::ToInt64Nanoseconds(messages_.times(rank()).away),
         .collective = static_cast<int32_t>(operation.collective),
         .root = operation.root,
         .address = reinterpret_cast<uintptr_t>(operation.memory.data())});
    headers_.resize(size());
    std::vector<std::unique_ptr<Transfer>> receives(size());
    messages_.ForPeers([&](int peer) {
      receives[peer] = messages_.Receive(
          peer, 0, AsBytes(absl::MakeSpan(&headers_[peer], 1)));
      own_headers_[peer].bytes = operation.BytesTo(peer);
      messages_.Send(peer, 0, AsBytes(absl::MakeSpan(&own_headers_[peer], 1)));
    });
    return messages_.ForEachPeer([&](int peer) -> absl::Status {
      CollectiveTimes::Peer& times = messages_.times(peer);
      RETURN_IF_ERROR(messages_.Await(receives[peer].get(), peer, times.wait));
      const Header& header = headers_[peer];
      const int64_t bytes = operation.BytesFrom(peer);
      times.away = absl::Nanoseconds(header.away_nanoseconds);
      if (header.bytes == bytes &&
          header.collective == static_cast<int32_t>(operation.collective) &&
          header.root == operation.root) {
        return absl::OkStatus();
      }
      return absl::FailedPreconditionError(absl::StrCat(
          "operation number ", messages_.sequence(), " is ",
          CollectiveName(operation.collective), " of ", bytes,
          " bytes with root ", operation.root, " on rank ", rank(), ", but ",
          CollectiveName(static_cast<Collective>(header.collective)), " of ",
          header.bytes, " bytes with root ", header.root, " on rank ", peer));
    });
  }

  std::vector<Slice> Shards(absl::Span<float> values) const {
    std::vector<Slice> shards;
    for (int owner = 0; owner < size(); ++owner) {
      shards.push_back(shard(static_cast<int64_t>(values.size()), owner));
    }
    return shards;
  }

  // All ranks are there, so a failure is now due to a device, to the network of
  // devices, or to a rank that ends in the middle and so sends no outcome.
  absl::Status RunOnDevice(absl::Span<float> values,
                           absl::Status (DeviceCollectives::*run)(
                               const DeviceVectors&, absl::Time)) {
    DeviceVectors vectors = {.own = values, .shards = Shards(values)};
    for (int peer = 0; peer < size(); ++peer) {
      vectors.addresses.push_back(
          peer == rank() ? values.data()
                         : reinterpret_cast<float*>(headers_[peer].address));
    }
    // The time limit begins here, so that a late rank's time does not count.
    messages_.set_limit(options_.timeout);
    const absl::Time begin = options_.now();
    const absl::Status own =
        (device_.get()->*run)(vectors, begin + options_.timeout);
    const absl::Time end = options_.now();
    if (IsOwnFailure(own.code())) {
      // The other ranks' devices wait for this one until the deadline. By then,
      // the ranks must know why.
      ReportOwnFailure(rank(), own, rendezvous_);
    }
    if (!own.ok()) device_->Abort();
    messages_.ForPeers([&](int peer) {
      messages_.times(peer).transfer += end - begin;
      messages_.times(peer).bytes +=
          vectors.shards[peer].size() * static_cast<int64_t>(sizeof(float));
    });
    // No rank may touch its memory before all have read it. Others may have
    // begun, and so end, somewhat later.
    messages_.set_limit(messages_.Left() + kOutcomeTime);
    return ExchangeOutcomes(own);
  }

  absl::Status ExchangeOutcomes(const absl::Status& own) {
    own_outcome_ = static_cast<int32_t>(own.code());
    outcomes_.resize(size());
    std::vector<std::unique_ptr<Transfer>> receives(size());
    messages_.ForPeers([&](int peer) {
      receives[peer] = messages_.Receive(
          peer, 1, AsBytes(absl::MakeSpan(&outcomes_[peer], 1)));
      messages_.Send(peer, 1, AsBytes(absl::MakeSpan(&own_outcome_, 1)));
    });
    absl::Duration waited;
    const absl::Status heard = messages_.ForEachPeer([&](int peer) {
      return messages_.Await(receives[peer].get(), peer, waited);
    });
    if (IsOwnFailure(own.code())) {
      messages_.set_suspect(rank());
      return own;
    }
    RETURN_IF_ERROR(heard);
    const auto check = [&](auto has_failed) {
      return messages_.ForEachPeer([&](int peer) -> absl::Status {
        if (!has_failed(outcomes_[peer])) return absl::OkStatus();
        messages_.set_suspect(peer);
        return absl::UnavailableError("its device has failed");
      });
    };
    // This rank may only have waited for another rank's device.
    RETURN_IF_ERROR(check([](int32_t outcome) {
      return IsOwnFailure(static_cast<absl::StatusCode>(outcome));
    }));
    RETURN_IF_ERROR(own);
    return check([](int32_t outcome) { return outcome != 0; });
  }

  // Returns whether a device's operation has failed by its own fault. Other
  // errors may come from a device or process that it waits for.
  static bool IsOwnFailure(absl::StatusCode code) {
    return code != absl::StatusCode::kOk &&
           code != absl::StatusCode::kDeadlineExceeded &&
           code != absl::StatusCode::kUnavailable &&
           code != absl::StatusCode::kAborted;
  }

  const MessageCommunicatorOptions options_;
  const std::unique_ptr<Transport> transport_;
  // Null if messages move the vectors.
  const std::unique_ptr<DeviceCollectives> device_;
  Rendezvous* const rendezvous_;

  // For the thread of the operations.
  absl::Status broken_;
  absl::Time idle_since_;
  // Headers to and from each peer.
  std::vector<Header> own_headers_;
  std::vector<Header> headers_;
  // The status codes of an operation of the devices.
  int32_t own_outcome_ = 0;
  std::vector<int32_t> outcomes_;
  MessageCollectives collectives_;
  // Messages read from the members above, so they are destroyed first.
  OperationMessages messages_;

  absl::Mutex mu_;
  std::deque<CollectiveTimes> times_ ABSL_GUARDED_BY(mu_);
};

}  // namespace

std::unique_ptr<Communicator> MakeMessageCommunicator(
    const MessageCommunicatorOptions& options,
    std::unique_ptr<Transport> transport, Rendezvous* rendezvous,
    std::unique_ptr<DeviceCollectives> device) {
  return std::make_unique<MessageCommunicator>(options, std::move(transport),
                                               rendezvous, std::move(device));
}

}  // namespace causeway
