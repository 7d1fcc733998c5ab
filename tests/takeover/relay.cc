// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/takeover/relay.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <utility>

#include "glog/logging.h"

namespace causeway {
namespace {

sockaddr_in Loopback(int port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  return address;
}

}  // namespace

Relay::Relay(int target)
    : target_(target), listener_(socket(AF_INET, SOCK_STREAM, 0)) {
  sockaddr_in address = Loopback(0);
  socklen_t size = sizeof(address);
  auto* const raw = reinterpret_cast<sockaddr*>(&address);
  CHECK_EQ(bind(listener_, raw, size), 0);
  CHECK_EQ(listen(listener_, 64), 0);
  getsockname(listener_, raw, &size);
  port_ = ntohs(address.sin_port);
  acceptor_ = std::thread([this] { AcceptLoop(); });
}

Relay::~Relay() {
  {
    absl::MutexLock lock(&mu_);
    stopping_ = true;
    for (const int file : sockets_) shutdown(file, SHUT_RDWR);
  }
  shutdown(listener_, SHUT_RDWR);
  acceptor_.join();
  std::vector<std::thread> copiers;
  {
    absl::MutexLock lock(&mu_);
    copiers = std::move(copiers_);
  }
  for (std::thread& copier : copiers) copier.join();
  absl::MutexLock lock(&mu_);
  for (const int file : sockets_) close(file);
  close(listener_);
}

void Relay::SetCut(bool cut) {
  absl::MutexLock lock(&mu_);
  is_cut_ = cut;
}

void Relay::Forget() {
  absl::MutexLock lock(&mu_);
  forgotten_ = connections_;
}

bool Relay::AwaitWhole(int connection) {
  const auto is_whole = [=, this] {
    mu_.AssertReaderHeld();
    return stopping_ || (!is_cut_ && connection >= forgotten_);
  };
  absl::MutexLock lock(&mu_, absl::Condition(&is_whole));
  return !stopping_;
}

void Relay::AcceptLoop() {
  while (true) {
    const int client = accept(listener_, nullptr, nullptr);
    int connection = 0;
    {
      absl::MutexLock lock(&mu_);
      connection = connections_++;
    }
    if (client < 0 || !AwaitWhole(connection)) {
      if (client >= 0) close(client);
      return;
    }
    const int server = socket(AF_INET, SOCK_STREAM, 0);
    const sockaddr_in address = Loopback(target_);
    if (connect(server, reinterpret_cast<const sockaddr*>(&address),
                sizeof(address)) != 0) {
      close(server);
      close(client);
      continue;
    }
    absl::MutexLock lock(&mu_);
    sockets_.insert(sockets_.end(), {client, server});
    copiers_.emplace_back([=, this] { Copy(connection, client, server); });
    copiers_.emplace_back([=, this] { Copy(connection, server, client); });
    if (stopping_) {
      for (const int file : {client, server}) shutdown(file, SHUT_RDWR);
    }
  }
}

void Relay::Copy(int connection, int from, int to) {
  std::vector<char> buffer(64 << 10);
  while (true) {
    const ssize_t received = recv(from, buffer.data(), buffer.size(), 0);
    if (!AwaitWhole(connection)) return;
    if (received <= 0) break;
    for (ssize_t sent = 0; sent < received;) {
      const ssize_t count =
          send(to, buffer.data() + sent, static_cast<size_t>(received - sent),
               MSG_NOSIGNAL);
      if (count <= 0) break;
      sent += count;
    }
  }
  shutdown(from, SHUT_RDWR);
  shutdown(to, SHUT_RDWR);
}

}  // namespace causeway
