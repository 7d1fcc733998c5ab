// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/collective/local_transport.h"

#include <cstring>
#include <map>
#include <tuple>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "glog/logging.h"

namespace causeway {
namespace {

// Source rank, target rank, tag.
using MessageKey = std::tuple<int, int, uint64_t>;

// One side of a message. Guarded by the exchange's mutex.
struct Side {
  enum class State {
    // Waits for the other side.
    kPosted,
    // The side that came second is copying the bytes.
    kCopying,
    kDone,
    kClosed,
  };
  State state = State::kPosted;
  absl::Span<const char> source;
  absl::Span<char> target;
};

// The state that the ranks share.
class Exchange {
 public:
  explicit Exchange(int size) : closed_(size, false) {}

  void Post(const MessageKey& key, Side* side) {
    Side* other = nullptr;
    {
      absl::MutexLock lock(&mu_);
      const auto posted = posted_.find(key);
      if (posted == posted_.end()) {
        if (closed_[std::get<0>(key)] || closed_[std::get<1>(key)]) {
          side->state = Side::State::kClosed;
        } else {
          posted_.emplace(key, side);
        }
        return;
      }
      other = posted->second;
      posted_.erase(posted);
      other->state = side->state = Side::State::kCopying;
    }
    const absl::Span<const char> source =
        side->target.empty() ? side->source : other->source;
    const absl::Span<char> target =
        side->target.empty() ? other->target : side->target;
    CHECK_EQ(source.size(), target.size()) << "sides of a message differ";
    std::memcpy(target.data(), source.data(), source.size());
    absl::MutexLock lock(&mu_);
    other->state = side->state = Side::State::kDone;
  }

  Side::State Await(Side* side, TimeLimit& limit) {
    absl::MutexLock lock(&mu_);
    const auto settled = [side] { return Settled(*side); };
    AwaitWithin(limit, absl::Condition(&settled), mu_);
    return side->state;
  }

  // After this no other thread uses `side`.
  void Withdraw(const MessageKey& key, Side* side) {
    absl::MutexLock lock(&mu_);
    if (side->state == Side::State::kPosted) {
      posted_.erase(key);
      return;
    }
    const auto settled = [side] { return Settled(*side); };
    mu_.Await(absl::Condition(&settled));
  }

  void Close(int rank) {
    absl::MutexLock lock(&mu_);
    closed_[rank] = true;
    for (auto it = posted_.begin(); it != posted_.end();) {
      if (std::get<0>(it->first) == rank || std::get<1>(it->first) == rank) {
        it->second->state = Side::State::kClosed;
        it = posted_.erase(it);
      } else {
        ++it;
      }
    }
  }

 private:
  static bool Settled(const Side& side) {
    return side.state == Side::State::kDone ||
           side.state == Side::State::kClosed;
  }

  absl::Mutex mu_;
  std::map<MessageKey, Side*> posted_ ABSL_GUARDED_BY(mu_);
  std::vector<bool> closed_ ABSL_GUARDED_BY(mu_);
};

class LocalTransfer : public Transfer {
 public:
  LocalTransfer(std::shared_ptr<Exchange> exchange, const MessageKey& key,
                int peer, Side side)
      : exchange_(std::move(exchange)), key_(key), peer_(peer), side_(side) {
    exchange_->Post(key_, &side_);
  }
  ~LocalTransfer() override { exchange_->Withdraw(key_, &side_); }

  absl::Status Wait(TimeLimit& limit) override {
    switch (exchange_->Await(&side_, limit)) {
      case Side::State::kDone:
        return absl::OkStatus();
      case Side::State::kClosed:
        return absl::UnavailableError(
            absl::StrCat("rank ", peer_, " has left"));
      default:
        return absl::DeadlineExceededError(
            absl::StrCat("no message from rank ", peer_, " in time"));
    }
  }

 private:
  const std::shared_ptr<Exchange> exchange_;
  const MessageKey key_;
  const int peer_;
  Side side_;
};

class LocalTransport : public Transport {
 public:
  LocalTransport(std::shared_ptr<Exchange> exchange, int rank, int size)
      : exchange_(std::move(exchange)), rank_(rank), size_(size) {}
  ~LocalTransport() override { Close(); }

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  std::unique_ptr<Transfer> Send(int peer, uint64_t tag,
                                 absl::Span<const char> bytes) override {
    return std::make_unique<LocalTransfer>(
        exchange_, MessageKey(rank_, peer, tag), peer, Side{.source = bytes});
  }
  std::unique_ptr<Transfer> Receive(int peer, uint64_t tag,
                                    absl::Span<char> bytes) override {
    return std::make_unique<LocalTransfer>(
        exchange_, MessageKey(peer, rank_, tag), peer, Side{.target = bytes});
  }
  void Close() override { exchange_->Close(rank_); }

 private:
  const std::shared_ptr<Exchange> exchange_;
  const int rank_;
  const int size_;
};

}  // namespace

std::vector<std::unique_ptr<Transport>> MakeLocalTransports(int size) {
  const auto exchange = std::make_shared<Exchange>(size);
  std::vector<std::unique_ptr<Transport>> transports;
  for (int rank = 0; rank < size; ++rank) {
    transports.push_back(
        std::make_unique<LocalTransport>(exchange, rank, size));
  }
  return transports;
}

}  // namespace causeway
