// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/http/http_request.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/transport/socket_address.h"

namespace causeway {
namespace {

absl::Status NotHttp(absl::string_view what) {
  return absl::InvalidArgumentError(what);
}

bool IsToken(absl::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
           absl::StrContains("!#$%&'*+-.^_`|~", absl::string_view(&c, 1));
  });
}

bool HasControls(absl::string_view text) {
  return std::any_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_iscntrl(static_cast<unsigned char>(c)) && c != '\t';
  });
}

}  // namespace

absl::StatusOr<HttpRequest> ParseHttpRequest(absl::string_view head) {
  const std::vector<absl::string_view> lines = absl::StrSplit(head, "\r\n");
  const std::vector<absl::string_view> parts = absl::StrSplit(lines[0], ' ');
  if (parts.size() != 3 || !IsToken(parts[0]) ||
      !absl::StartsWith(parts[1], "/") || HasControls(parts[1]) ||
      (parts[2] != "HTTP/1.1" && parts[2] != "HTTP/1.0")) {
    return NotHttp("the first line is not METHOD /PATH HTTP/1.1");
  }
  HttpRequest request{.method = std::string(parts[0])};
  const std::vector<std::string> target =
      absl::StrSplit(parts[1], absl::MaxSplits('?', 1));
  request.path = target[0];
  if (target.size() > 1) request.query = target[1];
  int hosts = 0;
  for (size_t i = 1; i < lines.size(); ++i) {
    const std::vector<absl::string_view> header =
        absl::StrSplit(lines[i], absl::MaxSplits(':', 1));
    if (header.size() != 2 || !IsToken(header[0]) || HasControls(header[1])) {
      return NotHttp("a header is not NAME: VALUE");
    }
    if (!absl::EqualsIgnoreCase(header[0], "Host")) continue;
    ++hosts;
    request.host = std::string(absl::StripAsciiWhitespace(header[1]));
  }
  if (hosts > 1 || (hosts == 0 && parts[2] == "HTTP/1.1")) {
    return NotHttp("there must be exactly one Host header");
  }
  return request;
}

std::string HttpHost(absl::string_view value) {
  value = HostOf(value);
  if (absl::ConsumePrefix(&value, "[")) {
    absl::ConsumeSuffix(&value, "]");
  } else {
    absl::ConsumeSuffix(&value, ".");
  }
  return absl::AsciiStrToLower(value);
}

bool IsIpAddress(const std::string& host) {
  in6_addr address;
  return inet_pton(AF_INET, host.c_str(), &address) == 1 ||
         inet_pton(AF_INET6, host.c_str(), &address) == 1;
}

}  // namespace causeway
