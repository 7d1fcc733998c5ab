// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Two ranks of an island with a slow link between them, which may break.
// Skipped where network namespaces are not permitted.
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/status_macros.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/coordinator.pb.h"
#include "tests/wan/descriptor.h"
#include "tests/wan/link.h"
#include "tests/wan/network_namespace.h"
#include "worker/collective/collective_diagnosis.h"
#include "worker/collective/communicator.h"
#include "worker/collective/culprit.h"
#include "worker/collective/message_communicator.h"
#include "worker/collective/rendezvous.h"
#include "worker/collective/tcp_transport.h"

namespace causeway {
namespace {

using testing::HasSubstr;

constexpr const char* kAddresses[] = {"10.77.0.1", "10.77.0.2"};
constexpr double kBitsPerSecond = 40e6;

class RankLinkTest : public testing::Test {
 protected:
  void SetUp() override {
    const absl::Status permitted = CheckPermitted();
    if (absl::IsPermissionDenied(permitted)) GTEST_SKIP() << permitted;
    ASSERT_OK(permitted);
    Link::Options options = {.seed = 1, .now = SteadyWallClock()};
    options.settings.up.bits_per_second = kBitsPerSecond;
    options.settings.down.bits_per_second = kBitsPerSecond;
    settings_ = options.settings;
    ASSERT_OK_AND_ASSIGN(options.coordinator, AddSide(0));
    ASSERT_OK_AND_ASSIGN(options.island, AddSide(1));
    ASSERT_OK_AND_ASSIGN(link_, Link::Start(std::move(options)));
  }

  // Runs `body` for each rank, on its side of the link.
  void RunRanks(const std::function<void(Communicator&)>& body) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 2; ++rank) {
      threads.emplace_back([&, rank] {
        ASSERT_OK_AND_ASSIGN(const NetworkNamespace::Scope inside,
                             sides_[rank]->Enter());
        ASSERT_OK_AND_ASSIGN(auto transport,
                             ConnectTcp({.rank = rank,
                                         .size = 2,
                                         .host = kAddresses[rank],
                                         .now = SteadyWallClock()},
                                        &rendezvous_));
        const auto communicator = MakeMessageCommunicator(
            {.timeout = absl::Hours(1), .now = SteadyWallClock()},
            std::move(transport), &rendezvous_);
        body(*communicator);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  LinkSettings settings_;
  std::unique_ptr<Link> link_;

 private:
  // Makes the namespace of a rank, with the end of the link in it.
  absl::StatusOr<Descriptor> AddSide(int rank) {
    ASSIGN_OR_RETURN(NetworkNamespace side, NetworkNamespace::Create());
    sides_[rank].emplace(std::move(side));
    ASSIGN_OR_RETURN(const NetworkNamespace::Scope inside,
                     sides_[rank]->Enter());
    return OpenTap("rank", kAddresses[rank], /*mtu=*/1500);
  }

  std::optional<NetworkNamespace> sides_[2];
  LocalRendezvous rendezvous_;
};

absl::Status Exchange(Communicator& communicator) {
  std::vector<float> values(250'000);
  RETURN_IF_ERROR(communicator.ReduceScatter(absl::MakeSpan(values)));
  return communicator.AllGather(absl::MakeSpan(values));
}

TEST_F(RankLinkTest, ASlowLinkIsCalledSo) {
  RunRanks([](Communicator& communicator) {
    for (int i = 0; i < 4; ++i) ASSERT_OK(Exchange(communicator));
    const CollectiveDiagnosis own =
        DiagnoseCollectives(communicator.rank(), communicator.TakeTimes());
    ASSERT_OK_AND_ASSIGN(const CollectiveDiagnosis worst,
                         WorstOf(own, &communicator));
    EXPECT_EQ(worst.kind, CollectiveDiagnosis::Kind::kSlowLink);
    EXPECT_EQ(worst.rank + worst.to_rank, 1);
    // A rank also waits for its own sends, so it may see less than the rate.
    EXPECT_LT(worst.speed, 1.1 * kBitsPerSecond / 8);
    EXPECT_GT(worst.speed, 0.2 * kBitsPerSecond / 8);
    EXPECT_THAT(ToRankTrouble(worst).text(), HasSubstr("is slow"));
  });
}

TEST_F(RankLinkTest, ALinkThatBreaksIsNoRanksFault) {
  RunRanks([this](Communicator& communicator) {
    if (communicator.rank() == 0) {
      ASSERT_OK(Exchange(communicator));
      LinkSettings broken = settings_;
      broken.up.partitioned = broken.down.partitioned = true;
      link_->Configure(broken);
    }
    absl::Status status;
    while (status.ok()) status = Exchange(communicator);
    EXPECT_THAT(status, IsDeadlineExceeded("cannot reach each other"));
    const std::optional<v1::RankTrouble> trouble = RankTroubleOf(status);
    ASSERT_TRUE(trouble.has_value());
    EXPECT_EQ(trouble->kind(), v1::RankTrouble::SLOW_LINK);
  });
}

}  // namespace
}  // namespace causeway
