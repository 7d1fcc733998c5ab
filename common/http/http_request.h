// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#ifndef COMMON_HTTP_HTTP_REQUEST_H_
#define COMMON_HTTP_HTTP_REQUEST_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace causeway {

struct HttpRequest {
  std::string method;
  // The address up to "?", as received, and the part after it, or "".
  std::string path;
  std::string query;
  // The value of the header Host; empty if there is none.
  std::string host;
};

// Reads the head of an HTTP/1 request (RFC 9112): everything before the empty
// line.
//   INVALID_ARGUMENT  It is no request to a server: it lacks method, path and
//                     version, a header is malformed, or there is not exactly
//                     one Host.
absl::StatusOr<HttpRequest> ParseHttpRequest(absl::string_view head);

// Returns the host in the value of a Host header, in lower case and without
// port or trailing dot.
std::string HttpHost(absl::string_view value);

// Returns whether `host`, as HttpHost returns it, is an IP address.
bool IsIpAddress(const std::string& host);

}  // namespace causeway

#endif  // COMMON_HTTP_HTTP_REQUEST_H_
