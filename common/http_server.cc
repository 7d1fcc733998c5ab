// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/http_server.h"

#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "civetweb.h"
#include "common/status_macros.h"
#include "common/transport/socket_address.h"

namespace causeway {
namespace {

// A response is sent in pieces, and the time is checked between two of them:
// CivetWeb gives each write all of its time again whenever the peer has taken
// something.
constexpr size_t kPiece = 8 << 10;

// Browsers must not guess types, frame a page, or load anything from elsewhere.
constexpr absl::string_view kHeaders =
    "Cache-Control: no-store\r\n"
    "Connection: close\r\n"
    "Content-Security-Policy: default-src 'self'; frame-ancestors 'none'\r\n"
    "Referrer-Policy: no-referrer\r\n"
    "X-Content-Type-Options: nosniff\r\n";

// Returns `address` as CivetWeb writes it. It takes no names.
absl::StatusOr<std::string> ListeningPort(const std::string& address) {
  ASSIGN_OR_RETURN(const Addresses addresses, Resolve(address, AI_PASSIVE));
  const absl::string_view host = HostOf(address);
  const absl::string_view port =
      absl::string_view(address).substr(host.size() + 1);
  if (host == "0.0.0.0" || host == "[::]") return absl::StrCat("+", port);
  sockaddr_storage storage = {};
  std::memcpy(&storage, addresses->ai_addr, addresses->ai_addrlen);
  return AddressText(storage);
}

bool Write(mg_connection* connection, absl::string_view bytes) {
  return mg_write(connection, bytes.data(), bytes.size()) ==
         static_cast<int>(bytes.size());
}

}  // namespace

HttpServer::HttpServer(Options options) : options_(std::move(options)) {
  options_.handlers["/healthz"] = [](const HttpRequest&) {
    return HttpResponse{.body = "alive\n"};
  };
  options_.handlers["/readyz"] = [this](const HttpRequest&) {
    const absl::Status status = options_.ready();
    if (status.ok()) return HttpResponse{.body = "ready\n"};
    return HttpResponse{.status = 503,
                        .body = absl::StrCat(status.message(), "\n")};
  };
}

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(Options options) {
  std::unique_ptr<HttpServer> server(new HttpServer(std::move(options)));
  const std::string& address = server->options_.address;
  ASSIGN_OR_RETURN(const std::string listening, ListeningPort(address));
  const std::string timeout =
      absl::StrCat(absl::ToInt64Milliseconds(server->options_.timeout));
  const std::string threads = absl::StrCat(server->options_.threads);
  const char* settings[] = {"listening_ports",
                            listening.c_str(),
                            "num_threads",
                            threads.c_str(),
                            "connection_queue",
                            "20",
                            "request_timeout_ms",
                            timeout.c_str(),
                            "max_request_size",
                            "16384",
                            "enable_keep_alive",
                            "no",
                            "decode_url",
                            "no",
                            nullptr};
  mg_callbacks callbacks = {};
  callbacks.begin_request = &HttpServer::BeginRequest;
  callbacks.log_message = &HttpServer::LogMessage;
  server->context_ = mg_start(&callbacks, server.get(), settings);
  mg_server_port port = {};
  if (server->context_ == nullptr ||
      mg_get_server_ports(server->context_, 1, &port) != 1) {
    absl::MutexLock lock(&server->mu_);
    return absl::UnavailableError(absl::StrCat(
        "cannot serve HTTP on \"", address, "\": ", server->complaint_,
        "; choose another address (port 0 takes a free one)"));
  }
  server->port_ = port.port;
  return server;
}

HttpServer::~HttpServer() {
  if (context_ != nullptr) mg_stop(context_);
}

int HttpServer::LogMessage(const mg_connection* connection,
                           const char* message) {
  auto* const server =
      static_cast<HttpServer*>(mg_get_user_data(mg_get_context(connection)));
  absl::MutexLock lock(&server->mu_);
  server->complaint_ = message;
  return 1;
}

// CivetWeb asks this before it looks at anything but the request's headers. The
// result says that the request is done with.
int HttpServer::BeginRequest(mg_connection* connection) {
  // Without this CivetWeb would read the request's body first, however long.
  mg_disable_connection_keep_alive(connection);
  const mg_request_info& info = *mg_get_request_info(connection);
  auto* const server = static_cast<HttpServer*>(info.user_data);
  const absl::string_view method = info.request_method;
  HttpResponse response{.status = 405, .body = "only GET and HEAD\n"};
  if (method == "GET" || method == "HEAD") {
    response = server->Respond(
        info.local_uri_raw,
        {.query = info.query_string == nullptr ? "" : info.query_string});
  }
  server->Send(response, method != "HEAD", connection);
  return response.status;
}

HttpResponse HttpServer::Respond(const std::string& path,
                                 const HttpRequest& request) {
  const auto handler = options_.handlers.find(path);
  if (handler != options_.handlers.end()) return handler->second(request);
  return {.status = 404, .body = "there is no such page\n"};
}

void HttpServer::Send(const HttpResponse& response, bool with_body,
                      mg_connection* connection) const {
  const absl::Time deadline = options_.now() + options_.timeout;
  const std::string header = absl::StrCat(
      "HTTP/1.1 ", response.status, " ",
      mg_get_response_code_text(connection, response.status),
      "\r\nContent-Type: ", response.content_type,
      "\r\nContent-Length: ", response.body.size(), "\r\n",
      response.status == 405 ? "Allow: GET, HEAD\r\n" : "", kHeaders, "\r\n");
  if (!Write(connection, header) || !with_body) return;
  absl::string_view rest = response.body;
  while (!rest.empty() && options_.now() < deadline) {
    const size_t size = std::min(rest.size(), kPiece);
    if (!Write(connection, rest.substr(0, size))) return;
    rest.remove_prefix(size);
  }
}

}  // namespace causeway
