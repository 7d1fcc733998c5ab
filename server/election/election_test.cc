// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Tests elections with a real etcd.
#include "server/election/election.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/election/testing/etcd_process.h"
#include "tests/end_to_end/process.h"
#include "tests/takeover/relay.h"

namespace causeway {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const Holding kCopy = {.run_id = "r", .is_complete = true, .epoch = 1};

class ElectionTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!EtcdProcess::IsInstalled()) GTEST_SKIP() << "there is no etcd";
    ASSERT_OK_AND_ASSIGN(etcd_, EtcdProcess::Make());
    member_ = etcd_->member();
  }

  Election::Options OptionsOf(const std::string& name) const {
    Election::Options options{
        .etcd = {.members = {member_}},
        .prefix = "/test/",
        .lease = absl::Seconds(2),
        .now = [this] { return absl::FromUnixSeconds(seconds_); }};
    options.self.set_name(name);
    options.self.set_address(name + ":7070");
    return options;
  }

  static bool Await(const std::function<bool()>& is_so) {
    const absl::Time deadline = absl::Now() + absl::Seconds(20);
    while (!is_so()) {
      if (absl::Now() > deadline) return false;
      absl::SleepFor(absl::Milliseconds(20));
    }
    return true;
  }
  // Waits until `election` has read this leader; "" means none.
  static bool AwaitLeader(const Election& election, const std::string& name) {
    return Await([&] {
      const absl::StatusOr<OfficeView> view = election.view();
      if (!view.ok()) return false;
      return view->leader.has_value() ? view->leader->name() == name
                                      : name.empty();
    });
  }
  static uint64_t Win(Election& election) {
    EXPECT_TRUE(AwaitLeader(election, ""));
    const auto epoch = election.Campaign(*election.view(), kCopy);
    EXPECT_OK(epoch.status());
    return epoch.value_or(0);
  }

  static etcdserverpb::TxnRequest Reading() {
    etcdserverpb::TxnRequest request;
    request.add_success()->mutable_request_range()->set_key("key");
    return request;
  }

  // Lets more time pass than a leader may be silent.
  void PassLongestSilence() {
    seconds_ += absl::ToInt64Seconds(Election::kLongestSilence) + 1;
  }

  std::unique_ptr<EtcdProcess> etcd_;
  std::string member_;
  std::atomic<int64_t> seconds_ = 1'000'000;
};

TEST_F(ElectionTest, ALeaderLeadsUntilItsLeaseEnds) {
  Election b(OptionsOf("b"));
  {
    Election a(OptionsOf("a"));
    ASSERT_TRUE(AwaitLeader(b, ""));
    const OfficeView before = *b.view();
    EXPECT_EQ(Win(a), 2);
    EXPECT_THAT(b.Campaign(before, kCopy), IsAborted());
    EXPECT_TRUE(AwaitLeader(b, "a"));
    ASSERT_OK(a.Change(WithInSync(a.office(), {"a", "b"})));
    // Its lease is kept alive, however long its work takes to start.
    PassLongestSilence();
    absl::SleepFor(absl::Seconds(3));
    EXPECT_EQ(b.view()->leader->name(), "a");
    EXPECT_THAT(b.view()->office.in_sync(), ElementsAre("a", "b"));
    EXPECT_EQ(a.ReplacedBy(), 0);
    // "a" dies without resigning.
  }
  EXPECT_EQ(Win(b), 3);
  EXPECT_EQ(b.office().leader().name(), "b");
  EXPECT_THAT(b.office().in_sync(), ElementsAre("b"));
  // A leader that resigns makes room at once.
  b.Resign();
  EXPECT_TRUE(AwaitLeader(b, ""));
  EXPECT_EQ(Win(b), 4);
}

TEST_F(ElectionTest, AReplacedLeaderHearsOfItAndChangesNothing) {
  Election a(OptionsOf("a"));
  Election b(OptionsOf("b"));
  Win(a);
  ASSERT_TRUE(AwaitLeader(b, "a"));
  OfficeView expired = *b.view();
  // Act as if a's lease had ended while "a" could not reach etcd.
  EtcdClient etcd({.members = {member_}});
  ASSERT_OK(etcd.Revoke(expired.lease));
  expired.leader.reset();
  const absl::StatusOr<uint64_t> epoch = b.Campaign(expired, kCopy);
  if (!epoch.ok()) GTEST_SKIP() << "the leader has a new lease already";
  EXPECT_THAT(a.Change(WithInSync(a.office(), {"a"})), IsAborted());
  EXPECT_TRUE(Await([&] { return a.ReplacedBy() == *epoch; }));
}

TEST_F(ElectionTest, ALeaderWhoseLeaseWasLostGetsAnother) {
  Election a(OptionsOf("a"));
  Win(a);
  ASSERT_TRUE(AwaitLeader(a, "a"));
  const int64_t lease = a.view()->lease;
  EtcdClient etcd({.members = {member_}});
  ASSERT_OK(etcd.Revoke(lease));
  EXPECT_TRUE(Await([&] {
    const absl::StatusOr<OfficeView> view = a.view();
    return view.ok() && view->leader.has_value() && view->lease != lease;
  }));
  EXPECT_EQ(a.ReplacedBy(), 0);
  EXPECT_OK(a.Change(a.office()));
}

TEST_F(ElectionTest, ALeaderThatStandsStillLosesItsLease) {
  Election a(OptionsOf("a"));
  Election b(OptionsOf("b"));
  Win(a);
  ASSERT_TRUE(AwaitLeader(b, "a"));
  a.Alive();
  PassLongestSilence();
  ASSERT_TRUE(AwaitLeader(b, ""));
  EXPECT_EQ(a.ReplacedBy(), 0);
  // Nobody has replaced it when its work goes on, so it gets another lease.
  a.Alive();
  ASSERT_TRUE(AwaitLeader(b, "a"));
  PassLongestSilence();
  const uint64_t epoch = Win(b);
  a.Alive();
  EXPECT_TRUE(Await([&] { return a.ReplacedBy() == epoch; }));
  EXPECT_TRUE(AwaitLeader(a, "b"));
}

TEST_F(ElectionTest, TheOfficeSurvivesEtcd) {
  Election a(OptionsOf("a"));
  Win(a);
  etcd_->process().Signal(SIGKILL);
  etcd_->process().Wait();
  EXPECT_TRUE(Await([&] { return !a.view().ok(); }));
  EXPECT_THAT(a.view().status().message(), HasSubstr(member_));
  EXPECT_EQ(a.ReplacedBy(), 0);
  ASSERT_OK(etcd_->Start());
  EXPECT_TRUE(AwaitLeader(a, "a"));
  EXPECT_OK(a.Change(a.office()));
}

TEST_F(ElectionTest, ALeaderWritesTheOfficeThatEtcdHasLost) {
  Election a(OptionsOf("a"));
  const uint64_t epoch = Win(a);
  ASSERT_OK(a.Change(WithInSync(a.office(), {"a", "b"})));
  etcd_->process().Signal(SIGKILL);
  etcd_->process().Wait();
  for (const auto& entry :
       std::filesystem::directory_iterator(etcd_->directory())) {
    std::filesystem::remove_all(entry);
  }
  ASSERT_TRUE(Await([&] { return !a.view().ok(); }));
  ASSERT_OK(etcd_->Start());
  ASSERT_TRUE(AwaitLeader(a, "a"));
  EXPECT_EQ(a.ReplacedBy(), 0);
  EXPECT_EQ(a.view()->office.epoch(), epoch);
  EXPECT_THAT(a.view()->office.in_sync(), ElementsAre("a", "b"));
  EXPECT_OK(a.Change(a.office()));
}

// NATs, firewalls and machines that vanish forget connections silently.
TEST_F(ElectionTest, AForgottenConnectionIsReplaced) {
  Relay relay(etcd_->port());
  EtcdClient client({.members = {absl::StrCat("127.0.0.1:", relay.port())}});
  ASSERT_TRUE(Await([&] { return client.Transact(Reading()).ok(); }));
  relay.Forget();
  EXPECT_TRUE(absl::IsDeadlineExceeded(client.Transact(Reading()).status()));
  EXPECT_TRUE(Await([&] { return client.Transact(Reading()).ok(); }));
}

TEST_F(ElectionTest, EtcdMayAskForAPassword) {
  const auto etcdctl = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(),
                     {"/usr/bin/env", "ETCDCTL_API=3", "/usr/bin/etcdctl",
                      "--endpoints", member_});
    Process process(arguments, etcd_->directory() + "/etcdctl");
    EXPECT_EQ(process.Wait(), 0) << process.Output();
  };
  if (access("/usr/bin/etcdctl", X_OK) != 0) GTEST_SKIP() << "no etcdctl";
  etcdctl({"user", "add", "root:secret"});
  etcdctl({"auth", "enable"});
  EtcdClient stranger({.members = {member_}});
  EXPECT_FALSE(stranger.Transact(Reading()).ok());
  EtcdClient root({.members = {member_}, .user = "root", .password = "secret"});
  EXPECT_OK(root.Transact(Reading()).status());
  EtcdClient liar({.members = {member_}, .user = "root", .password = "guess"});
  EXPECT_FALSE(liar.Transact(Reading()).ok());
}

}  // namespace
}  // namespace causeway
