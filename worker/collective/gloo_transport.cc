// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/collective/gloo_transport.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <exception>
#include <memory>
#include <set>
#include <stdexcept>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/status_macros.h"
#include "gloo/rendezvous/context.h"
#include "gloo/rendezvous/store.h"
#include "gloo/transport/tcp/device.h"
#include "gloo/transport/unbound_buffer.h"

namespace causeway {
namespace {

// Gloo throws one type for everything; only the text tells a timeout.
absl::Status FromGloo(const std::exception& error) {
  return absl::StrContains(error.what(), "Timed out")
             ? absl::DeadlineExceededError(error.what())
             : absl::UnavailableError(error.what());
}

// Zero means "no limit" to Gloo.
std::chrono::milliseconds GlooTimeout(absl::Duration timeout) {
  return std::max(std::chrono::milliseconds(1),
                  absl::ToChronoMilliseconds(timeout));
}

// Gloo's view of a Rendezvous. Throws, as Gloo expects.
class Store : public gloo::rendezvous::Store {
 public:
  Store(const GlooTransportOptions& options, Rendezvous* rendezvous)
      : prefix_(absl::StrCat("gloo/", options.name, "/")),
        timeout_(options.connect_timeout),
        rendezvous_(rendezvous) {}

  // The reason why a call has thrown.
  const absl::Status& failure() const { return failure_; }

  void set(const std::string& key, const std::vector<char>& data) override {
    ThrowUnlessOk(rendezvous_->Put(
        Key(key), absl::string_view(data.data(), data.size())));
  }
  std::vector<char> get(const std::string& key) override {
    const absl::StatusOr<std::string> value =
        rendezvous_->Get(Key(key), timeout_);
    ThrowUnlessOk(value.status());
    return std::vector<char>(value->begin(), value->end());
  }
  void wait(const std::vector<std::string>& keys) override {
    for (const std::string& key : keys) get(key);
  }

 private:
  std::string Key(const std::string& key) const { return prefix_ + key; }
  void ThrowUnlessOk(const absl::Status& status) {
    if (status.ok()) return;
    failure_ = status;
    throw std::runtime_error(status.ToString());
  }

  const std::string prefix_;
  const absl::Duration timeout_;
  Rendezvous* const rendezvous_;
  absl::Status failure_;
};

// The messages that are being waited for. Gloo wakes their waiters when a peer
// closes the connection, but not when this side does.
class Waits {
 public:
  // Registers a wait. Returns UNAVAILABLE after End.
  absl::Status Begin(gloo::transport::UnboundBuffer* buffer) {
    absl::MutexLock lock(&mu_);
    if (ended_) return Ended();
    buffers_.insert(buffer);
    return absl::OkStatus();
  }
  void Finish(gloo::transport::UnboundBuffer* buffer) {
    absl::MutexLock lock(&mu_);
    buffers_.erase(buffer);
  }
  // Ends current and later waits.
  void End() {
    absl::MutexLock lock(&mu_);
    ended_ = true;
    for (gloo::transport::UnboundBuffer* buffer : buffers_) {
      buffer->abortWaitSend();
      buffer->abortWaitRecv();
    }
  }

  static absl::Status Ended() {
    return absl::UnavailableError("the connections were closed");
  }

 private:
  absl::Mutex mu_;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  std::set<gloo::transport::UnboundBuffer*> buffers_ ABSL_GUARDED_BY(mu_);
};

class GlooTransfer : public Transfer {
 public:
  enum class Direction { kSend, kReceive };

  GlooTransfer(gloo::Context& context, std::shared_ptr<Waits> waits,
               Direction direction, int peer, uint64_t tag,
               absl::Span<char> bytes)
      : waits_(std::move(waits)), direction_(direction) {
    try {
      buffer_ = context.createUnboundBuffer(bytes.data(), bytes.size());
      if (direction_ == Direction::kSend) {
        buffer_->send(peer, tag);
      } else {
        buffer_->recv(peer, tag);
      }
    } catch (const std::exception& error) {
      status_ = FromGloo(error);
    }
  }

  absl::Status Wait(absl::Duration timeout) override {
    if (done_ || !status_.ok()) return status_;
    status_ = waits_->Begin(buffer_.get());
    if (!status_.ok()) return status_;
    try {
      done_ = direction_ == Direction::kSend
                  ? buffer_->waitSend(GlooTimeout(timeout))
                  : buffer_->waitRecv(GlooTimeout(timeout));
      if (!done_) status_ = Waits::Ended();
    } catch (const std::exception& error) {
      status_ = FromGloo(error);
    }
    waits_->Finish(buffer_.get());
    return status_;
  }

 private:
  const std::shared_ptr<Waits> waits_;
  const Direction direction_;
  std::unique_ptr<gloo::transport::UnboundBuffer> buffer_;
  absl::Status status_;
  bool done_ = false;
};

class GlooTransport : public Transport {
 public:
  explicit GlooTransport(std::shared_ptr<gloo::Context> context)
      : context_(std::move(context)) {}
  ~GlooTransport() override { Close(); }

  int rank() const override { return context_->rank; }
  int size() const override { return context_->size; }

  std::unique_ptr<Transfer> Send(int peer, uint64_t tag,
                                 absl::Span<const char> bytes) override {
    // Gloo has one kind of buffer for both directions; it only reads this one.
    return std::make_unique<GlooTransfer>(
        *context_, waits_, GlooTransfer::Direction::kSend, peer, tag,
        absl::MakeSpan(const_cast<char*>(bytes.data()), bytes.size()));
  }
  std::unique_ptr<Transfer> Receive(int peer, uint64_t tag,
                                    absl::Span<char> bytes) override {
    return std::make_unique<GlooTransfer>(
        *context_, waits_, GlooTransfer::Direction::kReceive, peer, tag, bytes);
  }
  void Close() override {
    waits_->End();
    context_->closeConnections();
  }

 private:
  const std::shared_ptr<gloo::Context> context_;
  const std::shared_ptr<Waits> waits_ = std::make_shared<Waits>();
};

}  // namespace

absl::StatusOr<std::unique_ptr<Transport>> ConnectGloo(
    const GlooTransportOptions& options, Rendezvous* rendezvous) {
  std::signal(SIGPIPE, SIG_IGN);
  Store store(options, rendezvous);
  try {
    gloo::transport::tcp::attr attributes;
    attributes.hostname = options.host;
    std::shared_ptr<gloo::transport::Device> device =
        gloo::transport::tcp::CreateDevice(attributes);
    auto context =
        std::make_shared<gloo::rendezvous::Context>(options.rank, options.size);
    context->setTimeout(GlooTimeout(options.connect_timeout));
    context->connectFullMesh(store, device);
    return std::make_unique<GlooTransport>(std::move(context));
  } catch (const std::exception& error) {
    const absl::Status cause =
        store.failure().ok() ? FromGloo(error) : store.failure();
    return absl::Status(
        cause.code(),
        absl::StrCat("rank ", options.rank, " of ", options.size,
                     " could not connect to the island's other ranks: ",
                     cause.message()));
  }
}

}  // namespace causeway
