// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/testing/http_client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace causeway {

int ConnectToPort(int port) {
  const int file = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(file, reinterpret_cast<sockaddr*>(&address), sizeof(address)) ==
      0) {
    return file;
  }
  close(file);
  return -1;
}

HttpReply Exchange(int port, absl::string_view bytes) {
  HttpReply reply;
  const int file = ConnectToPort(port);
  if (file < 0) return reply;
  while (!bytes.empty()) {
    const ssize_t sent = send(file, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) break;
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  std::string all;
  char buffer[4096];
  ssize_t size;
  while ((size = recv(file, buffer, sizeof(buffer), 0)) > 0) {
    all.append(buffer, static_cast<size_t>(size));
  }
  close(file);
  const size_t end = all.find("\r\n\r\n");
  if (end == std::string::npos || !absl::StartsWith(all, "HTTP/1.")) {
    return reply;
  }
  reply.head = all.substr(0, end + 2);
  reply.body = all.substr(end + 4);
  if (!absl::SimpleAtoi(all.substr(9, 3), &reply.status)) reply.status = 0;
  return reply;
}

HttpReply HttpGet(int port, absl::string_view path) {
  // Servers answer HTTP/1.0 in one piece, and close.
  return Exchange(
      port, absl::StrCat("GET ", path, " HTTP/1.0\r\nHost: localhost\r\n\r\n"));
}

}  // namespace causeway
