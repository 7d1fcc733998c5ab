// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/collective/tcp_rendezvous.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <list>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/as_bytes.h"
#include "common/status_macros.h"
#include "google/protobuf/message_lite.h"
#include "proto/island.pb.h"
#include "worker/collective/rank_secret.h"
#include "worker/collective/secure_socket.h"

namespace causeway {
namespace {

// A Put takes longer only if rank 0 is stuck.
constexpr absl::Duration kPutTimeout = absl::Seconds(3);
// A caller sends its request and takes the answer at once.
constexpr absl::Duration kServeTimeout = absl::Seconds(10);
// The longest message has the run with the names of all tensors, a few MB at
// most. The coordinator's messages have the same limit.
constexpr uint32_t kMostBytes = 16 << 20;

// Any rank may call; the table does not check which one.
constexpr char kCaller[] = "rank";

// Returns a number that names a table, not 0.
uint64_t RandomTable() {
  uint64_t number = 0;
  std::memcpy(&number, RandomKey().data(), sizeof(number));
  return number | 1;
}

// Writes a message after its length.
absl::Status WriteMessage(const google::protobuf::MessageLite& message,
                          absl::Time deadline, const Clock& now,
                          SecureSocket& socket) {
  const std::string text = message.SerializeAsString();
  const auto size = static_cast<uint32_t>(text.size());
  RETURN_IF_ERROR(
      socket.WriteAll(AsBytes(absl::MakeSpan(&size, 1)), deadline, now));
  return socket.WriteAll(text, deadline, now);
}

absl::Status ReadMessage(absl::Time deadline, const Clock& now,
                         SecureSocket& socket,
                         google::protobuf::MessageLite& message) {
  uint32_t size = 0;
  RETURN_IF_ERROR(
      socket.ReadAll(AsBytes(absl::MakeSpan(&size, 1)), deadline, now));
  // A caller with little time would never get a long message.
  deadline = std::max(deadline, now() + kServeTimeout);
  std::string text(size <= kMostBytes ? size : 0, '\0');
  RETURN_IF_ERROR(
      socket.ReadAll(absl::MakeSpan(&text[0], text.size()), deadline, now));
  if (size > kMostBytes || !message.ParseFromString(text)) {
    return absl::DataLossError("a message of the rendezvous is damaged");
  }
  return absl::OkStatus();
}

class TcpRendezvousServer : public RendezvousServer {
 public:
  TcpRendezvousServer(std::unique_ptr<SecureListener> listener, Clock now)
      : now_(std::move(now)),
        listener_(std::move(listener)),
        acceptor_([this] { AcceptCalls(); }) {}
  ~TcpRendezvousServer() override {
    listener_->Stop();
    acceptor_.join();
    table_.Close();
    for (Call& call : calls_) {
      call.socket->Shutdown();
      call.thread.join();
    }
  }

  Rendezvous* table() override { return &table_; }
  const std::string& address() const override { return listener_->address(); }
  std::map<std::string, Questions> Asked(absl::string_view prefix) override {
    std::map<std::string, Questions> asked;
    absl::MutexLock lock(&asked_mu_);
    for (auto next = asked_.lower_bound(std::string(prefix));
         next != asked_.end() && absl::StartsWith(next->first, prefix);
         ++next) {
      asked.insert(*next);
    }
    return asked;
  }

 private:
  struct Call {
    std::unique_ptr<SecureSocket> socket;
    std::atomic<bool> done = false;
    std::thread thread;
  };

  void AcceptCalls() {
    for (;;) {
      auto socket = listener_->Accept(absl::InfiniteFuture());
      if (!socket.ok()) return;
      calls_.remove_if([](Call& call) {
        if (!call.done) return false;
        call.thread.join();
        return true;
      });
      Call& call = calls_.emplace_back();
      call.socket = *std::move(socket);
      call.thread = std::thread([this, &call] {
        // A caller that is gone needs no answer.
        Serve(*call.socket).IgnoreError();
        call.socket->Shutdown();
        call.done = true;
      });
    }
  }

  absl::Status Serve(SecureSocket& socket) {
    v1::RendezvousRequest request;
    RETURN_IF_ERROR(ReadMessage(now_() + kServeTimeout, now_, socket, request));
    absl::StatusOr<std::string> value = "";
    if (request.table() != 0 && request.table() != number_) {
      value = absl::UnavailableError(
          "rank 0 has ended, and another one has its address");
    } else if (request.has_put()) {
      const absl::Status status = table_.Put(request.key(), request.put());
      if (!status.ok()) value = status;
    } else {
      {
        absl::MutexLock lock(&asked_mu_);
        Questions& questions = asked_[request.key()];
        ++questions.count;
        questions.last = now_();
      }
      value = table_.Get(request.key(),
                         absl::Milliseconds(request.get_milliseconds()));
    }
    v1::RendezvousResponse response;
    response.set_table(number_);
    response.set_code(static_cast<int>(value.status().code()));
    response.set_message(std::string(value.status().message()));
    if (value.ok()) response.set_value(*value);
    return WriteMessage(response, now_() + kServeTimeout, now_, socket);
  }

  const Clock now_;
  const std::unique_ptr<SecureListener> listener_;
  const uint64_t number_ = RandomTable();
  LocalRendezvous table_;
  absl::Mutex asked_mu_;
  std::map<std::string, Questions> asked_ ABSL_GUARDED_BY(asked_mu_);
  // Used by the acceptor, and by the destructor once the acceptor has ended.
  std::list<Call> calls_;
  std::thread acceptor_;
};

class TcpRendezvous : public Rendezvous {
 public:
  explicit TcpRendezvous(RendezvousOptions options)
      : options_(std::move(options)), key_(KeyOfSecret(options_.secret)) {}

  absl::Status Put(absl::string_view key, absl::string_view value) override {
    v1::RendezvousRequest request;
    request.set_key(std::string(key));
    request.set_put(std::string(value));
    return Call(std::move(request), kPutTimeout).status();
  }

  absl::StatusOr<std::string> Get(absl::string_view key,
                                  absl::Duration timeout) override {
    v1::RendezvousRequest request;
    request.set_key(std::string(key));
    request.set_get_milliseconds(absl::ToInt64Milliseconds(timeout));
    // A call takes some time even if it waits for nothing.
    return Call(std::move(request), std::max(timeout, kRendezvousAnswer));
  }

 private:
  absl::StatusOr<std::string> Call(v1::RendezvousRequest request,
                                   absl::Duration timeout) {
    request.set_table(table_);
    const absl::Time deadline = options_.now() + timeout;
    ASSIGN_OR_RETURN(const std::unique_ptr<SecureSocket> socket,
                     SecureSocket::ConnectOnce(options_.address, key_, kCaller,
                                               deadline, options_.now));
    RETURN_IF_ERROR(WriteMessage(request, deadline, options_.now, *socket));
    v1::RendezvousResponse response;
    RETURN_IF_ERROR(ReadMessage(deadline, options_.now, *socket, response));
    uint64_t none = 0;
    table_.compare_exchange_strong(none, response.table());
    if (response.code() == 0) return std::move(*response.mutable_value());
    return absl::Status(static_cast<absl::StatusCode>(response.code()),
                        response.message());
  }

  const RendezvousOptions options_;
  const std::string key_;
  // The number of the table that has answered first, or 0.
  std::atomic<uint64_t> table_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<RendezvousServer>> RendezvousServer::Start(
    const RendezvousOptions& options) {
  ASSIGN_OR_RETURN(
      std::unique_ptr<SecureListener> listener,
      SecureListener::Listen(options.address, KeyOfSecret(options.secret),
                             options.now));
  return std::make_unique<TcpRendezvousServer>(std::move(listener),
                                               options.now);
}

std::unique_ptr<Rendezvous> RendezvousAt(const RendezvousOptions& options) {
  return std::make_unique<TcpRendezvous>(options);
}

absl::StatusOr<std::unique_ptr<Rendezvous>> ConnectRendezvous(
    const RendezvousOptions& options, absl::Duration timeout) {
  const absl::Time deadline = options.now() + timeout;
  absl::Status status;
  do {
    status = SecureSocket::Connect(options.address, KeyOfSecret(options.secret),
                                   kCaller, deadline, options.now)
                 .status();
    // The network may come back.
  } while (absl::IsNotFound(status));
  if (!status.ok()) {
    return absl::Status(
        status.code(),
        absl::StrCat("cannot reach rank 0 of the island (waited up to ",
                     absl::FormatDuration(timeout), "): ", status.message()));
  }
  return RendezvousAt(options);
}

}  // namespace causeway
