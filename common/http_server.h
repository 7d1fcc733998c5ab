// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// A small HTTP/1.1 server for people and tools that watch a daemon. It is
// read-only and knows nobody: whoever reaches its port may read what it serves
// (docs/security.md).
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
// whatever peers send: a request is at most 16 KiB, `threads` are served at a
// time, 20 more wait, and the kernel holds the rest. Peers that send or read
// slowly are cut off.
#ifndef COMMON_HTTP_SERVER_H_
#define COMMON_HTTP_SERVER_H_

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/clock.h"

struct mg_connection;
struct mg_context;

namespace causeway {

struct HttpRequest {
  // The part of the address after "?", as it came; empty if there is none.
  std::string query;
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
};

// Thread-safe.
using HttpHandler = std::function<HttpResponse(const HttpRequest&)>;

class HttpServer {
 public:
  struct Options {
    // The address to listen on, host:port. Port 0 takes a free one; host
    // 0.0.0.0 or [::] is every address of this machine.
    std::string address;
    // Returns why the daemon cannot serve its purpose yet; OK once it can.
    // Thread-safe.
    std::function<absl::Status()> ready;
    // By path. /healthz, which answers as long as the process lives, and
    // /readyz, which answers 503 until `ready` returns OK, are there anyway.
    std::map<std::string, HttpHandler> handlers;
    Clock now;
    // The time that a peer has to send its request, and to read the response.
    absl::Duration timeout = absl::Seconds(5);
    // The number of requests that are served at a time.
    int threads = 4;
  };

  //   INVALID_ARGUMENT  `address` is not host:port.
  //   UNAVAILABLE       The address cannot be listened on.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(Options options);
  // Ends the requests under way. Takes up to 2 s: CivetWeb looks so often
  // whether it is to stop.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const { return port_; }

 private:
  explicit HttpServer(Options options);

  // CivetWeb's callbacks.
  static int BeginRequest(mg_connection* connection);
  static int LogMessage(const mg_connection* connection, const char* message);

  HttpResponse Respond(const std::string& path, const HttpRequest& request);
  void Send(const HttpResponse& response, bool with_body,
            mg_connection* connection) const;

  Options options_;
  absl::Mutex mu_;
  // CivetWeb's last complaint. Only those of its start are of interest.
  std::string complaint_ ABSL_GUARDED_BY(mu_);
  mg_context* context_ = nullptr;
  int port_ = 0;
};

}  // namespace causeway

#endif  // COMMON_HTTP_SERVER_H_
