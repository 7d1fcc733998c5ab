// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/transport/socket_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <cstring>

#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

TEST(SocketAddressTest, IsReadAndWrittenAsInAUrl) {
  for (const char* const address : {"127.0.0.1:7070", "[::1]:0", "[::]:1"}) {
    ASSERT_OK_AND_ASSIGN(const Addresses found, Resolve(address, AI_PASSIVE));
    sockaddr_storage storage = {};
    std::memcpy(&storage, found->ai_addr, found->ai_addrlen);
    EXPECT_EQ(AddressText(storage), address);
  }
}

TEST(SocketAddressTest, SaysWhatIsWrong) {
  for (const char* const address :
       {"", "7070", ":7070", "127.0.0.1", "127.0.0.1:", "127.0.0.1:port",
        "127.0.0.1:-1", "127.0.0.1:65536", "::1:7070", "fd00::1"}) {
    EXPECT_THAT(Resolve(address, 0), IsInvalidArgument()) << address;
  }
  EXPECT_THAT(Resolve("256.0.0.1:7070", AI_NUMERICHOST),
              IsUnavailable("256.0.0.1:7070"));
}

TEST(SocketAddressTest, IPv4InIPv6IsWrittenAsIPv4) {
  sockaddr_storage storage = {};
  sockaddr_in6 in6 = {};
  in6.sin6_family = AF_INET6;
  in6.sin6_port = htons(7070);
  ASSERT_EQ(inet_pton(AF_INET6, "::ffff:10.77.0.2", &in6.sin6_addr), 1);
  std::memcpy(&storage, &in6, sizeof(in6));
  EXPECT_EQ(AddressText(storage), "10.77.0.2:7070");
}

TEST(SocketAddressTest, AnAddressOfALinkNamesTheLink) {
  sockaddr_storage storage = {};
  sockaddr_in6 in6 = {};
  in6.sin6_family = AF_INET6;
  in6.sin6_port = htons(7070);
  in6.sin6_scope_id = 3;
  ASSERT_EQ(inet_pton(AF_INET6, "fe80::1", &in6.sin6_addr), 1);
  std::memcpy(&storage, &in6, sizeof(in6));
  EXPECT_EQ(AddressText(storage), "[fe80::1%3]:7070");
}

TEST(SocketAddressTest, KnowsWhatOnlyThisMachineReaches) {
  for (const char* const address :
       {"127.0.0.1:7100", "127.3.2.1:0", "localhost:7100", "[::1]:7100"}) {
    EXPECT_TRUE(IsLoopback(address)) << address;
  }
  for (const char* const address :
       {"10.0.0.1:7100", "0.0.0.0:7100", "[::]:7100", "[fe80::1]:7100",
        "128.0.0.1:7070", "[::ffff:127.0.0.1]:7070",
        "127.0.0.1.example.org:7100", "localhost.example.org:1", "east:7100",
        ":7100", ""}) {
    EXPECT_FALSE(IsLoopback(address)) << address;
  }
  EXPECT_EQ(HostOf("[::1]:7100"), "[::1]");
  EXPECT_EQ(HostOf("east:7100"), "east");
  EXPECT_EQ(HostOf("[fe80::1]"), "[fe80::1]");
  EXPECT_EQ(HostOf("east"), "east");
}

}  // namespace
}  // namespace causeway
