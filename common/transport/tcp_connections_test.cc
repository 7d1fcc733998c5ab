// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/transport/tcp_connections.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

using testing::Contains;
using testing::Field;
using testing::Not;

// A connection over loopback: both ends, and the port that was connected to.
class TcpConnectionsTest : public testing::Test {
 protected:
  void SetUp() override {
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    auto* const generic = reinterpret_cast<sockaddr*>(&address);
    ASSERT_EQ(bind(listener, generic, size), 0);
    ASSERT_EQ(listen(listener, 1), 0);
    ASSERT_EQ(getsockname(listener, generic, &size), 0);
    near_ = socket(AF_INET, SOCK_STREAM, 0);
    ASSERT_EQ(connect(near_, generic, size), 0);
    far_ = accept(listener, nullptr, nullptr);
    ASSERT_GE(far_, 0);
    close(listener);
    peer_ = absl::StrCat("127.0.0.1:", ntohs(address.sin_port));
  }
  void TearDown() override {
    close(near_);
    close(far_);
  }

  int near_ = -1;
  int far_ = -1;
  std::string peer_;
};

TEST_F(TcpConnectionsTest, FindsAConnectionUntilItIsClosed) {
  EXPECT_THAT(OpenTcpConnections(),
              Contains(Field(&TcpConnection::peer, peer_)));
  close(near_);
  EXPECT_THAT(OpenTcpConnections(),
              Not(Contains(Field(&TcpConnection::peer, peer_))));
}

TEST_F(TcpConnectionsTest, MeasuresTheRoundTrip) {
  // Let the other end answer, so that there is something to measure.
  char byte = 1;
  for (const auto& [from, to] : {std::pair(near_, far_), {far_, near_}}) {
    ASSERT_EQ(send(from, &byte, 1, 0), 1);
    ASSERT_EQ(recv(to, &byte, 1, 0), 1);
  }
  for (const TcpConnection& connection : OpenTcpConnections()) {
    if (connection.peer != peer_) continue;
    EXPECT_GT(connection.round_trip, absl::ZeroDuration());
    EXPECT_LT(connection.round_trip, absl::Seconds(5));
    EXPECT_LE(connection.least_round_trip, connection.round_trip);
    EXPECT_EQ(connection.bytes_retransmitted, 0u);
  }
}

TEST_F(TcpConnectionsTest, CountsTheBytesOfBothDirections) {
  char bytes[300] = {};
  ASSERT_EQ(send(far_, bytes, 300, 0), 300);
  ASSERT_EQ(recv(near_, bytes, 300, MSG_WAITALL), 300);
  ASSERT_EQ(send(near_, bytes, 70, 0), 70);
  ASSERT_EQ(recv(far_, bytes, 70, MSG_WAITALL), 70);
  // The confirmation arrives with the next data.
  ASSERT_EQ(send(far_, bytes, 1, 0), 1);
  ASSERT_EQ(recv(near_, bytes, 1, 0), 1);
  std::optional<TcpConnection> near = AskTcpConnection(near_);
  ASSERT_TRUE(near.has_value());
  EXPECT_EQ(near->peer, peer_);
  EXPECT_EQ(near->bytes_received, 301);
  // TCP counts the byte of the handshake, too.
  EXPECT_EQ(near->bytes_acknowledged, 71);
  ASSERT_EQ(send(far_, bytes, 29, 0), 29);
  ASSERT_EQ(recv(near_, bytes, 29, MSG_WAITALL), 29);
  EXPECT_TRUE(UpdateTcpConnection(near_, *near));
  EXPECT_EQ(near->bytes_received, 330);
  // The system forgets the counts of a connection that is reset.
  const sockaddr nowhere = {.sa_family = AF_UNSPEC};
  ASSERT_EQ(connect(near_, &nowhere, sizeof(nowhere)), 0);
  EXPECT_FALSE(UpdateTcpConnection(near_, *near));
  EXPECT_EQ(near->bytes_received, 330);
  EXPECT_EQ(near->peer, peer_);
}

TEST_F(TcpConnectionsTest, OnlySocketsOfTheInternetAreConnections) {
  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
  EXPECT_FALSE(AskTcpConnection(pair[0]).has_value());
  close(pair[0]);
  close(pair[1]);
  EXPECT_FALSE(AskTcpConnection(STDIN_FILENO).has_value());
}

TEST(NetworkOfTest, OneOwnerHasOneNetwork) {
  EXPECT_EQ(NetworkOf("10.77.0.2:40312"), "10.77.0.2");
  EXPECT_EQ(NetworkOf("[2001:db8:1:2:3:4:5:6]:80"), "2001:db8:1:2::/64");
  EXPECT_EQ(NetworkOf("[2001:db8:1:2::7]:81"), "2001:db8:1:2::/64");
  EXPECT_EQ(NetworkOf("[::1]:7070"), "::/64");
  EXPECT_EQ(NetworkOf("[fe80::1%3]:7070"), "fe80::/64");
}

TEST(PeerAddressTest, ReadsWhatGrpcWrites) {
  EXPECT_EQ(PeerAddress("ipv4:10.77.0.2:40312"), "10.77.0.2:40312");
  EXPECT_EQ(PeerAddress("ipv6:%5B::1%5D:7070"), "[::1]:7070");
  EXPECT_EQ(PeerAddress("ipv6:[fe80::2]:7070"), "[fe80::2]:7070");
  EXPECT_EQ(PeerAddress("ipv6:%5Bfe80::2%254%5D:7070"), "[fe80::2%4]:7070");
  EXPECT_EQ(PeerAddress("ipv6:%5Bfe80::2%2525%5D:7070"), "[fe80::2%25]:7070");
  EXPECT_EQ(PeerAddress("unix:/run/causeway"), "");
  EXPECT_EQ(PeerAddress(""), "");
}

}  // namespace
}  // namespace causeway
