// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/http/http_server.h"

#include <dirent.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/testing/http_client.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

using testing::HasSubstr;

int OpenFiles() {
  DIR* const folder = opendir("/proc/self/fd");
  int count = 0;
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count;
}

// Waits until the other end closes.
void AwaitClose(int file) {
  char byte;
  while (recv(file, &byte, 1, 0) > 0) {
  }
}

class HttpServerTest : public testing::Test {
 protected:
  void Serve() { ASSERT_OK_AND_ASSIGN(server_, HttpServer::Start(options_)); }
  int port() const { return server_->port(); }
  HttpReply Get(absl::string_view path) const { return HttpGet(port(), path); }

  // Serves /metrics, which repeats the query.
  HttpServer::Options options_ = {
      .address = "127.0.0.1:0",
      .ready = [] { return absl::OkStatus(); },
      .handlers = {{"/metrics",
                    [](const HttpRequest& request) {
                      return HttpResponse{
                          .content_type = "text/x",
                          .body = absl::StrCat("1 ", request.query)};
                    }}},
      .now = SteadyWallClock()};
  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpServerTest, AnswersExactPaths) {
  Serve();
  const HttpReply reply = Get("/metrics?from=3&a=%20");
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(reply.body, "1 from=3&a=%20");
  EXPECT_THAT(reply.head, HasSubstr("Content-Type: text/x\r\n"));
  EXPECT_THAT(reply.head, HasSubstr("Content-Length: 14\r\n"));
  EXPECT_THAT(reply.head, HasSubstr("X-Content-Type-Options: nosniff\r\n"));
  for (const char* const path :
       {"/", "/metrics/", "/Metrics", "/%6detrics", "/x/../metrics", "/etc",
        "/../../../../etc/passwd", "/%2e%2e/etc/passwd", "/a.cgi", "/a.lua"}) {
    EXPECT_EQ(Get(path).status, 404) << path;
  }
}

TEST_F(HttpServerTest, AnswersHeadWithoutABody) {
  Serve();
  const HttpReply reply =
      Exchange(port(), "HEAD /metrics HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_EQ(reply.status, 200);
  EXPECT_THAT(reply.head, HasSubstr("Content-Length: 2\r\n"));
  EXPECT_EQ(reply.body, "");
}

TEST_F(HttpServerTest, OnlyReads) {
  Serve();
  for (const char* const method :
       {"POST", "PUT", "DELETE", "OPTIONS", "PATCH", "PROPFIND", "MKCOL"}) {
    const HttpReply reply = Exchange(
        port(), absl::StrCat(method, " /metrics HTTP/1.1\r\nHost: a\r\n\r\n"));
    EXPECT_EQ(reply.status, 405) << method;
    EXPECT_THAT(reply.head, HasSubstr("Allow: GET, HEAD\r\n"));
  }
}

TEST_F(HttpServerTest, TellsAliveFromReady) {
  bool is_ready = false;
  options_.ready = [&] {
    return is_ready ? absl::OkStatus()
                    : absl::UnavailableError("has not joined");
  };
  Serve();
  EXPECT_EQ(Get("/healthz").status, 200);
  const HttpReply reply = Get("/readyz");
  EXPECT_EQ(reply.status, 503);
  EXPECT_EQ(reply.body, "has not joined\n");
  is_ready = true;
  EXPECT_EQ(Get("/readyz").status, 200);
}

TEST_F(HttpServerTest, RefusesWhatIsNoRequest) {
  Serve();
  const std::string longest(20 << 10, 'a');
  for (const std::string& bytes :
       {std::string("\r\n\r\n\r\n"), std::string("\0\0\0\0\r\n\r\n", 8),
        std::string("GET\r\n\r\n"), std::string("GET /metrics\r\n\r\n"),
        std::string("GET * HTTP/1.1\r\n\r\n"),
        std::string("GET http://other/metrics HTTP/1.1\r\n\r\n"),
        std::string("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
        absl::StrCat("GET /", longest, " HTTP/1.1\r\n\r\n"),
        absl::StrCat("GET / HTTP/1.1\r\nA: ", longest, "\r\n\r\n")}) {
    EXPECT_NE(Exchange(port(), bytes).status, 200) << bytes.substr(0, 40);
  }
  EXPECT_EQ(Get("/metrics").status, 200);
}

// The length of a body is a peer's claim; the body is not read.
TEST_F(HttpServerTest, DoesNotWaitForABody) {
  options_.timeout = absl::Hours(1);
  Serve();
  EXPECT_EQ(Exchange(port(),
                     "GET /metrics HTTP/1.1\r\nHost: a\r\n"
                     "Content-Length: 1000000000000\r\n\r\nabc")
                .status,
            200);
}

TEST_F(HttpServerTest, CutsOffPeersThatSendNothingOrDoNotRead) {
  // The last request of this test must finish within the timeout.
  options_.timeout = absl::Seconds(2);
  options_.handlers["/large"] = [](const HttpRequest&) {
    return HttpResponse{.body = std::string(64 << 20, 'a')};
  };
  Serve();
  std::vector<int> silent;
  for (int i = 0; i < 10; ++i) {
    silent.push_back(ConnectToPort(port()));
  }
  for (const int file : silent) {
    AwaitClose(file);
    close(file);
  }
  std::vector<int> greedy;
  constexpr absl::string_view kRequest =
      "GET /large HTTP/1.1\r\nHost: a\r\n\r\n";
  for (int i = 0; i < HttpServer::kMostAnswers; ++i) {
    greedy.push_back(ConnectToPort(port()));
    EXPECT_EQ(write(greedy.back(), kRequest.data(), kRequest.size()),
              kRequest.size());
  }
  // This request waits until the first of the greedy peers is cut off.
  EXPECT_EQ(Get("/metrics").status, 200);
  for (const int file : greedy) close(file);
}

TEST_F(HttpServerTest, CutsOffPeersThatReadSlowly) {
  // Each reading of the clock advances it by a second.
  auto time = std::make_shared<std::atomic<int>>(0);
  options_.now = [time] { return absl::FromUnixSeconds(++*time); };
  options_.timeout = absl::Seconds(10);
  options_.handlers["/large"] = [](const HttpRequest&) {
    return HttpResponse{.body = std::string(1 << 20, 'a')};
  };
  Serve();
  const size_t size = Get("/large").body.size();
  EXPECT_GT(size, 0);
  EXPECT_LT(size, 1 << 20);
}

std::vector<int> ConnectSilently(int port, int count) {
  std::vector<int> files;
  for (int i = 0; i < count; ++i) files.push_back(ConnectToPort(port));
  return files;
}

void CloseAll(const std::vector<int>& files) {
  for (const int file : files) close(file);
}

TEST_F(HttpServerTest, SilentPeersCannotKeepOthersOut) {
  options_.timeout = absl::Hours(1);
  Serve();
  const int before = OpenFiles();
  for (const int count : {24, 226}) {
    const std::vector<int> silent = ConnectSilently(port(), count);
    for (const char* const path : {"/healthz", "/readyz", "/metrics"}) {
      EXPECT_EQ(Get(path).status, 200) << count;
    }
    EXPECT_LE(OpenFiles() - before,
              count + static_cast<int>(HttpServer::kMostPeers));
    CloseAll(silent);
  }
}

// An incomplete request counts as none.
TEST_F(HttpServerTest, PeersThatBeginARequestCannotKeepOthersOut) {
  options_.timeout = absl::Hours(1);
  Serve();
  const std::vector<int> slow = ConnectSilently(port(), 100);
  for (const int file : slow) {
    // The server may have closed it already.
    send(file, "GET /", 5, MSG_NOSIGNAL);
  }
  EXPECT_EQ(Get("/metrics").status, 200);
  CloseAll(slow);
}

TEST_F(HttpServerTest, ProbesWaitForNoHandler) {
  options_.timeout = absl::Hours(1);
  absl::Notification go_on;
  options_.handlers["/slow"] = [&](const HttpRequest&) {
    go_on.WaitForNotification();
    return HttpResponse{.body = "done\n"};
  };
  Serve();
  constexpr absl::string_view kRequest =
      "GET /slow HTTP/1.1\r\nHost: a\r\n\r\n";
  const std::vector<int> waiting = ConnectSilently(port(), 100);
  for (const int file : waiting) {
    send(file, kRequest.data(), kRequest.size(), MSG_NOSIGNAL);
  }
  EXPECT_EQ(Get("/healthz").status, 200);
  EXPECT_EQ(Get("/readyz").status, 200);
  go_on.Notify();
  // The newest were not displaced.
  char answer[12] = {};
  EXPECT_EQ(recv(waiting.back(), answer, sizeof(answer), MSG_WAITALL),
            sizeof(answer));
  EXPECT_EQ(absl::string_view(answer, sizeof(answer)), "HTTP/1.1 200");
  CloseAll(waiting);
  server_.reset();
}

TEST_F(HttpServerTest, RequestsOfPeersThatWentAwayAreBounded) {
  absl::Notification go_on;
  std::atomic<int> handled = 0;
  options_.handlers["/slow"] = [&](const HttpRequest&) {
    go_on.WaitForNotification();
    ++handled;
    return HttpResponse{.body = "done\n"};
  };
  Serve();
  constexpr absl::string_view kRequest =
      "GET /slow HTTP/1.1\r\nHost: a\r\n\r\n";
  for (int i = 0; i < 100; ++i) {
    const int file = ConnectToPort(port());
    // A reset is noticed at once.
    const linger at_once = {.l_onoff = 1, .l_linger = 0};
    setsockopt(file, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
    send(file, kRequest.data(), kRequest.size(), MSG_NOSIGNAL);
    EXPECT_EQ(Get("/healthz").status, 200);
    close(file);
    // Once this is answered, the server has noticed the reset.
    EXPECT_EQ(Get("/healthz").status, 200);
  }
  go_on.Notify();
  EXPECT_EQ(Get("/slow").status, 200);
  EXPECT_LE(handled, HttpServer::kMostAnswers + 1);
  server_.reset();
}

// A web site whose name resolves to the server's address cannot read it.
TEST_F(HttpServerTest, HandlersAnswerOnlyForNamesOfTheServer) {
  options_.address = "localhost:0";
  options_.hosts = {"run.example.org"};
  Serve();
  const auto status = [&](absl::string_view path, absl::string_view host) {
    return Exchange(port(), absl::StrCat("GET ", path, " HTTP/1.1\r\nHost: ",
                                         host, "\r\n\r\n"))
        .status;
  };
  for (const char* const host :
       {"localhost", "LOCALHOST:80", "127.0.0.1:9", "[::1]:80", "10.1.2.3",
        "Run.Example.org:443", "run.example.org."}) {
    EXPECT_EQ(status("/metrics", host), 200) << host;
  }
  for (const char* const host :
       {"", "attacker.example.org", "127.0.0.1.attacker.example.org",
        "localhost.attacker.example.org", "a@localhost", "x.run.example.org"}) {
    EXPECT_EQ(status("/metrics", host), 421) << host;
    EXPECT_EQ(status("/healthz", host), 200) << host;
  }
}

TEST_F(HttpServerTest, EndsAtOnceWhilePeersAreConnected) {
  options_.timeout = absl::Hours(1);
  Serve();
  const int before = port();
  const std::vector<int> files = ConnectSilently(before, 10);
  EXPECT_EQ(Get("/healthz").status, 200);
  server_.reset();
  for (const int file : files) AwaitClose(file);
  CloseAll(files);
  EXPECT_EQ(HttpGet(before, "/healthz").status, 0);
}

TEST_F(HttpServerTest, SaysWhyItCannotListen) {
  Serve();
  options_.address = absl::StrCat("127.0.0.1:", port());
  EXPECT_THAT(HttpServer::Start(options_), IsUnavailable(options_.address));
  options_.address = "7070";
  EXPECT_THAT(HttpServer::Start(options_), IsInvalidArgument());
  for (const char* const address : {"0.0.0.0:0", "[::]:0", "localhost:0"}) {
    options_.address = address;
    Serve();
    EXPECT_NE(port(), 0) << address;
  }
}

}  // namespace
}  // namespace causeway
