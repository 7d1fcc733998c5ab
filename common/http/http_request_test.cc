// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/http/http_request.h"

#include "absl/strings/string_view.h"
#include "common/testing/status_matchers.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

TEST(HttpRequestTest, HasMethodPathQueryAndHost) {
  ASSERT_OK_AND_ASSIGN(
      const HttpRequest request,
      ParseHttpRequest("GET /api/events?after=3&a=%20?b HTTP/1.1\r\n"
                       "Accept: */*\r\nhost:  Example.org:80 \r\nX:"));
  EXPECT_EQ(request.method, "GET");
  EXPECT_EQ(request.path, "/api/events");
  EXPECT_EQ(request.query, "after=3&a=%20?b");
  EXPECT_EQ(request.host, "Example.org:80");
  EXPECT_OK(ParseHttpRequest("GET / HTTP/1.0"));
}

TEST(HttpRequestTest, RefusesWhatIsNone) {
  for (const absl::string_view head :
       {absl::string_view(""), absl::string_view("\r\n"),
        absl::string_view("GET"), absl::string_view("GET /"),
        absl::string_view("GET  / HTTP/1.0"),
        absl::string_view("GET / HTTP/1.0 "),
        absl::string_view("GET / HTTP/2.0"),
        absl::string_view("GET * HTTP/1.0"),
        absl::string_view("GET http://other/ HTTP/1.0"),
        absl::string_view("G\tT / HTTP/1.0"),
        absl::string_view("GET /\0 HTTP/1.0", 15),
        absl::string_view("GET / HTTP/1.1"),
        absl::string_view("GET / HTTP/1.1\r\nHost: a\r\nHost: a"),
        absl::string_view("GET / HTTP/1.1\r\nHost: a\r\n folded: b"),
        absl::string_view("GET / HTTP/1.1\r\nHost : a"),
        absl::string_view("GET / HTTP/1.1\r\nHost: a\r\nno header"),
        absl::string_view("GET / HTTP/1.1\r\nHost: a\nb: c"),
        absl::string_view("GET / HTTP/1.1\r\nHost: a\r\n: b")}) {
    EXPECT_THAT(ParseHttpRequest(head), IsInvalidArgument()) << head;
  }
}

TEST(HttpRequestTest, HostsAreComparableWithoutTheirPorts) {
  EXPECT_EQ(HttpHost("Run.Example.org.:8080"), "run.example.org");
  EXPECT_EQ(HttpHost("10.0.0.1"), "10.0.0.1");
  EXPECT_EQ(HttpHost("[::1]:80"), "::1");
  EXPECT_EQ(HttpHost("[::1]"), "::1");
  EXPECT_EQ(HttpHost(""), "");
}

TEST(HttpRequestTest, TellsAddressesFromNames) {
  for (const char* const address : {"10.0.0.1", "::1", "fe80::1"}) {
    EXPECT_TRUE(IsIpAddress(address)) << address;
  }
  for (const char* const name :
       {"", "10.0.0.1.nip.io", "localhost", "1", "0x7f.1", "127.1"}) {
    EXPECT_FALSE(IsIpAddress(name)) << name;
  }
}

}  // namespace
}  // namespace causeway
