// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/os/service_manager.h"

#include <stdlib.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/testing/notify_socket.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temporary_directory.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

class ServiceManagerTest : public testing::Test {
 protected:
  ~ServiceManagerTest() override {
    unsetenv("WATCHDOG_USEC");
    unsetenv("WATCHDOG_PID");
  }

  // Expects that nothing more has been sent.
  static void ExpectSilence(const NotifySocket& socket) {
    EXPECT_EQ(socket.Receive(absl::Microseconds(1)), "");
  }

  absl::Time now_ = absl::FromUnixSeconds(1'000'000);
  const Clock clock_ = [this] { return now_; };
};

TEST_F(ServiceManagerTest, MessagesReachASocketWithAPath) {
  ASSERT_OK_AND_ASSIGN(const TemporaryDirectory directory,
                       TemporaryDirectory::Make("notify"));
  const NotifySocket socket(absl::StrCat(directory.path(), "/notify"));
  ServiceManager manager(clock_);
  manager.SetStatus("two\nlines");
  manager.Ready();
  manager.SetStatus("two\nlines");
  manager.SetStatus("");
  manager.Stopping();
  EXPECT_EQ(socket.Receive(), "STATUS=two lines");
  EXPECT_EQ(socket.Receive(), "READY=1");
  EXPECT_EQ(socket.Receive(), "STATUS=");
  EXPECT_EQ(socket.Receive(), "STOPPING=1");
}

TEST_F(ServiceManagerTest, MessagesReachASocketInTheAbstractNamespace) {
  const NotifySocket socket(absl::StrCat("@causeway-test-", getpid()));
  ServiceManager manager(clock_);
  manager.Ready();
  EXPECT_EQ(socket.Receive(), "READY=1");
}

TEST_F(ServiceManagerTest, FeedsTheWatchdogAsOftenAsItNeeds) {
  const NotifySocket socket(absl::StrCat("@causeway-test-", getpid()));
  setenv("WATCHDOG_USEC", "8000000", 1);
  setenv("WATCHDOG_PID", absl::StrCat(getpid()).c_str(), 1);
  ServiceManager manager(clock_);
  manager.Alive();
  EXPECT_EQ(socket.Receive(), "WATCHDOG=1");
  now_ += absl::Milliseconds(1999);
  manager.Alive();
  ExpectSilence(socket);
  now_ += absl::Milliseconds(1);
  manager.Alive();
  EXPECT_EQ(socket.Receive(), "WATCHDOG=1");
}

TEST_F(ServiceManagerTest, ABusyPhaseShowsLifeByItself) {
  const NotifySocket socket(absl::StrCat("@causeway-test-", getpid()));
  setenv("WATCHDOG_USEC", "40000", 1);
  ServiceManager manager(SteadyWallClock());
  const ServiceManager::Phase start(&manager, /*is_busy=*/true);
  manager.Ready();
  EXPECT_EQ(socket.Receive(), "READY=1");
  for (int i = 0; i < 3; ++i) EXPECT_EQ(socket.Receive(), "WATCHDOG=1");
  {
    const ServiceManager::Phase serving(&manager, /*is_busy=*/false);
    // A fed watchdog would keep this going for ever.
    while (!socket.Receive(absl::Milliseconds(200)).empty()) {
    }
    manager.Alive();
    EXPECT_EQ(socket.Receive(), "WATCHDOG=1");
  }
  for (int i = 0; i < 3; ++i) EXPECT_EQ(socket.Receive(), "WATCHDOG=1");
}

TEST_F(ServiceManagerTest, LeavesTheWatchdogsOfOthersAlone) {
  const NotifySocket socket(absl::StrCat("@causeway-test-", getpid()));
  ServiceManager(clock_).Alive();
  setenv("WATCHDOG_USEC", "1000", 1);
  setenv("WATCHDOG_PID", absl::StrCat(getpid() + 1).c_str(), 1);
  ServiceManager(clock_).Alive();
  ExpectSilence(socket);
}

TEST_F(ServiceManagerTest, WithoutASocketNothingHappens) {
  for (const std::string& address :
       std::vector<std::string>{"", "relative", "vsock:2:1", "/nowhere/notify",
                                absl::StrCat("/", std::string(200, 'x'))}) {
    setenv("NOTIFY_SOCKET", address.c_str(), 1);
    ServiceManager manager(clock_);
    manager.Ready();
    manager.Alive();
  }
  unsetenv("NOTIFY_SOCKET");
  ServiceManager(clock_).Stopping();
}

}  // namespace
}  // namespace causeway
