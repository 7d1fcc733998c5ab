// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/collective/message_communicator.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "glog/logging.h"
#include "worker/collective/culprit.h"
#include "worker/collective/rounded_values.h"

namespace causeway {
namespace {

// A reduce-scatter receives in pieces, so that it needs little memory and adds
// one piece while the next comes.
constexpr int64_t kPieceValues = 256 << 10;
constexpr int kPiecesAhead = 2;

constexpr size_t kTimesKept = 1024;

// How long ranks wait to hear what became of an operation of the devices, when
// it has used up all its time: a rank that fails says so a little later than
// another one.
constexpr absl::Duration kOutcomeTime = absl::Seconds(2);

// Messages of one operation are numbered from 0, the header.
constexpr int kTagBits = 24;

// What a rank is about to do. Ranks run the same program on the same kind of
// machine, so this goes as it lies in memory, and so do values.
struct Header {
  uint64_t sequence = 0;
  int64_t bytes = 0;
  int64_t away_nanoseconds = 0;
  int32_t collective = 0;
  int32_t root = 0;
  // Where the memory is, for ranks of one process.
  uint64_t address = 0;
};

template <typename T>
absl::Span<char> AsBytes(absl::Span<T> values) {
  return absl::MakeSpan(reinterpret_cast<char*>(values.data()),
                        values.size() * sizeof(T));
}

void Add(absl::Span<const float> values, absl::Span<float> sum) {
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += values[i];
}

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
        rounds_(options.rounds && transport_->size() > 1),
        idle_since_(options.now()),
        thread_([this] { Run(); }) {
    CHECK(!rounds_ || device_ == nullptr);
  }

  ~MessageCommunicator() override {
    {
      absl::MutexLock lock(&mu_);
      stopping_ = true;
    }
    thread_.join();
  }

  int rank() const override { return transport_->rank(); }
  int size() const override { return transport_->size(); }
  bool rounds() const override { return rounds_; }

  Pending ReduceScatter(absl::Span<float> values) override {
    return Start({.collective = Collective::kReduceScatter,
                  .memory = AsBytes(values),
                  .rounds = rounds_},
                 [this, values] {
                   return device_ == nullptr
                              ? RunReduceScatter(values)
                              : RunOnDevice(values,
                                            &DeviceCollectives::ReduceScatter);
                 });
  }
  Pending AllGather(absl::Span<float> values) override {
    return Start({.collective = Collective::kAllGather,
                  .memory = AsBytes(values),
                  .rounds = rounds_},
                 [this, values] {
                   return device_ == nullptr
                              ? RunAllGather(values)
                              : RunOnDevice(values,
                                            &DeviceCollectives::AllGather);
                 });
  }
  Pending AllReduce(absl::Span<double> values) override {
    return Start(
        {.collective = Collective::kAllReduce, .memory = AsBytes(values)},
        [this, values] { return RunAllReduce(values); });
  }
  Pending Broadcast(int root, absl::Span<char> bytes) override {
    return Start(
        {.collective = Collective::kBroadcast, .memory = bytes, .root = root},
        [this, root, bytes] { return RunBroadcast(root, bytes); });
  }

  Pending AllToAll(std::vector<absl::Span<const char>> to,
                   std::vector<absl::Span<char>> from) override {
    to.resize(size());
    from.resize(size());
    return Start({.collective = Collective::kAllToAll,
                  .to = std::move(to),
                  .from = std::move(from)});
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
    bool rounds = false;
    int root = 0;
    // Of all-to-all, by rank.
    std::vector<absl::Span<const char>> to;
    std::vector<absl::Span<char>> from;
    std::function<absl::Status()> run;
    std::shared_ptr<Pending::State> state;

    // What goes to a peer, and what is to come from it, as headers tell it. In
    // the other operations both are the size of the vector.
    int64_t BytesTo(int peer) const {
      return to.empty() ? VectorBytes() : static_cast<int64_t>(to[peer].size());
    }
    int64_t BytesFrom(int peer) const {
      return from.empty() ? VectorBytes()
                          : static_cast<int64_t>(from[peer].size());
    }
    int64_t VectorBytes() const {
      return static_cast<int64_t>(rounds ? memory.size() / sizeof(float) *
                                               kRoundedBytes
                                         : memory.size());
    }
  };
  struct Sent {
    int peer = 0;
    std::unique_ptr<Transfer> transfer;
  };

  // All-to-all needs no `run`: what it moves is in `operation`.
  Pending Start(Operation operation,
                std::function<absl::Status()> run = nullptr) {
    operation.run = std::move(run);
    operation.state = std::make_shared<Pending::State>();
    Pending pending(operation.state);
    absl::MutexLock lock(&mu_);
    queue_.push_back(std::move(operation));
    return pending;
  }

  // The thread of all operations.
  void Run() {
    while (true) {
      Operation operation;
      bool stopping = false;
      {
        absl::MutexLock lock(&mu_);
        const auto woken = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
          return stopping_ || !queue_.empty();
        };
        mu_.Await(absl::Condition(&woken));
        if (queue_.empty()) return;
        operation = std::move(queue_.front());
        queue_.pop_front();
        stopping = stopping_;
      }
      if (stopping) {
        operation.state->Finish(
            absl::CancelledError("the communicator was destroyed"));
        continue;
      }
      operation.state->Finish(Execute(operation));
    }
  }

  absl::Status Execute(const Operation& operation) {
    if (!broken_.ok()) return broken_;
    const absl::Time begin = options_.now();
    deadline_ = begin + options_.timeout;
    times_of_operation_ = {.collective = operation.collective,
                           .sequence = ++sequence_,
                           .peers = std::vector<CollectiveTimes::Peer>(size())};
    times_of_operation_.peers[rank()].away = begin - idle_since_;
    suspect_ = rank();
    absl::Status status = ExchangeHeaders(operation);
    if (status.ok()) {
      status = operation.run ? operation.run() : RunAllToAll(operation);
    }
    if (status.ok()) status = AwaitSends();
    idle_since_ = options_.now();
    if (!status.ok()) {
      broken_ = Explain(operation, status);
      sends_.clear();
      transport_->Close();
      return broken_;
    }
    times_of_operation_.duration = idle_since_ - begin;
    absl::MutexLock lock(&mu_);
    times_.push_back(std::move(times_of_operation_));
    if (times_.size() > kTimesKept) times_.pop_front();
    return status;
  }

  absl::Status Explain(const Operation& operation, const absl::Status& status) {
    if (suspect_ == rank()) {
      ReportOwnFailure(rank(), status, rendezvous_);
      return status;
    }
    const bool stuck = absl::IsDeadlineExceeded(status);
    const std::string seen = absl::StrCat(
        "rank ", rank(),
        stuck ? absl::StrCat(" has waited ",
                             absl::FormatDuration(options_.timeout), " for it")
              : " has lost its connection to it",
        " in ", CollectiveName(operation.collective), " number ", sequence_,
        " of ", operation.memory.size(), " bytes");
    return FindCulprit(rank(), suspect_,
                       stuck ? absl::DeadlineExceededError(seen)
                             : absl::UnavailableError(seen),
                       rendezvous_);
  }

  // ------------------------------------------------------------- messages

  uint64_t Tag(int64_t message) const {
    CHECK_LT(message, int64_t{1} << kTagBits);
    return sequence_ << kTagBits | static_cast<uint64_t>(message);
  }
  // Nothing is sent for empty memory.
  void Send(int peer, int64_t message, absl::Span<const char> bytes) {
    if (bytes.empty()) return;
    sends_.push_back({peer, transport_->Send(peer, Tag(message), bytes)});
  }
  std::unique_ptr<Transfer> Receive(int peer, int64_t message,
                                    absl::Span<char> bytes) {
    if (bytes.empty()) return nullptr;
    times_of_operation_.peers[peer].bytes += static_cast<int64_t>(bytes.size());
    return transport_->Receive(peer, Tag(message), bytes);
  }
  absl::Status Await(Transfer* transfer, int peer, absl::Duration& waited) {
    if (transfer == nullptr) return absl::OkStatus();
    const absl::Time begin = options_.now();
    absl::Status status = transfer->Wait(deadline_ - begin);
    waited += options_.now() - begin;
    if (!status.ok()) suspect_ = peer;
    return status;
  }
  absl::Status AwaitData(Transfer* transfer, int peer) {
    return Await(transfer, peer, times_of_operation_.peers[peer].transfer);
  }
  absl::Status AwaitSends() {
    for (const Sent& send : sends_) {
      RETURN_IF_ERROR(AwaitData(send.transfer.get(), send.peer));
    }
    sends_.clear();
    return absl::OkStatus();
  }
  // Calls body(peer) for the other ranks, in order; stops at an error.
  template <typename Body>
  absl::Status ForEachPeer(Body body) {
    for (int peer = 0; peer < size(); ++peer) {
      if (peer != rank()) RETURN_IF_ERROR(body(peer));
    }
    return absl::OkStatus();
  }
  // The same for what cannot fail.
  template <typename Body>
  void ForPeers(Body body) {
    for (int peer = 0; peer < size(); ++peer) {
      if (peer != rank()) body(peer);
    }
  }

  absl::Status ExchangeHeaders(const Operation& operation) {
    own_headers_.assign(
        size(),
        {.sequence = sequence_,
         .away_nanoseconds =
             absl::ToInt64Nanoseconds(times_of_operation_.peers[rank()].away),
         .collective = static_cast<int32_t>(operation.collective),
         .root = operation.root,
         .address = reinterpret_cast<uintptr_t>(operation.memory.data())});
    headers_.resize(size());
    std::vector<std::unique_ptr<Transfer>> receives(size());
    ForPeers([&](int peer) {
      receives[peer] = transport_->Receive(
          peer, Tag(0), AsBytes(absl::MakeSpan(&headers_[peer], 1)));
      own_headers_[peer].bytes = operation.BytesTo(peer);
      Send(peer, 0, AsBytes(absl::MakeSpan(&own_headers_[peer], 1)));
    });
    return ForEachPeer([&](int peer) -> absl::Status {
      CollectiveTimes::Peer& times = times_of_operation_.peers[peer];
      RETURN_IF_ERROR(Await(receives[peer].get(), peer, times.wait));
      const Header& header = headers_[peer];
      const int64_t bytes = operation.BytesFrom(peer);
      times.away = absl::Nanoseconds(header.away_nanoseconds);
      if (header.bytes == bytes &&
          header.collective == static_cast<int32_t>(operation.collective) &&
          header.root == operation.root) {
        return absl::OkStatus();
      }
      return absl::FailedPreconditionError(absl::StrCat(
          "operation number ", sequence_, " is ",
          CollectiveName(operation.collective), " of ", bytes,
          " bytes with root ", operation.root, " on rank ", rank(), ", but ",
          CollectiveName(static_cast<Collective>(header.collective)), " of ",
          header.bytes, " bytes with root ", header.root, " on rank ", peer));
    });
  }

  // ------------------------------------------------------------ algorithms

  absl::Span<float> Shard(absl::Span<float> values, int owner) const {
    const Slice slice = shard(static_cast<int64_t>(values.size()), owner);
    return values.subspan(slice.begin, slice.size());
  }

  // Piece `piece` of a shard.
  static absl::Span<float> Piece(absl::Span<float> shard, int64_t piece) {
    return shard.subspan(piece * kPieceValues, kPieceValues);
  }
  static int64_t Pieces(absl::Span<float> shard) {
    return (static_cast<int64_t>(shard.size()) + kPieceValues - 1) /
           kPieceValues;
  }
  // Where a piece of a peer's contribution is received.
  absl::Span<float> Staging(int peer, int64_t piece, size_t values) {
    const int64_t slot = peer * kPiecesAhead + piece % kPiecesAhead;
    return absl::MakeSpan(staging_).subspan(slot * kPieceValues, values);
  }

  // A part of the vector of an operation as it is sent, and where it comes in.
  absl::Span<const char> Outgoing(absl::Span<float> part) {
    return rounds_ ? rounded_.Round(part) : AsBytes(part);
  }
  absl::Span<char> Incoming(absl::Span<float> part) {
    return rounds_ ? rounded_.RoomOf(part) : AsBytes(part);
  }
  // What a peer's contribution to a piece is received in.
  absl::Span<char> StagedBytes(int peer, int64_t piece, size_t values) {
    return AsBytes(Staging(peer, piece, values))
        .subspan(0, values * (rounds_ ? kRoundedBytes : sizeof(float)));
  }

  absl::Status RunReduceScatter(absl::Span<float> values) {
    if (rounds_) rounded_.Begin(values);
    const absl::Span<float> own = Shard(values, rank());
    ForPeers([&](int peer) {
      const absl::Span<float> theirs = Shard(values, peer);
      for (int64_t piece = 0; piece < Pieces(theirs); ++piece) {
        Send(peer, 1 + piece, Outgoing(Piece(theirs, piece)));
      }
    });
    staging_.resize(size() > 1 ? size() * kPiecesAhead * kPieceValues : 0);
    std::vector<std::unique_ptr<Transfer>> receives(size() * kPiecesAhead);
    const auto receive = [&](int64_t piece) {
      if (piece >= Pieces(own)) return;
      ForPeers([&](int peer) {
        receives[peer * kPiecesAhead + piece % kPiecesAhead] =
            Receive(peer, 1 + piece,
                    StagedBytes(peer, piece, Piece(own, piece).size()));
      });
    };
    for (int64_t piece = 0; piece < kPiecesAhead; ++piece) receive(piece);
    for (int64_t piece = 0; piece < Pieces(own); ++piece) {
      RETURN_IF_ERROR(ForEachPeer([&](int peer) {
        return AwaitData(
            receives[peer * kPiecesAhead + piece % kPiecesAhead].get(), peer);
      }));
      AddPiece(piece, Piece(own, piece));
      receive(piece + kPiecesAhead);
    }
    return absl::OkStatus();
  }

  // own <- the sum of a piece over all ranks, in order of rank.
  void AddPiece(int64_t piece, absl::Span<float> own) {
    if (size() == 1) return;
    if (rounds_) return AddRoundedPiece(piece, own);
    const auto contribution = [&](int peer) {
      return peer == rank() ? own : Staging(peer, piece, own.size());
    };
    const absl::Span<float> sum = contribution(0);
    for (int peer = 1; peer < size(); ++peer) Add(contribution(peer), sum);
    if (rank() != 0) std::copy(sum.begin(), sum.end(), own.begin());
  }

  void AddRoundedPiece(int64_t piece, absl::Span<float> own) {
    // -0, which changes nothing that is added to it.
    sum_.assign(own.size(), -0.0f);
    for (int peer = 0; peer < size(); ++peer) {
      if (peer == rank()) {
        Add(own, absl::MakeSpan(sum_));
      } else {
        AddRounded(StagedBytes(peer, piece, own.size()), absl::MakeSpan(sum_));
      }
    }
    std::copy(sum_.begin(), sum_.end(), own.begin());
  }

  absl::Status RunAllGather(absl::Span<float> values) {
    if (rounds_) rounded_.Begin(values);
    std::vector<std::unique_ptr<Transfer>> receives(size());
    ForPeers([&](int peer) {
      receives[peer] = Receive(peer, 1, Incoming(Shard(values, peer)));
    });
    const absl::Span<float> own = Shard(values, rank());
    const absl::Span<const char> sent = Outgoing(own);
    ForPeers([&](int peer) { Send(peer, 1, sent); });
    if (rounds_) rounded_.Restore(own);
    return ForEachPeer([&](int peer) -> absl::Status {
      RETURN_IF_ERROR(AwaitData(receives[peer].get(), peer));
      if (rounds_) rounded_.Restore(Shard(values, peer));
      return absl::OkStatus();
    });
  }

  absl::Status RunAllReduce(absl::Span<double> values) {
    gathered_.resize(values.size() * size());
    const auto contribution = [&](int peer) {
      return absl::MakeSpan(gathered_).subspan(peer * values.size(),
                                               values.size());
    };
    std::copy(values.begin(), values.end(), contribution(rank()).begin());
    std::vector<std::unique_ptr<Transfer>> receives(size());
    ForPeers([&](int peer) {
      receives[peer] = Receive(peer, 1, AsBytes(contribution(peer)));
      Send(peer, 1, AsBytes(contribution(rank())));
    });
    RETURN_IF_ERROR(ForEachPeer(
        [&](int peer) { return AwaitData(receives[peer].get(), peer); }));
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = 0;
      for (int peer = 0; peer < size(); ++peer) {
        values[i] += contribution(peer)[i];
      }
    }
    return absl::OkStatus();
  }

  absl::Status RunBroadcast(int root, absl::Span<char> bytes) {
    if (rank() == root) {
      ForPeers([&](int peer) { Send(peer, 1, bytes); });
      return absl::OkStatus();
    }
    const std::unique_ptr<Transfer> receive = Receive(root, 1, bytes);
    return AwaitData(receive.get(), root);
  }

  absl::Status RunAllToAll(const Operation& operation) {
    std::vector<std::unique_ptr<Transfer>> receives(size());
    ForPeers([&](int peer) {
      receives[peer] = Receive(peer, 1, operation.from[peer]);
      Send(peer, 1, operation.to[peer]);
    });
    return ForEachPeer(
        [&](int peer) { return AwaitData(receives[peer].get(), peer); });
  }

  // Everybody is there, so what fails now is a device, what connects devices,
  // or a rank that ends in the middle: that one does not tell its outcome.
  absl::Status RunOnDevice(absl::Span<float> values,
                           absl::Status (DeviceCollectives::*run)(
                               const DeviceVectors&, absl::Time)) {
    DeviceVectors vectors = {.own = values};
    for (int peer = 0; peer < size(); ++peer) {
      vectors.shards.push_back(
          shard(static_cast<int64_t>(values.size()), peer));
      vectors.addresses.push_back(
          peer == rank() ? values.data()
                         : reinterpret_cast<float*>(headers_[peer].address));
    }
    const absl::Time begin = options_.now();
    const absl::Status own = (device_.get()->*run)(vectors, deadline_);
    const absl::Time end = options_.now();
    if (!own.ok()) device_->Abort();
    ForPeers([&](int peer) {
      times_of_operation_.peers[peer].transfer += end - begin;
      times_of_operation_.peers[peer].bytes +=
          vectors.shards[peer].size() * static_cast<int64_t>(sizeof(float));
    });
    // Also nobody may touch its memory before all have read it.
    deadline_ = std::max(deadline_, end + kOutcomeTime);
    return ExchangeOutcomes(own);
  }

  absl::Status ExchangeOutcomes(const absl::Status& own) {
    own_outcome_ = static_cast<int32_t>(own.code());
    outcomes_.resize(size());
    std::vector<std::unique_ptr<Transfer>> receives(size());
    ForPeers([&](int peer) {
      receives[peer] = transport_->Receive(
          peer, Tag(1), AsBytes(absl::MakeSpan(&outcomes_[peer], 1)));
      Send(peer, 1, AsBytes(absl::MakeSpan(&own_outcome_, 1)));
    });
    absl::Duration waited;
    RETURN_IF_ERROR(ForEachPeer(
        [&](int peer) { return Await(receives[peer].get(), peer, waited); }));
    RETURN_IF_ERROR(own);
    return ForEachPeer([&](int peer) -> absl::Status {
      if (outcomes_[peer] == 0) return absl::OkStatus();
      suspect_ = peer;
      return absl::UnavailableError("its device has failed");
    });
  }

  const MessageCommunicatorOptions options_;
  const std::unique_ptr<Transport> transport_;
  // Null if vectors are moved by messages.
  const std::unique_ptr<DeviceCollectives> device_;
  Rendezvous* const rendezvous_;
  const bool rounds_;

  // Of the thread.
  uint64_t sequence_ = 0;
  absl::Status broken_;
  absl::Time idle_since_;
  absl::Time deadline_;
  // Whom the operation failed on; the own rank if on none.
  int suspect_ = 0;
  CollectiveTimes times_of_operation_;
  // By peer.
  std::vector<Header> own_headers_;
  std::vector<Header> headers_;
  std::vector<float> staging_;
  RoundedValues rounded_;
  // Of a piece.
  std::vector<float> sum_;
  std::vector<double> gathered_;
  // Status codes of an operation of the devices.
  int32_t own_outcome_ = 0;
  std::vector<int32_t> outcomes_;
  // They read from the members above, and are gone before them.
  std::vector<Sent> sends_;

  absl::Mutex mu_;
  std::deque<Operation> queue_ ABSL_GUARDED_BY(mu_);
  std::deque<CollectiveTimes> times_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;

  std::thread thread_;
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
