// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Peers that open as many connections as they can.
#include <signal.h>
#include <sys/resource.h>

#include <filesystem>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/testing/http_client.h"
#include "gtest/gtest.h"
#include "tests/hostile/raw_http2.h"
#include "tests/hostile/siege.h"

namespace causeway {
namespace {

class ConnectionsTest : public Siege {
 protected:
  // More connections than a coordinator's default limit of descriptors.
  static constexpr int kMany = 1100;

  std::vector<std::unique_ptr<IdleConnection>> Connect(int count) const {
    std::vector<std::unique_ptr<IdleConnection>> connections;
    for (int i = 0; i < count; ++i) {
      connections.push_back(std::make_unique<IdleConnection>(port()));
    }
    return connections;
  }

  // Returns the number of files that the coordinator has open.
  int64_t OpenFiles() {
    return std::distance(std::filesystem::directory_iterator(absl::StrCat(
                             "/proc/", coordinator().process().pid(), "/fd")),
                         std::filesystem::directory_iterator());
  }

  void ResistIdleConnections(const Options& options) {
    Start(options);
    AddIsland("before");
    AwaitRounds(5);
    const uint32_t before = Run().connections().open();
    const uint64_t bytes = coordinator().TakePeak();
    {
      const auto idle = Connect(kMany);
      // The rounds of the new island are the rounds of all.
      AddIsland("meanwhile");
      AwaitRounds(20);
      const v1::ConnectionUse use = Run().connections();
      EXPECT_GE(use.refused() + use.displaced() + use.limit(), kMany);
    }
    EXPECT_LT(coordinator().TakePeak(), bytes + kMostBytes);
    // An island has two connections.
    AwaitStatus([&](const v1::RunStatus& run) {
      return run.connections().open() == before + 2;
    });
    AddIsland("afterwards");
    AwaitRounds(5);
  }
};

TEST_F(ConnectionsTest, IdleConnectionsBeforeTlsKeepNoIslandOut) {
  ResistIdleConnections({.tls = true});
}

TEST_F(ConnectionsTest, IdleOnesLeaveDescriptorsToTheStorage) {
  ResistIdleConnections({.soft_files = 128, .hard_files = 128});
}

TEST_F(ConnectionsTest, IdleOnesAreOfNoConsequence) {
  Start();
  AddIsland("east");
  AddIsland("west");
  Resist([this] { return Connect(kMany); });
}

// Watchers get only a part of the connections for their address.
TEST_F(ConnectionsTest, WatchersKeepNoIslandOut) {
  Start();
  AddIsland("before");
  AwaitRounds(5);
  RawConnections watchers;
  for (int i = 0; i < kMany / 4; ++i) {
    watchers.push_back(std::make_unique<RawHttp2>(port(), 65535));
    RawHttp2& watcher = *watchers.back();
    watcher.Receive(absl::Seconds(5));
    watcher.SendData(watcher.Begin("/causeway.v1.Status/WatchEvents"),
                     MessagePrefix(0));
  }
  AddIsland("meanwhile");
  AwaitRounds(5);
}

TEST_F(ConnectionsTest, WithoutDescriptorsTheListenerDoesNotGoDeaf) {
  Start();
  AddIsland("before");
  AwaitRounds(5);
  rlimit limit = {};
  const pid_t pid = coordinator().process().pid();
  ASSERT_EQ(prlimit(pid, RLIMIT_NOFILE, nullptr, &limit), 0);
  // Take the other descriptors away.
  const rlimit none = {.rlim_cur = static_cast<rlim_t>(OpenFiles()),
                       .rlim_max = limit.rlim_max};
  ASSERT_EQ(prlimit(pid, RLIMIT_NOFILE, &none, nullptr), 0);
  {
    const auto idle = Connect(kMany);
    ASSERT_TRUE(
        coordinator().process().AwaitOutput("cannot accept a connection"));
  }
  ASSERT_EQ(prlimit(pid, RLIMIT_NOFILE, &limit, nullptr), 0);
  AddIsland("afterwards");
  AwaitRounds(5);
}

TEST_F(ConnectionsTest, SilentPeersAreDisconnected) {
  Start();
  const IdleConnection idle(port());
  ASSERT_TRUE(idle.open());
  AwaitStatus(
      [](const v1::RunStatus& run) { return run.connections().unused() == 1; });
  EXPECT_FALSE(idle.open());
}

// Otherwise, a service manager would restart the process.
TEST_F(ConnectionsTest, SilentConnectionsFailNoProbe) {
  Start({.arguments = {"--metrics_listen=127.0.0.1:0",
                       "--http_listen=127.0.0.1:0"}});
  const std::string log = coordinator().process().Output();
  for (const auto& [words, path] :
       {std::pair("metrics at http://127.0.0.1:", "/metrics"),
        std::pair("page is http://127.0.0.1:", "/api/status")}) {
    int port = 0;
    const size_t found = log.find(words);
    ASSERT_NE(found, std::string::npos) << log;
    const std::string rest = log.substr(found + std::string(words).size());
    ASSERT_TRUE(absl::SimpleAtoi(rest.substr(0, rest.find('/')), &port));
    std::vector<std::unique_ptr<IdleConnection>> silent;
    for (int i = 0; i < 226; ++i) {
      silent.push_back(std::make_unique<IdleConnection>(port));
    }
    for (const char* const asked : {"/healthz", "/readyz", path}) {
      const absl::Time begin = absl::Now();
      EXPECT_EQ(HttpGet(port, asked).status, 200) << asked;
      // Kubernetes gives a probe one second by default, on a machine that is
      // not as busy as this one may be.
      EXPECT_LT(absl::Now() - begin, absl::Seconds(5)) << asked;
    }
  }
}

TEST_F(ConnectionsTest, RefusedTlsHandshakesAreLogged) {
  Start({.tls = true});
  // Send plain text where TLS is expected.
  RawHttp2 plain(port(), 65535);
  EXPECT_TRUE(coordinator().process().AwaitOutput("wrong version number"));
  EXPECT_TRUE(coordinator().process().AwaitOutput("ended without a call"));
}

}  // namespace
}  // namespace causeway
