// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// A small HTTP/1.1 server for people and tools that watch a daemon. It is
// read-only and does not authenticate: any client that reaches its port may
// read what it serves (docs/security.md).
//
//   ASSIGN_OR_RETURN(
//       auto server,
//       HttpServer::Start({.address = "127.0.0.1:9100",
//                          .ready = [&] { return absl::OkStatus(); },
//                          .handlers = {{"/metrics", [&](const HttpRequest&) {
//                                          return HttpResponse{.body = Text()};
//                                        }}},
//                          .now = now}));
//
// It answers GET and HEAD of exact paths, one request for each connection, and
// serves nothing from disk. Its memory, threads and descriptors are bounded
// whatever peers send: a request has at most 16 KiB, at most `threads` handlers
// run, kMostAnswers answers are made and sent at a time, and kMostPeers are
// connected. A new peer replaces the one that has not been answered for the
// longest time, so silent peers cannot keep others out.
//
// One thread reads and writes all connections. It answers probes itself, so
// that they wait for no handler.
#ifndef COMMON_HTTP_HTTP_SERVER_H_
#define COMMON_HTTP_HTTP_SERVER_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/http/http_request.h"
#include "common/transport/listening_sockets.h"

namespace causeway {

struct HttpResponse {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
};

// Thread-safe.
using HttpHandler = std::function<HttpResponse(const HttpRequest&)>;

class HttpServer {
 public:
  static constexpr size_t kMostPeers = 64;
  static constexpr int kMostAnswers = 8;

  struct Options {
    // The address to listen on, host:port. Port 0 takes a free one; host
    // 0.0.0.0 or [::] is every address of this machine.
    std::string address;
    // Returns why the daemon cannot serve its purpose yet; OK once it can.
    // Thread-safe, and does not wait.
    std::function<absl::Status()> ready;
    // By path. Besides these there are /healthz, which answers as long as the
    // process lives, and /readyz, which answers 503 until `ready` returns OK.
    std::map<std::string, HttpHandler> handlers;
    Clock now;
    // If set, handlers answer only requests whose Host is an IP address,
    // localhost, the host of `address` or one of these names, in lower case. So
    // no web site can read them by resolving its own name to the server's
    // address (DNS rebinding).
    std::optional<std::vector<std::string>> hosts;
    // The time that a peer may take to send its request, and to read the
    // response.
    absl::Duration timeout = absl::Seconds(5);
    // The number of handlers that run at a time.
    int threads = 2;
  };

  //   INVALID_ARGUMENT  `address` is not host:port.
  //   UNAVAILABLE       The address cannot be listened on.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(Options options);
  // Cuts off the requests under way, but waits for running handlers.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const { return sockets_.port(); }

 private:
  // A connection, which goes through these states in this order.
  enum class State {
    // The request is being received.
    kReading,
    // The request waits until fewer answers are under way.
    kWaiting,
    // A handler has the request.
    kHandled,
    // The answer is being sent.
    kWriting,
    // The answer is sent. Closing at once would destroy it if the peer has sent
    // more than a request.
    kEnding,
  };
  struct Peer {
    int file = -1;
    State state = State::kReading;
    // The received part of the request, or the answer.
    std::string bytes;
    // The number of the answer's bytes that are sent.
    size_t written = 0;
    HttpRequest request;
    absl::Time deadline;
  };
  // In the order of arrival.
  using Peers = std::map<uint64_t, Peer>;

  explicit HttpServer(Options options) : options_(std::move(options)) {}

  // --- The thread of the connections. ---

  void Run();
  // Waits until there is something to do. Returns the files with events.
  std::set<int> Await(absl::Time now);
  void Accept(int socket, absl::Time now);
  // Makes room for one more peer. Returns false if all are being answered.
  bool Displace();
  // Handles an event on a peer's file. Returns false if the peer is done.
  bool Serve(Peer& peer, absl::Time now);
  bool Read(Peer& peer, absl::Time now);
  bool Write(Peer& peer, absl::Time now);
  // Decides how to answer the request with this head.
  void Take(absl::string_view head, Peer& peer, absl::Time now);
  void Answer(const HttpResponse& response, Peer& peer, absl::Time now) const;
  bool IsForThisHost(const HttpRequest& request) const;
  // Takes the handlers' answers, and gives them waiting requests.
  void HandOver(absl::Time now);
  void Close(Peers::iterator peer);

  // --- The handlers' threads. ---

  void Handle();

  const Options options_;
  ListeningSockets sockets_;
  // Wakes the thread of the connections.
  int wake_ = -1;
  std::vector<std::thread> threads_;

  // Used by the thread of the connections only.
  Peers peers_;
  uint64_t next_peer_ = 0;
  // Descriptors ran out, so no connection is accepted before this time.
  absl::Time accept_after_ = absl::InfinitePast();

  absl::Mutex mu_;
  bool is_stopping_ ABSL_GUARDED_BY(mu_) = false;
  // Requests for handlers and their answers, by peer, and the number of
  // requests given to handlers and not yet taken back.
  std::deque<std::pair<uint64_t, HttpRequest>> requests_ ABSL_GUARDED_BY(mu_);
  std::vector<std::pair<uint64_t, HttpResponse>> responses_
      ABSL_GUARDED_BY(mu_);
  int handled_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace causeway

#endif  // COMMON_HTTP_HTTP_SERVER_H_
