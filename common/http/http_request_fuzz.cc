// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Reads foreign bytes as the head of an HTTP request.
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/http/http_request.h"
#include "glog/logging.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace causeway;  // NOLINT(build/namespaces): the entry is C.
  const absl::string_view head(reinterpret_cast<const char*>(data), size);
  HttpHost(head);
  const absl::StatusOr<HttpRequest> request = ParseHttpRequest(head);
  if (!request.ok()) return 0;
  CHECK(!request->method.empty());
  CHECK_EQ(request->path[0], '/');
  for (const std::string* text :
       {&request->method, &request->path, &request->query, &request->host}) {
    CHECK(text->find_first_of("\r\n") == std::string::npos) << *text;
  }
  IsIpAddress(HttpHost(request->host));
  return 0;
}
