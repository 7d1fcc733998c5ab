// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/edge/connections.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/testing/status_matchers.h"
#include "common/transport/socket_address.h"
#include "glog/logging.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

constexpr uint64_t kMiB = 1 << 20;

class ConnectionsTest : public testing::Test {
 protected:
  // The two ends of a TCP connection on loopback.
  struct Pair {
    Pair() = default;
    Pair(const Pair&) = delete;
    Pair& operator=(const Pair&) = delete;
    ~Pair() {
      close(client);
      close(server);
    }
    // Returns whether the client's end has not been reset.
    bool open() const {
      pollfd polled = {.fd = client, .events = POLLRDHUP};
      return poll(&polled, 1, 0) == 0;
    }
    // Returns the peer as grpc::ServerContext::peer() writes it.
    std::string peer() const {
      return absl::StrCat("ipv4:", AskTcpConnection(server)->peer);
    }
    // Sends the server's end this many bytes.
    void Deliver(uint64_t bytes) const {
      const std::string piece(1 << 16, 'x');
      std::string received(1 << 16, '\0');
      for (uint64_t sent = 0; sent < bytes; sent += piece.size()) {
        ASSERT_EQ(send(client, piece.data(), piece.size(), 0), piece.size());
        ASSERT_EQ(recv(server, received.data(), received.size(), MSG_WAITALL),
                  received.size());
      }
    }

    // Sends the client's end this many bytes, which it reads.
    void Answer(uint64_t bytes) const {
      const std::string piece(1 << 16, 'x');
      std::string received(1 << 16, '\0');
      for (uint64_t sent = 0; sent < bytes; sent += piece.size()) {
        ASSERT_EQ(send(server, piece.data(), piece.size(), 0), piece.size());
        ASSERT_EQ(recv(client, received.data(), received.size(), MSG_WAITALL),
                  received.size());
      }
    }

    int client = -1;
    int server = -1;
  };

  void SetUp() override {
    sockaddr_in address = {.sin_family = AF_INET};
    socklen_t size = sizeof(address);
    listener_ = socket(AF_INET, SOCK_STREAM, 0);
    auto* const bound = reinterpret_cast<sockaddr*>(&address);
    PCHECK(bind(listener_, bound, size) == 0 && listen(listener_, 10) == 0 &&
           getsockname(listener_, bound, &size) == 0);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address_ = address;
  }
  void TearDown() override { close(listener_); }

  // `host` is the last byte of the client's address; port 0 takes any.
  std::unique_ptr<Pair> Connect(uint32_t host = 1, int port = 0) const {
    auto pair = std::make_unique<Pair>();
    pair->client = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in from = {.sin_family = AF_INET,
                        .sin_port = htons(static_cast<uint16_t>(port))};
    from.sin_addr.s_addr = htonl((127u << 24) + host);
    const int on = 1;
    PCHECK(setsockopt(pair->client, SOL_SOCKET, SO_REUSEADDR, &on,
                      sizeof(on)) == 0 &&
           bind(pair->client, reinterpret_cast<const sockaddr*>(&from),
                sizeof(from)) == 0);
    PCHECK(connect(pair->client, reinterpret_cast<const sockaddr*>(&address_),
                   sizeof(address_)) == 0);
    pair->server = accept(listener_, nullptr, nullptr);
    return pair;
  }
  // Makes a connection that must be admitted.
  std::unique_ptr<Pair> Admit(uint32_t host = 1) {
    auto pair = Connect(host);
    EXPECT_TRUE(connections_.Admit(pair->server));
    return pair;
  }

  absl::Time now_ = absl::UnixEpoch();
  Connections connections_{{.connections = 4,
                            .per_address = 3,
                            .undelivered_bytes = 20 * kMiB,
                            .held_bytes = 24 * kMiB},
                           [this] { return now_; }};
  int listener_ = -1;
  sockaddr_in address_;
};

TEST_F(ConnectionsTest, TheOldestSilentConnectionMakesRoom) {
  const auto spoke = Admit();
  spoke->Deliver(1);
  now_ += absl::Seconds(1);
  const auto oldest = Admit();
  now_ += absl::Seconds(1);
  const auto newest = Admit();
  connections_.Audit();
  const auto fourth = Admit();
  EXPECT_TRUE(spoke->open());
  EXPECT_FALSE(oldest->open());
  EXPECT_TRUE(newest->open());
  EXPECT_EQ(connections_.Use().displaced(), 1);
}

TEST_F(ConnectionsTest, AConnectionInUseDoesNotMakeRoom) {
  std::vector<std::unique_ptr<Pair>> pairs;
  std::vector<CallTicket> calls;
  for (int i = 0; i < 3; ++i) {
    pairs.push_back(Admit());
    calls.push_back(connections_.BeginCall(pairs.back()->peer()));
  }
  EXPECT_EQ(connections_.Use().calls(), 3);
  EXPECT_FALSE(connections_.Admit(Connect()->server));
  // An island is in use between two exchanges, too.
  calls.clear();
  EXPECT_FALSE(connections_.Admit(Connect()->server));
  EXPECT_EQ(connections_.Use().refused(), 2);
  now_ += absl::Minutes(1);
  Admit();
  EXPECT_EQ(connections_.Use().displaced(), 1);
}

// A machine with two addresses lets a peer connect twice from one port.
TEST_F(ConnectionsTest, OneAddressAndPortHasOneConnection) {
  auto first = Admit();
  address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1);
  const auto second = Connect(1, PortOf(AskTcpConnection(first->server)->peer));
  ASSERT_EQ(second->peer(), first->peer());
  EXPECT_FALSE(connections_.Admit(second->server));
  EXPECT_EQ(connections_.Use().refused(), 1);
  // The first is still counted, and cut off.
  first->Deliver(6 * kMiB);
  connections_.Audit();
  EXPECT_FALSE(first->open());
  first.reset();
  EXPECT_TRUE(connections_.Admit(second->server));
}

TEST_F(ConnectionsTest, ClosedConnectionsMakeRoom) {
  for (int i = 0; i < 10; ++i) Admit();
  EXPECT_EQ(connections_.Use().displaced(), 0);
  connections_.Audit();
  EXPECT_EQ(connections_.Use().open(), 0);
  EXPECT_EQ(connections_.Use().unused(), 10);
}

TEST_F(ConnectionsTest, BytesThatNoCallTakesAreBounded) {
  const auto greedy = Admit();
  greedy->Deliver(6 * kMiB);
  const auto calling = Admit();
  calling->Deliver(6 * kMiB);
  const CallTicket call = connections_.BeginCall(calling->peer());
  const auto taken = Admit();
  taken->Deliver(9 * kMiB);
  {
    const CallTicket over = connections_.BeginCall(taken->peer());
    over.connection().Took(9 * kMiB);
  }
  connections_.Audit();
  EXPECT_FALSE(greedy->open());
  EXPECT_TRUE(calling->open()) << "a call may hold 8 MiB";
  EXPECT_TRUE(taken->open()) << "what was taken is held no more";
  EXPECT_EQ(connections_.Use().cut(), 1);
}

// Before the call of an honest upload gets a processor, gRPC may read the
// window of the stream and two messages.
TEST_F(ConnectionsTest, ReadingAheadForABusyCallIsNoAttack) {
  const auto busy = Admit();
  const CallTicket call = connections_.BeginCall(busy->peer());
  busy->Deliver(7 * kMiB);
  connections_.Audit();
  EXPECT_TRUE(busy->open());
  // Delivered bytes allow for a larger window.
  busy->Deliver(40 * kMiB);
  for (int i = 0; i < 25; ++i) call.connection().Took(kMiB);
  connections_.Audit();
  EXPECT_TRUE(busy->open());
  EXPECT_OK(call.connection().CheckLoad(Precedence::kWatcher))
      << "it has delivered more than it holds";
  busy->Deliver(4 * kMiB);
  connections_.Audit();
  EXPECT_FALSE(busy->open()) << "all together hold too much";
}

// The window of an upload may arrive before its call gets a processor.
TEST_F(ConnectionsTest, AWindowBeforeItsCallBeginsIsNoAttack) {
  const auto early = Admit();
  early->Deliver(4 * kMiB + (64 << 10));
  connections_.Audit();
  EXPECT_TRUE(early->open());
  early->Deliver(kMiB);
  connections_.Audit();
  EXPECT_FALSE(early->open());
}

uint64_t HeldBytes(const Connections& connections) {
  return connections.Peers().peers(0).held_bytes();
}

// HTTP/2 and TLS send some bytes with each message.
TEST_F(ConnectionsTest, FramesDoNotAddUp) {
  const auto pair = Admit();
  const CallTicket call = connections_.BeginCall(pair->peer());
  connections_.Audit();
  const uint64_t idle = HeldBytes(connections_);
  for (int i = 0; i < 64; ++i) call.connection().Took(kMiB);
  pair->Deliver(64 * kMiB + (128 << 10));
  connections_.Audit();
  EXPECT_EQ(HeldBytes(connections_), idle);
  // A peer cannot save up the allowance for frames.
  pair->Deliver(256 << 10);
  connections_.Audit();
  EXPECT_EQ(HeldBytes(connections_), idle + (256 << 10));
}

// A control stream that lasts for weeks: heartbeats and pings.
TEST_F(ConnectionsTest, SmallMessagesDoNotAddUp) {
  const auto pair = Admit();
  const CallTicket call = connections_.BeginCall(pair->peer());
  connections_.Audit();
  const uint64_t idle = HeldBytes(connections_);
  constexpr int kBeats = 100'000;
  for (int i = 0; i < kBeats; ++i) call.connection().Took(200);
  now_ += absl::Seconds(3) * kBeats;
  // 60 bytes of frames for each, and as many for pings.
  pair->Deliver((200 + 60 + 30) * kBeats);
  connections_.Audit();
  EXPECT_EQ(HeldBytes(connections_), idle);
}

// An upload that is refused at its header may have sent megabytes by then.
TEST_F(ConnectionsTest, BytesForACallThatBrokeOffAreNotHeld) {
  const auto late = Admit();
  for (int i = 0; i < 5; ++i) {
    connections_.BeginCall(late->peer()).connection().CallBrokeOff();
    late->Deliver(3 * kMiB);
    connections_.Audit();
    EXPECT_TRUE(late->open()) << i;
    now_ += absl::Seconds(1);
  }
  now_ += absl::Minutes(1);
  // The connection may hold no more than any other.
  late->Deliver(6 * kMiB);
  connections_.Audit();
  EXPECT_FALSE(late->open());
}

// Each call that breaks off accounts for its share of the bytes only.
TEST_F(ConnectionsTest, CallsThatBreakOffHideNoMemory) {
  const auto greedy = Admit();
  const CallTicket call = connections_.BeginCall(greedy->peer());
  for (int i = 0; i < 100; ++i) {
    connections_.BeginCall(greedy->peer()).connection().CallBrokeOff();
  }
  greedy->Deliver(18 * kMiB);
  connections_.Audit();
  EXPECT_FALSE(greedy->open());
}

TEST_F(ConnectionsTest, ThePeerThatDeliveredLeastIsCutFirst) {
  const auto first = Admit();
  const auto second = Admit();
  const CallTicket first_call = connections_.BeginCall(first->peer());
  const CallTicket second_call = connections_.BeginCall(second->peer());
  const CallTicket third_call = connections_.BeginCall(second->peer());
  first_call.connection().Took(8 * kMiB);
  first->Deliver(23 * kMiB);
  second->Deliver(10 * kMiB);
  // Together they hold 25 MiB.
  connections_.Audit();
  EXPECT_TRUE(first->open());
  EXPECT_FALSE(second->open());
}

TEST_F(ConnectionsTest, AnEndedConnectionIsCut) {
  const auto pair = Admit();
  const CallTicket call = connections_.BeginCall(pair->peer());
  connections_.Audit();
  EXPECT_TRUE(pair->open());
  call.connection().End();
  connections_.Audit();
  EXPECT_FALSE(pair->open());
}

TEST_F(ConnectionsTest, ACutIsReportedUntilTheFileIsClosed) {
  const auto pair = Admit();
  const CallTicket call = connections_.BeginCall(pair->peer());
  call.connection().End();
  connections_.Audit();
  // As gRPC watches its files.
  epoll_event event = {.events = EPOLLIN | EPOLLET};
  const int watch = epoll_create1(EPOLL_CLOEXEC);
  ASSERT_EQ(epoll_ctl(watch, EPOLL_CTL_ADD, pair->server, &event), 0);
  EXPECT_EQ(epoll_wait(watch, &event, 1, 0), 1);
  EXPECT_EQ(epoll_wait(watch, &event, 1, 0), 0);
  connections_.Audit();
  EXPECT_EQ(epoll_wait(watch, &event, 1, 0), 1);
  close(watch);
}

TEST_F(ConnectionsTest, APeerThatDoesNotReadIsCut) {
  const auto deaf = Admit();
  const CallTicket deaf_call = connections_.BeginCall(deaf->peer());
  deaf_call.connection().SendBegan(100);
  const auto slow = Admit();
  const CallTicket slow_call = connections_.BeginCall(slow->peer());
  for (int i = 0; i < 4; ++i) {
    slow_call.connection().SendBegan(100);
    connections_.Audit();
    EXPECT_EQ(deaf->open(), i < 2) << i;
    now_ += absl::Seconds(20);
    slow_call.connection().SendEnded(100);
  }
  EXPECT_TRUE(slow->open());
}

TEST_F(ConnectionsTest, AMessageThatIsBeingSentIsHeld) {
  const auto pair = Admit();
  const CallTicket call = connections_.BeginCall(pair->peer());
  call.connection().SendBegan(10 * kMiB);
  connections_.Audit();
  EXPECT_FALSE(pair->open());
}

TEST_F(ConnectionsTest, AConnectionUnderTheReachedLimitMakesRoom) {
  const auto other = Admit(2);
  now_ += absl::Seconds(1);
  const auto oldest = Admit();
  now_ += absl::Seconds(1);
  const auto second = Admit();
  const auto third = Admit();
  // One address has reached its limit.
  now_ += absl::Seconds(1);
  const auto fourth = Admit();
  EXPECT_TRUE(other->open());
  EXPECT_FALSE(oldest->open());
  connections_.Audit();
  // All addresses together have reached their limit.
  now_ += absl::Seconds(1);
  const auto fifth = Admit(3);
  EXPECT_FALSE(other->open());
  now_ += absl::Seconds(1);
  const auto sixth = Admit(3);
  EXPECT_FALSE(second->open() && third->open());
  EXPECT_TRUE(fifth->open());
  EXPECT_EQ(connections_.Use().displaced(), 3);
}

TEST_F(ConnectionsTest, AConnectionWithoutACallMakesRoomFirst) {
  const auto called = Admit();
  { const CallTicket over = connections_.BeginCall(called->peer()); }
  now_ += absl::Minutes(2);
  const auto silent = Admit();
  const auto busy = Admit();
  const CallTicket call = connections_.BeginCall(busy->peer());
  const auto fourth = Admit();
  EXPECT_TRUE(called->open());
  EXPECT_FALSE(silent->open());
  const CallTicket other_call = connections_.BeginCall(fourth->peer());
  const auto fifth = Admit();
  EXPECT_FALSE(called->open());
  // No connection gives way during a call, even a long one.
  const CallTicket last_call = connections_.BeginCall(fifth->peer());
  now_ += absl::Minutes(2);
  EXPECT_FALSE(connections_.Admit(Connect()->server));
}

TEST_F(ConnectionsTest, TheMinuteOfDisuseBeginsAtTheEndOfACall) {
  const auto pair = Admit();
  std::vector<std::unique_ptr<Pair>> others;
  std::vector<CallTicket> calls;
  for (int i = 0; i < 2; ++i) {
    others.push_back(Admit());
    calls.push_back(connections_.BeginCall(others.back()->peer()));
  }
  {
    const CallTicket call = connections_.BeginCall(pair->peer());
    now_ += absl::Seconds(50);
    connections_.Audit();
  }
  now_ += absl::Seconds(59);
  EXPECT_FALSE(connections_.Admit(Connect()->server));
  EXPECT_EQ(connections_.Use().open(), 3);
  now_ += absl::Seconds(1);
  Admit();
  EXPECT_FALSE(pair->open());
}

TEST_F(ConnectionsTest, ACutIsCountedOnce) {
  const auto first = Admit();
  const auto second = Admit();
  const CallTicket first_call = connections_.BeginCall(first->peer());
  const CallTicket second_call = connections_.BeginCall(second->peer());
  const CallTicket third_call = connections_.BeginCall(second->peer());
  first_call.connection().Took(8 * kMiB);
  first->Deliver(23 * kMiB);
  second->Deliver(10 * kMiB);
  for (int i = 0; i < 3; ++i) {
    connections_.Audit();
    EXPECT_EQ(connections_.Use().cut(), 1);
  }
}

TEST_F(ConnectionsTest, OnlyConnectionsWithoutACallAreUnused) {
  {
    const auto pair = Admit();
    const CallTicket call = connections_.BeginCall(pair->peer());
  }
  Admit();
  connections_.Audit();
  EXPECT_EQ(connections_.Use().unused(), 1);
}

TEST_F(ConnectionsTest, HeadersAndAnswersAccountForBytes) {
  const auto calling = Admit();
  for (int i = 0; i < 2048; ++i) connections_.BeginCall(calling->peer());
  calling->Deliver(6 * kMiB);
  const auto served = Admit();
  served->Answer(2 * kMiB);
  served->Deliver(8 * kMiB);
  connections_.Audit();
  EXPECT_TRUE(calling->open()) << "a kilobyte for each of its calls";
  EXPECT_TRUE(served->open()) << "twice what it was sent";
}

// A peer may still send to a call that has just broken off.
TEST_F(ConnectionsTest, ACallThatBrokeOffMayHoldMemoryForAWhile) {
  const auto pair = Admit();
  const CallTicket call = connections_.BeginCall(pair->peer());
  connections_.BeginCall(pair->peer()).connection().CallBrokeOff();
  pair->Deliver(12 * kMiB);
  connections_.Audit();
  now_ += absl::Seconds(9);
  connections_.Audit();
  EXPECT_TRUE(pair->open());
  now_ += absl::Seconds(1);
  connections_.Audit();
  EXPECT_FALSE(pair->open());
}

TEST_F(ConnectionsTest, WatchersAreRefusedFirstThenJoinersAndMembersNever) {
  Connections connections({.connections = 100, .per_address = 8},
                          [this] { return now_; });
  std::vector<std::unique_ptr<Pair>> pairs;
  std::vector<CallTicket> calls;
  for (int in_use = 1; in_use <= 8; ++in_use) {
    pairs.push_back(Connect());
    ASSERT_TRUE(connections.Admit(pairs.back()->server));
    calls.push_back(connections.BeginCall(pairs.back()->peer()));
    connections.Audit();
    const Connection& connection = calls.front().connection();
    EXPECT_EQ(connection.CheckLoad(Precedence::kWatcher).ok(), in_use < 6);
    EXPECT_EQ(connection.CheckLoad(Precedence::kJoiner).ok(), in_use < 7);
    EXPECT_TRUE(connection.CheckLoad(Precedence::kMember).ok());
  }
  // The load of one address does not affect another.
  const auto other = Connect(2);
  ASSERT_TRUE(connections.Admit(other->server));
  const CallTicket call = connections.BeginCall(other->peer());
  EXPECT_TRUE(call.connection().CheckLoad(Precedence::kWatcher).ok());
}

TEST_F(ConnectionsTest, MemoryIsLoadToo) {
  const auto pair = Admit();
  const CallTicket call = connections_.BeginCall(pair->peer());
  const CallTicket second = connections_.BeginCall(pair->peer());
  const auto other = Admit(2);
  const CallTicket other_call = connections_.BeginCall(other->peer());
  pair->Deliver(15 * kMiB - (64 << 10));
  connections_.Audit();
  const Connection& connection = other_call.connection();
  EXPECT_TRUE(connection.CheckLoad(Precedence::kWatcher).ok());
  other->Deliver(64 << 10);
  connections_.Audit();
  EXPECT_EQ(connection.CheckLoad(Precedence::kWatcher).code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(connection.CheckLoad(Precedence::kJoiner).ok());
}

TEST_F(ConnectionsTest, APeerWhoseCallsAreRefusedMakesRoomFirst) {
  const auto served = Admit();
  { const CallTicket call = connections_.BeginCall(served->peer()); }
  now_ += absl::Seconds(1);
  const auto refused = Admit();
  connections_.BeginCall(refused->peer()).connection().CallRefused();
  const auto third = Admit();
  const CallTicket call = connections_.BeginCall(third->peer());
  const auto fourth = Admit();
  EXPECT_TRUE(served->open());
  EXPECT_FALSE(refused->open());
}

TEST_F(ConnectionsTest, PeersAreAccountedForAfterTheirEnd) {
  const auto find = [this](const std::string& peer) {
    const v1::ListPeersResponse response = connections_.Peers();
    for (const v1::PeerUse& use : response.peers()) {
      if (use.peer() == peer) return use;
    }
    return v1::PeerUse();
  };
  const auto first = Admit();
  first->Deliver(kMiB);
  first->Answer(2 * kMiB);
  const CallTicket call = connections_.BeginCall(first->peer(), "island a");
  {
    const auto second = Admit();
    second->Deliver(kMiB);
    connections_.BeginCall(second->peer(), "island a")
        .connection()
        .CallRefused();
    connections_.Audit();
  }
  connections_.Audit();
  const v1::PeerUse use = find("island a");
  EXPECT_EQ(use.connections(), 1);
  EXPECT_EQ(use.calls(), 1);
  EXPECT_EQ(use.calls_begun(), 2);
  EXPECT_EQ(use.refused(), 1);
  EXPECT_EQ(use.cut(), 0);
  EXPECT_EQ(use.bytes_received(), 2 * kMiB);
  EXPECT_EQ(use.bytes_sent(), 2 * kMiB);
  EXPECT_GT(use.held_bytes(), kMiB / 2);
  EXPECT_EQ(find("127.0.0.1").connections(), 0);
}

TEST_F(ConnectionsTest, TheOldestGonePeersAreForgotten) {
  for (uint32_t host = 1; host <= Connections::kMostGone + 2; ++host) {
    Admit(host);
    connections_.Audit();
    now_ += absl::Seconds(1);
  }
  const v1::ListPeersResponse response = connections_.Peers();
  std::set<std::string> peers;
  for (const auto& peer : response.peers()) peers.insert(peer.peer());
  EXPECT_EQ(peers.size(), Connections::kMostGone);
  EXPECT_EQ(peers.count("127.0.0.1") + peers.count("127.0.0.2"), 0);
  EXPECT_EQ(peers.count("127.0.0.3"), 1);
}

TEST_F(ConnectionsTest, APeerThatReadsALittleIsNotCut) {
  const auto pair = Admit();
  const CallTicket call = connections_.BeginCall(pair->peer());
  // There was nothing to read for a long time.
  now_ += absl::Minutes(1);
  connections_.Audit();
  call.connection().SendBegan(100);
  for (int i = 0; i < 3; ++i) {
    now_ += absl::Seconds(30);
    connections_.Audit();
    ASSERT_TRUE(pair->open()) << i;
    pair->Answer(64 << 10);
    connections_.Audit();
  }
  // A message that was sent counts, but only once.
  now_ += absl::Seconds(20);
  call.connection().SendEnded(100);
  call.connection().SendBegan(100);
  connections_.Audit();
  now_ += absl::Seconds(30);
  connections_.Audit();
  EXPECT_TRUE(pair->open());
  now_ += absl::Seconds(1);
  connections_.Audit();
  EXPECT_FALSE(pair->open());
}

}  // namespace
}  // namespace causeway
