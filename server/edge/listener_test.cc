// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/edge/listener.h"

#include <netdb.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/blocking_counter.h"
#include "absl/synchronization/notification.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

// Returns whether connecting to `host` succeeds.
bool CanConnect(const char* host, int port) {
  const addrinfo hints = {.ai_flags = AI_NUMERICHOST,
                          .ai_family = AF_UNSPEC,
                          .ai_socktype = SOCK_STREAM};
  addrinfo* found = nullptr;
  if (getaddrinfo(host, absl::StrCat(port).c_str(), &hints, &found) != 0) {
    return false;
  }
  const int file = socket(found->ai_family, SOCK_STREAM, 0);
  const bool connected = connect(file, found->ai_addr, found->ai_addrlen) == 0;
  close(file);
  freeaddrinfo(found);
  return connected;
}

bool HasIpv6() {
  const int file = socket(AF_INET6, SOCK_STREAM, 0);
  close(file);
  return file >= 0;
}

TEST(ListenerTest, HandsOverAdmittedConnections) {
  Connections connections({.connections = 4, .per_address = 4},
                          [] { return absl::UnixEpoch(); });
  ASSERT_OK_AND_ASSIGN(const auto listener, Listener::Listen("127.0.0.1:0"));
  absl::Notification taken;
  listener->Start(&connections, [&](int file) {
    EXPECT_EQ(connections.Use().open(), 1);
    close(file);
    taken.Notify();
  });
  ASSERT_TRUE(CanConnect("127.0.0.1", listener->port()));
  EXPECT_TRUE(taken.WaitForNotificationWithTimeout(absl::Seconds(60)));
}

TEST(ListenerTest, AuditsAndAdmitsWhileAConnectionIsHandedOver) {
  absl::Notification audited;
  std::atomic<bool> is_handing = false;
  Connections connections({.connections = 4, .per_address = 4}, [&] {
    if (is_handing && !audited.HasBeenNotified()) audited.Notify();
    return absl::UnixEpoch();
  });
  ASSERT_OK_AND_ASSIGN(const auto listener, Listener::Listen("127.0.0.1:0"));
  absl::BlockingCounter taken(2);
  listener->Start(&connections, [&](int file) {
    is_handing = true;
    EXPECT_TRUE(audited.WaitForNotificationWithTimeout(absl::Seconds(60)));
    close(file);
    taken.DecrementCount();
  });
  EXPECT_TRUE(CanConnect("127.0.0.1", listener->port()));
  EXPECT_TRUE(CanConnect("127.0.0.1", listener->port()));
  taken.Wait();
}

TEST(ListenerTest, ListensOnBothFamiliesOnOnePort) {
  for (const char* const address : {"0.0.0.0:0", "[::]:0"}) {
    ASSERT_OK_AND_ASSIGN(const auto listener, Listener::Listen(address));
    EXPECT_TRUE(CanConnect("127.0.0.1", listener->port()));
    EXPECT_EQ(CanConnect("::1", listener->port()), HasIpv6());
  }
}

TEST(ListenerTest, ListensOnlyOnItsAddress) {
  ASSERT_OK_AND_ASSIGN(const auto listener, Listener::Listen("127.0.0.1:0"));
  EXPECT_TRUE(CanConnect("127.0.0.1", listener->port()));
  EXPECT_FALSE(CanConnect("127.0.0.2", listener->port()));
}

TEST(ListenerTest, APortIsForOneListener) {
  ASSERT_OK_AND_ASSIGN(const auto listener, Listener::Listen("127.0.0.1:0"));
  EXPECT_THAT(Listener::Listen(absl::StrCat("127.0.0.1:", listener->port())),
              IsUnavailable("in use"));
  EXPECT_THAT(Listener::Listen(absl::StrCat("0.0.0.0:", listener->port())),
              IsUnavailable("in use"));
}

TEST(ListenerTest, SaysWhatIsWrongWithAnAddress) {
  for (const char* const address : {"", "7070", ":7070", "127.0.0.1:port"}) {
    EXPECT_THAT(Listener::Listen(address), IsInvalidArgument()) << address;
  }
  EXPECT_THAT(Listener::Listen("192.0.2.1:0"), IsUnavailable());
}

TEST(ListenerTest, TakesNoMoreConnectionsThanThereAreDescriptors) {
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  ConnectionLimits few{.connections = 10};
  ReserveDescriptors(few);
  EXPECT_EQ(few.connections, 10);
  ConnectionLimits many{.connections = 2'000'000'000};
  ReserveDescriptors(many);
  rlimit after = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &after), 0);
  EXPECT_EQ(after.rlim_cur, before.rlim_max) << "raised as far as it goes";
  EXPECT_LT(many.connections, after.rlim_cur);
  EXPECT_GE(many.connections, after.rlim_cur / 2);
}

}  // namespace
}  // namespace causeway
