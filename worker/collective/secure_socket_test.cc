// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Plays strangers to a listener and to its clients.
#include "worker/collective/secure_socket.h"

#include <sys/socket.h>

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/collective/rank_secret.h"
#include "worker/collective/testing/raw_socket.h"

namespace causeway {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr absl::Duration kTime = absl::Seconds(60);

absl::Time InTime() { return SteadyWallClock()() + kTime; }

// Listens, and keeps the admitted connections.
class SecureSocketTest : public testing::Test {
 protected:
  using Socket = std::unique_ptr<SecureSocket>;

  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(listener_,
                         SecureListener::Listen("127.0.0.1:0", key_, [this] {
                           absl::MutexLock lock(&mu_);
                           return SteadyWallClock()() + ahead_;
                         }));
    acceptor_ = std::thread([this] {
      for (;;) {
        auto socket = listener_->Accept(absl::InfiniteFuture());
        if (absl::IsCancelled(socket.status())) return;
        ASSERT_OK(socket);
        absl::MutexLock lock(&mu_);
        accepted_.push_back(*std::move(socket));
      }
    });
  }
  void TearDown() override {
    listener_->Stop();
    acceptor_.join();
  }

  absl::StatusOr<Socket> Connect(const std::string& address,
                                 const std::string& key,
                                 const std::string& name = "3") {
    return SecureSocket::Connect(address, key, name, InTime(),
                                 SteadyWallClock());
  }

  Socket NextAccepted() {
    absl::MutexLock lock(&mu_);
    const auto one = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
      return !accepted_.empty();
    };
    if (!mu_.AwaitWithTimeout(absl::Condition(&one), kTime)) return nullptr;
    Socket socket = std::move(accepted_[0]);
    accepted_.erase(accepted_.begin());
    return socket;
  }

  // Expects that the listener admits a client with the key, and has admitted no
  // other.
  void ExpectOnlyTheRightOneComesIn() {
    ASSERT_OK_AND_ASSIGN(const Socket client,
                         Connect(listener_->address(), key_, "the right one"));
    const Socket server = NextAccepted();
    ASSERT_NE(server, nullptr);
    EXPECT_EQ(server->name(), "the right one");
    ExpectCarries("hello", *client, *server);
  }

  static void ExpectCarries(const std::string& text, SecureSocket& from,
                            SecureSocket& to) {
    const Clock now = SteadyWallClock();
    EXPECT_OK(from.WriteAll(text, InTime(), now));
    std::string got(text.size(), '\0');
    EXPECT_OK(to.ReadAll(absl::MakeSpan(&got[0], got.size()), InTime(), now));
    EXPECT_EQ(got, text);
  }

  const std::string key_ = KeyOfSecret("a secret");
  std::unique_ptr<SecureListener> listener_;
  std::thread acceptor_;
  absl::Mutex mu_;
  // The time by which the listener's clock is ahead.
  absl::Duration ahead_ ABSL_GUARDED_BY(mu_);
  std::vector<Socket> accepted_ ABSL_GUARDED_BY(mu_);
};

TEST_F(SecureSocketTest, APeerWithTheKeyConnects) {
  for (const bool encrypt : {true, false}) {
    ASSERT_OK_AND_ASSIGN(const Socket client,
                         Connect(listener_->address(), key_));
    const Socket server = NextAccepted();
    ASSERT_NE(server, nullptr);
    EXPECT_EQ(server->name(), "3");
    if (!encrypt) {
      client->StopEncrypting();
      server->StopEncrypting();
    }
    ExpectCarries("to the server", *client, *server);
    ExpectCarries("and back", *server, *client);
    char byte = 0;
    EXPECT_THAT(client->Read(absl::MakeSpan(&byte, 1)), IsOkAndHolds(0));
    server->Shutdown();
    EXPECT_THAT(
        client->ReadAll(absl::MakeSpan(&byte, 1), InTime(), SteadyWallClock()),
        IsUnavailable());
  }
}

TEST_F(SecureSocketTest, AnotherKeyIsRefused) {
  for (const std::string& key :
       {KeyOfSecret(""), KeyOfSecret("another"), RandomKey()}) {
    EXPECT_THAT(Connect(listener_->address(), key),
                IsPermissionDenied("a different secret"));
  }
  ExpectOnlyTheRightOneComesIn();
}

TEST_F(SecureSocketTest, AStrangerIsClosed) {
  for (const std::string& bytes :
       {std::string("GET / HTTP/1.1\r\n\r\n"), std::string(100'000, '\xff'),
        std::string(100, '\0'), std::string("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
        // A message of the handshake that announces 16 MB.
        std::string("\x16\x03\x01\x40\x00\x01\xff\xff\xff", 9) +
            std::string(100'000, 'x')}) {
    RawSocket stranger(listener_->address());
    stranger.Send(bytes);
    EXPECT_LT(stranger.ReadToEnd().size(), 100);
  }
  ExpectOnlyTheRightOneComesIn();
}

TEST_F(SecureSocketTest, TlsWithoutAKeyIsClosed) {
  const std::unique_ptr<SSL_CTX, void (*)(SSL_CTX*)> context(
      SSL_CTX_new(TLS_client_method()), SSL_CTX_free);
  RawSocket stranger(listener_->address());
  const std::unique_ptr<SSL, void (*)(SSL*)> ssl(SSL_new(context.get()),
                                                 SSL_free);
  SSL_set_fd(ssl.get(), stranger.descriptor());
  EXPECT_NE(SSL_connect(ssl.get()), 1);
  ExpectOnlyTheRightOneComesIn();
}

TEST_F(SecureSocketTest, SilentPeersKeepNoOtherOut) {
  std::vector<std::unique_ptr<RawSocket>> silent;
  for (int i = 0; i < 200; ++i) {
    silent.push_back(std::make_unique<RawSocket>(listener_->address()));
  }
  ExpectOnlyTheRightOneComesIn();
  // The oldest had to go.
  EXPECT_EQ(silent[0]->ReadToEnd(), "");
}

TEST_F(SecureSocketTest, ASilentPeerIsClosedInTheEnd) {
  RawSocket silent(listener_->address());
  ExpectOnlyTheRightOneComesIn();
  {
    absl::MutexLock lock(&mu_);
    ahead_ = absl::Seconds(11);
  }
  // The listener waits by this machine's clock; a connection wakes it.
  ExpectOnlyTheRightOneComesIn();
  EXPECT_EQ(silent.ReadToEnd(), "");
}

TEST_F(SecureSocketTest, ARecordedHandshakeIsOfNoUse) {
  Recorder recorder(listener_->address());
  ASSERT_OK_AND_ASSIGN(Socket client, Connect(recorder.address(), key_));
  Socket server = NextAccepted();
  ASSERT_NE(server, nullptr);
  ExpectCarries("gradients", *client, *server);
  client.reset();
  server.reset();
  recorder.Finish();

  // Sends all of it, half of it, and one byte at a time, as far as the listener
  // reads.
  RawSocket whole(listener_->address());
  whole.Send(recorder.sent());
  shutdown(whole.descriptor(), SHUT_WR);
  const std::string answer = whole.ReadToEnd();
  EXPECT_NE(answer, recorder.received());
  RawSocket half(listener_->address());
  half.Send(recorder.sent().substr(0, recorder.sent().size() / 2));
  RawSocket slow(listener_->address());
  for (const char byte : recorder.sent()) {
    if (!slow.Send(std::string(1, byte))) break;
  }
  ExpectOnlyTheRightOneComesIn();

  // A stranger cannot play the server either.
  RawListener impostor;
  std::thread playing([&] {
    const auto connection = impostor.Accept();
    connection->Send(recorder.received());
    connection->ReadToEnd();
  });
  EXPECT_THAT(Connect(impostor.address(), key_), IsPermissionDenied());
  playing.join();
}

TEST_F(SecureSocketTest, NeitherKeyNorMessageIsOnTheWire) {
  for (const bool encrypt : {true, false}) {
    Recorder recorder(listener_->address());
    ASSERT_OK_AND_ASSIGN(Socket client, Connect(recorder.address(), key_));
    Socket server = NextAccepted();
    ASSERT_NE(server, nullptr);
    if (!encrypt) {
      client->StopEncrypting();
      server->StopEncrypting();
    }
    ExpectCarries("gradients", *client, *server);
    client.reset();
    server.reset();
    recorder.Finish();
    EXPECT_THAT(recorder.sent(), Not(HasSubstr(key_)));
    if (encrypt) {
      EXPECT_THAT(recorder.sent(), Not(HasSubstr("gradients")));
    } else {
      EXPECT_THAT(recorder.sent(), HasSubstr("gradients"));
    }
  }
}

// The keys of the encryption change on the way.
TEST_F(SecureSocketTest, ManyBytesGoThrough) {
  ASSERT_OK_AND_ASSIGN(const Socket client,
                       Connect(listener_->address(), key_));
  const Socket server = NextAccepted();
  ASSERT_NE(server, nullptr);
  const std::string block(8 << 20, 'x');
  constexpr int kBlocks = 70;
  std::thread writer([&] {
    for (int i = 0; i < kBlocks; ++i) {
      ASSERT_OK(client->WriteAll(block, InTime(), SteadyWallClock()));
    }
  });
  std::string got(block.size(), '\0');
  for (int i = 0; i < kBlocks; ++i) {
    ASSERT_OK(server->ReadAll(absl::MakeSpan(&got[0], got.size()), InTime(),
                              SteadyWallClock()));
    ASSERT_EQ(got, block);
  }
  writer.join();
}

TEST(SecureSocketAddressTest, NobodyListens) {
  std::string address;
  {
    const RawListener gone;
    address = gone.address();
  }
  const Clock now = SteadyWallClock();
  EXPECT_THAT(
      SecureSocket::ConnectOnce(address, RandomKey(), "1", InTime(), now),
      IsUnavailable(address));
  EXPECT_THAT(SecureSocket::Connect(address, RandomKey(), "1",
                                    now() + absl::Milliseconds(300), now),
              IsUnavailable(address));
}

TEST(SecureSocketAddressTest, SomebodyListensAndIsSilent) {
  const RawListener silent;
  const Clock now = SteadyWallClock();
  EXPECT_THAT(SecureSocket::Connect(silent.address(), RandomKey(), "1",
                                    now() + absl::Milliseconds(300), now),
              IsDeadlineExceeded());
}

TEST(SecureSocketAddressTest, AddressesAreChecked) {
  const Clock now = SteadyWallClock();
  for (const char* const address :
       {"", "host", ":7100", "host:", "host:x", "host:-1", "host:65536"}) {
    EXPECT_THAT(SecureListener::Listen(address, RandomKey(), now),
                IsInvalidArgument(absl::StrCat("\"", address, "\"")));
    EXPECT_THAT(SecureSocket::Connect(address, RandomKey(), "1", InTime(), now),
                IsInvalidArgument());
  }
  ASSERT_OK_AND_ASSIGN(const auto first,
                       SecureListener::Listen("[::1]:0", RandomKey(), now));
  EXPECT_THAT(first->address(), testing::StartsWith("[::1]:"));
  EXPECT_THAT(SecureListener::Listen(first->address(), RandomKey(), now),
              IsUnavailable());
}

}  // namespace
}  // namespace causeway
