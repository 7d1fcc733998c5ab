// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Ports for servers that cannot choose one themselves.
#ifndef TESTS_END_TO_END_FREE_PORT_H_
#define TESTS_END_TO_END_FREE_PORT_H_

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <random>

#include "glog/logging.h"

namespace causeway {

// Returns a free port of the loopback interface, outside of the range that
// Linux gives to clients and to servers that ask for any, so that none of them
// takes it before the caller's server does.
inline int FreePort() {
  std::random_device random;
  std::uniform_int_distribution<int> ports(10'000, 32'767);
  for (int tries = 0; tries < 1000; ++tries) {
    const int port = ports(random);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<uint16_t>(port));
    const int file = socket(AF_INET, SOCK_STREAM, 0);
    const int bound =
        bind(file, reinterpret_cast<sockaddr*>(&address), sizeof(address));
    close(file);
    if (bound == 0) return port;
  }
  LOG(FATAL) << "no port of 127.0.0.1 below 32768 is free";
}

}  // namespace causeway

#endif  // TESTS_END_TO_END_FREE_PORT_H_
