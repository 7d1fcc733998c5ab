// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Ports for servers that cannot choose one themselves.
#ifndef TESTS_END_TO_END_FREE_PORT_H_
#define TESTS_END_TO_END_FREE_PORT_H_

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "glog/logging.h"

namespace causeway {

// Returns a port of the loopback interface that is free now.
inline int FreePort() {
  const int file = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  CHECK_EQ(bind(file, reinterpret_cast<sockaddr*>(&address), size), 0);
  getsockname(file, reinterpret_cast<sockaddr*>(&address), &size);
  close(file);
  return ntohs(address.sin_port);
}

}  // namespace causeway

#endif  // TESTS_END_TO_END_FREE_PORT_H_
