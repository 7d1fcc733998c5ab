// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Tests how ranks connect while strangers interfere. communicator_test.cc tests
// the messages.
#include "worker/collective/tcp_transport.h"

#include <sys/resource.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/testing/status_matchers.h"
#include "glog/logging.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/island.pb.h"
#include "worker/collective/culprit.h"
#include "worker/collective/rank_secret.h"
#include "worker/collective/rendezvous.h"
#include "worker/collective/secure_socket.h"
#include "worker/collective/tcp_rendezvous.h"
#include "worker/collective/testing/raw_socket.h"
#include "worker/collective/time_limit.h"
#include "worker/collective/transport.h"

namespace causeway {
namespace {

// Lets this process open only so many more files, until it raises the limit, or
// until this object is destroyed.
class FewFiles {
 public:
  explicit FewFiles(int files) {
    PCHECK(getrlimit(RLIMIT_NOFILE, &usual_) == 0);
    const int next = dup(STDERR_FILENO);
    PCHECK(next >= 0 && close(next) == 0);
    rlimit few = usual_;
    few.rlim_cur = static_cast<rlim_t>(next + files);
    PCHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
  }
  ~FewFiles() { PCHECK(setrlimit(RLIMIT_NOFILE, &usual_) == 0); }

 private:
  rlimit usual_ = {};
};

class TcpTransportTest : public testing::Test {
 protected:
  using Connected = absl::StatusOr<std::unique_ptr<Transport>>;

  Connected Connect(int rank, int size,
                    absl::Duration timeout = absl::Seconds(60)) {
    return ConnectTcp({.rank = rank,
                       .size = size,
                       .name = "test",
                       .host = "127.0.0.1",
                       .connect_timeout = timeout,
                       .now = now_},
                      &rendezvous_);
  }

  // Returns the address at which a rank listens.
  v1::RankAddress AddressOf(int rank) {
    const auto text =
        rendezvous_.Get(absl::StrCat("tcp/test/", rank), absl::Seconds(60));
    EXPECT_OK(text);
    v1::RankAddress address;
    EXPECT_TRUE(address.ParseFromString(*text));
    return address;
  }

  const Clock now_ = SteadyWallClock();
  LocalRendezvous rendezvous_;
};

TEST_F(TcpTransportTest, StrangersTakeNoRanksPlace) {
  Connected rank0 = absl::UnknownError("");
  std::thread connecting([&] { rank0 = Connect(0, 2); });
  const v1::RankAddress address = AddressOf(0);
  RawSocket silent(address.address());
  RawSocket scanner(address.address());
  scanner.Send("GET / HTTP/1.1\r\n\r\n");
  EXPECT_THAT(SecureSocket::Connect(address.address(), KeyOfSecret("another"),
                                    "1", now_() + absl::Seconds(60), now_),
              IsPermissionDenied());
  const Connected rank1 = Connect(1, 2);
  connecting.join();
  ASSERT_OK(rank0);
  ASSERT_OK(rank1);
  char got = 0;
  const auto received = (*rank1)->Receive(0, 1, absl::MakeSpan(&got, 1));
  const auto sent = (*rank0)->Send(1, 1, absl::MakeSpan("!", 1));
  TimeLimit limit(absl::Seconds(60), &now_);
  EXPECT_OK(received->Wait(limit));
  EXPECT_EQ(got, '!');
  // Once all are there, no rank listens any more.
  EXPECT_THAT(SecureSocket::ConnectOnce(address.address(), address.key(), "1",
                                        now_() + absl::Seconds(60), now_),
              IsUnavailable());
}

TEST_F(TcpTransportTest, MessagesAreEncryptedOnRequest) {
  for (const bool encrypt : {true, false}) {
    // Rank 1 finds the recorder in place of rank 0.
    LocalRendezvous tables[2];
    Connected ranks[2] = {absl::UnknownError(""), absl::UnknownError("")};
    const auto connect = [&](int rank) {
      ranks[rank] = ConnectTcp({.rank = rank,
                                .size = 2,
                                .host = "127.0.0.1",
                                .encrypt = encrypt,
                                .now = now_},
                               &tables[rank]);
    };
    std::thread connecting([&] { connect(0); });
    const auto text = tables[0].Get("tcp//0", absl::Seconds(60));
    ASSERT_OK(text);
    v1::RankAddress address;
    ASSERT_TRUE(address.ParseFromString(*text));
    Recorder recorder(address.address());
    address.set_address(recorder.address());
    ASSERT_OK(tables[1].Put("tcp//0", address.SerializeAsString()));
    connect(1);
    connecting.join();
    ASSERT_OK(ranks[0]);
    ASSERT_OK(ranks[1]);
    std::string got(9, '\0');
    const auto received =
        (*ranks[1])->Receive(0, 1, absl::MakeSpan(&got[0], got.size()));
    const auto sent = (*ranks[0])->Send(1, 1, absl::string_view("gradients"));
    TimeLimit limit(absl::Seconds(60), &now_);
    EXPECT_OK(received->Wait(limit));
    EXPECT_OK(sent->Wait(limit));
    EXPECT_EQ(got, "gradients");
    (*ranks[0])->Close();
    (*ranks[1])->Close();
    recorder.Finish();
    EXPECT_EQ(absl::StrContains(recorder.received(), "gradients"), !encrypt);
  }
}

TEST_F(TcpTransportTest, RanksThatDoNotComeAreNamed) {
  const Connected rank = Connect(0, 3, absl::Milliseconds(100));
  EXPECT_THAT(rank, IsDeadlineExceeded("rank 0 of 3", "did not connect: 1, 2"));
}

TEST_F(TcpTransportTest, RanksMayNeedMoreFilesThanTheUsualLimit) {
  // They listen with 12 of them, and need 30 to be connected.
  constexpr int kRanks = 6;
  const FewFiles few(24);
  std::vector<Connected> ranks(kRanks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] { ranks[rank] = Connect(rank, kRanks); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Connected& rank : ranks) EXPECT_OK(rank);
}

TEST_F(TcpTransportTest, ARankThatMayOpenNoFilesBlamesNoOther) {
  ASSERT_OK_AND_ASSIGN(
      const auto server,
      RendezvousServer::Start({.address = "127.0.0.1:0", .now = now_}));
  RendezvousOptions options = {.now = now_};
  const FewFiles none(0);
  const auto lacks_files = IsResourceExhausted("ulimit -n");
  for (const std::string& address :
       {server->address(), std::string("localhost:7070")}) {
    options.address = address;
    EXPECT_THAT(ConnectRendezvous(options, absl::Seconds(60)), lacks_files);
    EXPECT_THAT(CheckWhileConnecting(RendezvousAt(options).get()), lacks_files);
  }
  EXPECT_THAT(Connect(0, 2), lacks_files);
}

TEST_F(TcpTransportTest, EveryRankThatWaitsHearsOfABrokenLink) {
  // Rank 0 has ended because it cannot connect.
  v1::RankAddress address;
  address.set_key(RandomKey());
  {
    ASSERT_OK_AND_ASSIGN(
        const auto listener,
        SecureListener::Listen("127.0.0.1:0", address.key(), now_));
    address.set_address(listener->address());
  }
  ASSERT_OK(rendezvous_.Put("tcp/test/0", address.SerializeAsString()));
  ReportBrokenLink(2, 0, "no answer", &rendezvous_).IgnoreError();
  const auto is_told = [&](const Connected& rank) {
    return RankTroubleOf(rank.status()).has_value();
  };
  EXPECT_TRUE(is_told(Connect(1, 2)));
  // Others wait for an address, or for another rank.
  for (const int rank : {1, 0}) {
    EXPECT_TRUE(is_told(ConnectTcp({.rank = rank,
                                    .size = 2,
                                    .name = "other",
                                    .host = "127.0.0.1",
                                    .now = now_},
                                   &rendezvous_)));
  }
}

TEST_F(TcpTransportTest, ARankInAHandshakeHearsOfADeadRank) {
  // Rank 0 listens, but does not accept connections yet.
  v1::RankAddress address;
  address.set_key(RandomKey());
  ASSERT_OK_AND_ASSIGN(
      const auto listener,
      SecureListener::Listen("127.0.0.1:0", address.key(), now_));
  address.set_address(listener->address());
  ASSERT_OK(rendezvous_.Put("tcp/test/0", address.SerializeAsString()));
  Connected rank1 = absl::UnknownError("");
  std::thread connecting([&] { rank1 = Connect(1, 3); });
  AddressOf(1);
  ReportDeadRank(2, "killed", &rendezvous_);
  connecting.join();
  EXPECT_THAT(rank1, IsUnavailable("rank 2 is dead: killed"));
}

TEST_F(TcpTransportTest, ARankThatWaitsForAnotherHearsThatRank0HasEnded) {
  // Rank 1 waits for rank 2, or for rank 0, which does not listen any more.
  for (const bool is_connected : {true, false}) {
    ASSERT_OK_AND_ASSIGN(
        auto server,
        RendezvousServer::Start({.address = "127.0.0.1:0", .now = now_}));
    const auto table =
        RendezvousAt({.address = server->address(), .now = now_});
    v1::RankAddress address;
    address.set_key(RandomKey());
    ASSERT_OK_AND_ASSIGN(
        auto listener,
        SecureListener::Listen("127.0.0.1:0", address.key(), now_));
    address.set_address(listener->address());
    ASSERT_OK(server->table()->Put("tcp/test/0", address.SerializeAsString()));
    if (!is_connected) listener = nullptr;
    Connected rank1 = absl::UnknownError("");
    std::thread connecting([&] {
      rank1 = ConnectTcp({.rank = 1,
                          .size = 3,
                          .name = "test",
                          .host = "127.0.0.1",
                          .now = now_},
                         table.get());
    });
    std::unique_ptr<SecureSocket> socket;
    if (is_connected) {
      auto accepted = listener->Accept(now_() + absl::Seconds(60));
      EXPECT_OK(accepted);
      if (accepted.ok()) socket = *std::move(accepted);
    } else {
      // It asks for that once it has been refused.
      while (server->Asked("unconnected").empty()) {
        absl::SleepFor(absl::Milliseconds(1));
      }
    }
    server = nullptr;
    connecting.join();
    EXPECT_THAT(rank1, IsUnavailable("rank 0 is dead: "));
    EXPECT_TRUE(IsWithoutRank0(rank1.status()));
  }
}

TEST_F(TcpTransportTest, ARankWithAnImpossibleNumberIsAnError) {
  for (const char* const name : {"0", "2", "-1", "one"}) {
    LocalRendezvous table;
    Connected rank0 = absl::UnknownError("");
    std::thread connecting([&] {
      rank0 = ConnectTcp(
          {.rank = 0, .size = 2, .host = "127.0.0.1", .now = now_}, &table);
    });
    const auto text = table.Get("tcp//0", absl::Seconds(60));
    ASSERT_OK(text);
    v1::RankAddress address;
    ASSERT_TRUE(address.ParseFromString(*text));
    const auto socket =
        SecureSocket::Connect(address.address(), address.key(), name,
                              now_() + absl::Seconds(60), now_);
    connecting.join();
    EXPECT_THAT(rank0, IsInternal(name));
  }
}

TEST_F(TcpTransportTest, ADamagedAddressIsAnError) {
  ASSERT_OK(rendezvous_.Put("tcp/test/0", "nonsense"));
  EXPECT_THAT(Connect(1, 2), IsDataLoss());
}

}  // namespace
}  // namespace causeway
