// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// A client of HttpServer on this machine.
//
//   EXPECT_EQ(HttpGet(server->port(), "/healthz").status, 200);
#ifndef COMMON_TESTING_HTTP_CLIENT_H_
#define COMMON_TESTING_HTTP_CLIENT_H_

#include <string>

#include "absl/strings/string_view.h"

namespace causeway {

struct HttpReply {
  // 0 if the server could not be reached or closed without a reply.
  int status = 0;
  // The status line and the headers.
  std::string head;
  std::string body;
};

// Connects to 127.0.0.1. Returns the socket, or -1.
int ConnectToPort(int port);

// Sends all of `bytes` and reads until the server closes.
HttpReply Exchange(int port, absl::string_view bytes);

HttpReply HttpGet(int port, absl::string_view path);

}  // namespace causeway

#endif  // COMMON_TESTING_HTTP_CLIENT_H_
