// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/collective/testing/raw_socket.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"

namespace causeway {
namespace {

int OpenSocket() {
  const int descriptor = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  PCHECK(descriptor >= 0);
  return descriptor;
}

sockaddr_in Loopback(int port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

void Pass(RawSocket& from, RawSocket& to, std::string& all) {
  for (;;) {
    const std::string bytes = from.Read();
    if (bytes.empty()) break;
    all += bytes;
    to.Send(bytes);
  }
  shutdown(to.descriptor(), SHUT_WR);
}

}  // namespace

RawSocket::RawSocket(const std::string& address) : descriptor_(OpenSocket()) {
  const sockaddr_in to =
      Loopback(std::atoi(address.substr(address.rfind(':') + 1).c_str()));
  PCHECK(connect(descriptor_, reinterpret_cast<const sockaddr*>(&to),
                 sizeof(to)) == 0);
}

RawSocket::~RawSocket() { close(descriptor_); }

bool RawSocket::Send(const std::string& bytes) {
  return send(descriptor_, bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
         static_cast<ssize_t>(bytes.size());
}

std::string RawSocket::Read() {
  std::string bytes(64 << 10, '\0');
  const ssize_t got = recv(descriptor_, &bytes[0], bytes.size(), 0);
  bytes.resize(got > 0 ? got : 0);
  return bytes;
}

std::string RawSocket::ReadToEnd() {
  std::string all;
  for (;;) {
    const std::string next = Read();
    if (next.empty()) return all;
    all += next;
  }
}

RawListener::RawListener() : descriptor_(OpenSocket()) {
  sockaddr_in bound = Loopback(0);
  socklen_t size = sizeof(bound);
  auto* const address = reinterpret_cast<sockaddr*>(&bound);
  PCHECK(bind(descriptor_, address, size) == 0 && listen(descriptor_, 10) == 0);
  PCHECK(getsockname(descriptor_, address, &size) == 0);
  address_ = absl::StrCat("127.0.0.1:", ntohs(bound.sin_port));
}

RawListener::~RawListener() { close(descriptor_); }

std::unique_ptr<RawSocket> RawListener::Accept() {
  return std::make_unique<RawSocket>(accept(descriptor_, nullptr, nullptr));
}

Recorder::Recorder(const std::string& server)
    : thread_([this, server] {
        const auto client = listener_.Accept();
        RawSocket to_server(server);
        std::thread back([&] { Pass(to_server, *client, received_); });
        Pass(*client, to_server, sent_);
        back.join();
      }) {}

Recorder::~Recorder() {
  if (thread_.joinable()) thread_.join();
}

}  // namespace causeway
