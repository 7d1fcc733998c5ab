// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/collective/rendezvous.h"

#include <memory>
#include <string>
#include <thread>

#include "absl/time/time.h"
#include "common/clock.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/collective/rank_secret.h"
#include "worker/collective/secure_socket.h"
#include "worker/collective/tcp_rendezvous.h"
#include "worker/collective/testing/raw_socket.h"

namespace causeway {
namespace {

using testing::ElementsAre;
using testing::Field;
using testing::Not;
using testing::Pair;

RendezvousOptions At(const std::string& address) {
  return {.address = address, .secret = "secret", .now = SteadyWallClock()};
}

// Tests a table from the process that keeps it and from one that calls it.
class RendezvousTest : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(server_, RendezvousServer::Start(At("127.0.0.1:0")));
    ASSERT_OK_AND_ASSIGN(
        client_, ConnectRendezvous(At(server_->address()), absl::Seconds(30)));
    here_ = GetParam() ? client_.get() : server_->table();
    there_ = GetParam() ? server_->table() : client_.get();
  }

  std::unique_ptr<RendezvousServer> server_;
  std::unique_ptr<Rendezvous> client_;
  Rendezvous* here_ = nullptr;
  Rendezvous* there_ = nullptr;
};

TEST_P(RendezvousTest, WhatIsPutHereIsReadEverywhere) {
  const std::string value("\0\xff bytes", 8);
  ASSERT_OK(here_->Put("key", value));
  EXPECT_THAT(here_->Get("key", absl::Seconds(10)), IsOkAndHolds(value));
  EXPECT_THAT(there_->Get("key", absl::Seconds(10)), IsOkAndHolds(value));
}

TEST_P(RendezvousTest, AValueMayHaveTheNamesOfManyTensors) {
  const std::string value(8 << 20, 'x');
  ASSERT_OK(server_->table()->Put("key", value));
  EXPECT_THAT(here_->Get("key", absl::Seconds(10)), IsOkAndHolds(value));
}

TEST_P(RendezvousTest, AKeyIsWrittenOnce) {
  ASSERT_OK(there_->Put("key", "first"));
  EXPECT_THAT(here_->Put("key", "second"), IsAlreadyExists("key"));
  EXPECT_THAT(here_->Get("key", absl::Seconds(10)), IsOkAndHolds("first"));
}

TEST_P(RendezvousTest, GetWaitsForTheKey) {
  std::thread writer([this] {
    EXPECT_OK(there_->Put("other", "no"));
    EXPECT_OK(there_->Put("key", "value"));
  });
  EXPECT_THAT(here_->Get("key", absl::Seconds(10)), IsOkAndHolds("value"));
  writer.join();
}

TEST_P(RendezvousTest, GetNeedNotWait) {
  EXPECT_THAT(here_->Get("key", absl::ZeroDuration()), IsDeadlineExceeded());
  ASSERT_OK(there_->Put("key", "value"));
  EXPECT_THAT(here_->Get("key", absl::ZeroDuration()), IsOkAndHolds("value"));
}

TEST_P(RendezvousTest, GetGivesUpAndAnotherGetStillSucceeds) {
  EXPECT_THAT(here_->Get("key", absl::Milliseconds(50)), IsDeadlineExceeded());
  ASSERT_OK(there_->Put("key", "value"));
  EXPECT_THAT(here_->Get("key", absl::Seconds(10)), IsOkAndHolds("value"));
}

// A get that is under way ends with the table, long before its time.
TEST(LocalRendezvousTest, ACloseEndsAGet) {
  LocalRendezvous table;
  std::thread closer([&] { table.Close(); });
  EXPECT_THAT(table.Get("key", absl::Hours(1)).status(),
              Not(IsDeadlineExceeded()));
  closer.join();
}

INSTANTIATE_TEST_SUITE_P(, RendezvousTest, testing::Bool(),
                         [](const auto& info) {
                           return info.param ? "FromTheClient"
                                             : "FromTheServer";
                         });

TEST(TcpRendezvousTest, AClientWaitsForAServerThatStartsLater) {
  // No other test listens on this address, so the port stays free in between.
  ASSERT_OK_AND_ASSIGN(auto first, RendezvousServer::Start(At("127.9.0.1:0")));
  const std::string address = first->address();
  EXPECT_THAT(RendezvousServer::Start(At(address)), IsUnavailable(address));
  first.reset();
  EXPECT_THAT(ConnectRendezvous(At(address), absl::Seconds(1)),
              IsUnavailable(address));
  std::unique_ptr<Rendezvous> client;
  std::thread connecting([&] {
    auto connected = ConnectRendezvous(At(address), absl::Seconds(30));
    ASSERT_OK(connected);
    client = *std::move(connected);
  });
  ASSERT_OK_AND_ASSIGN(auto second, RendezvousServer::Start(At(address)));
  connecting.join();
  ASSERT_OK(second->table()->Put("key", "value"));
  EXPECT_THAT(client->Get("key", absl::Seconds(30)), IsOkAndHolds("value"));
}

TEST(TcpRendezvousTest, TheServerCountsWhatOthersAskFor) {
  ASSERT_OK_AND_ASSIGN(auto server, RendezvousServer::Start(At("127.0.0.1:0")));
  ASSERT_OK_AND_ASSIGN(
      auto client, ConnectRendezvous(At(server->address()), absl::Seconds(30)));
  ASSERT_OK(client->Put("b/1", "value"));
  for (const char* const key : {"b/1", "b/2", "b/1", "a", "c"}) {
    client->Get(key, absl::Milliseconds(500)).IgnoreError();
  }
  server->table()->Get("b/3", absl::ZeroDuration()).IgnoreError();
  EXPECT_THAT(server->Asked("b/"),
              ElementsAre(Pair("b/1", Field(&Questions::count, 2)),
                          Pair("b/2", Field(&Questions::count, 1))));
}

TEST(TcpRendezvousTest, AServerThatIsGoneIsUnavailable) {
  ASSERT_OK_AND_ASSIGN(auto server, RendezvousServer::Start(At("127.0.0.1:0")));
  ASSERT_OK_AND_ASSIGN(
      auto client, ConnectRendezvous(At(server->address()), absl::Seconds(30)));
  server.reset();
  EXPECT_THAT(client->Put("key", "value"), IsUnavailable());
  EXPECT_THAT(client->Get("key", absl::Seconds(30)), IsUnavailable());
}

TEST(TcpRendezvousTest, ACallerWithoutTheSecretCanDoNothing) {
  ASSERT_OK_AND_ASSIGN(auto server, RendezvousServer::Start(At("127.0.0.1:0")));
  const RendezvousOptions right = At(server->address());
  for (const char* const secret : {"", "another"}) {
    RendezvousOptions wrong = right;
    wrong.secret = secret;
    EXPECT_THAT(ConnectRendezvous(wrong, absl::Seconds(30)),
                IsPermissionDenied(server->address(), "a different secret"));
  }
  RawSocket(server->address()).Send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
  ASSERT_OK_AND_ASSIGN(auto client,
                       ConnectRendezvous(right, absl::Seconds(30)));
  ASSERT_OK(client->Put("key", "value"));
}

TEST(TcpRendezvousTest, ADamagedRequestIsRefused) {
  ASSERT_OK_AND_ASSIGN(auto server, RendezvousServer::Start(At("127.0.0.1:0")));
  const Clock now = SteadyWallClock();
  const absl::Time deadline = now() + absl::Seconds(30);
  // A length of 4 GB, and bytes that are not a message.
  for (const absl::string_view bytes : {absl::string_view("\xff\xff\xff\xff"),
                                        absl::string_view("\1\0\0\0\xff", 5)}) {
    ASSERT_OK_AND_ASSIGN(
        auto socket,
        SecureSocket::Connect(server->address(), KeyOfSecret("secret"), "rank",
                              deadline, now));
    ASSERT_OK(socket->WriteAll(bytes, deadline, now));
    char byte = 0;
    EXPECT_FALSE(socket->ReadAll(absl::MakeSpan(&byte, 1), deadline, now).ok());
  }
  ASSERT_OK_AND_ASSIGN(
      auto client, ConnectRendezvous(At(server->address()), absl::Seconds(30)));
  ASSERT_OK(client->Put("key", "value"));
}

TEST(TcpRendezvousTest, TheEndOfTheServerEndsAGet) {
  ASSERT_OK_AND_ASSIGN(auto server, RendezvousServer::Start(At("127.0.0.1:0")));
  ASSERT_OK_AND_ASSIGN(
      auto client, ConnectRendezvous(At(server->address()), absl::Seconds(30)));
  std::thread waiting([&] {
    EXPECT_THAT(client->Get("key", absl::Hours(1)), IsUnavailable());
  });
  server.reset();
  waiting.join();
}

}  // namespace
}  // namespace causeway
