// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Diagnoses the times of ranks and links that are really slow.
#include "worker/collective/collective_diagnosis.h"

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/collective/local_transport.h"
#include "worker/collective/message_communicator.h"
#include "worker/collective/rendezvous.h"
#include "worker/collective/time_limit.h"
#include "worker/collective/transport.h"

namespace causeway {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Kind = CollectiveDiagnosis::Kind;

// A transport that delays data from one peer, but not headers.
class SlowLink : public Transport {
 public:
  SlowLink(std::unique_ptr<Transport> transport, int slow_peer,
           absl::Duration delay)
      : transport_(std::move(transport)),
        slow_peer_(slow_peer),
        delay_(delay) {}

  int rank() const override { return transport_->rank(); }
  int size() const override { return transport_->size(); }
  std::unique_ptr<Transfer> Send(int peer, uint64_t tag,
                                 absl::Span<const char> bytes) override {
    return transport_->Send(peer, tag, bytes);
  }
  std::unique_ptr<Transfer> Receive(int peer, uint64_t tag,
                                    absl::Span<char> bytes) override {
    auto transfer = transport_->Receive(peer, tag, bytes);
    if (peer != slow_peer_ || bytes.size() < 1000) return transfer;
    return std::make_unique<SlowTransfer>(std::move(transfer), delay_);
  }
  void Close() override { transport_->Close(); }

 private:
  class SlowTransfer : public Transfer {
   public:
    SlowTransfer(std::unique_ptr<Transfer> transfer, absl::Duration delay)
        : transfer_(std::move(transfer)), delay_(delay) {}
    absl::Status Wait(TimeLimit& limit) override {
      absl::SleepFor(delay_);
      return transfer_->Wait(limit);
    }

   private:
    const std::unique_ptr<Transfer> transfer_;
    const absl::Duration delay_;
  };

  const std::unique_ptr<Transport> transport_;
  const int slow_peer_;
  const absl::Duration delay_;
};

struct Island {
  int ranks = 3;
  // The time that each rank computes before an operation.
  std::vector<absl::Duration> computing;
  // The rank that receives slowly from slow_peer; negative for none.
  int slow_receiver = -1;
  int slow_peer = 0;
};

std::string Text(const CollectiveDiagnosis& diagnosis) {
  return ToRankTrouble(diagnosis).text();
}

struct Observation {
  // The diagnosis of each rank.
  std::vector<CollectiveDiagnosis> seen;
  // The diagnosis that all ranks agree on.
  CollectiveDiagnosis agreed;
};

// Returns what the ranks see after some operations.
Observation Observe(const Island& island) {
  LocalRendezvous rendezvous;
  std::vector<std::unique_ptr<Transport>> transports =
      MakeLocalTransports(island.ranks);
  if (island.slow_receiver >= 0) {
    auto& transport = transports[island.slow_receiver];
    transport = std::make_unique<SlowLink>(
        std::move(transport), island.slow_peer, absl::Milliseconds(20));
  }
  std::vector<CollectiveDiagnosis> seen(island.ranks);
  std::vector<CollectiveDiagnosis> agreed(island.ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < island.ranks; ++rank) {
    threads.emplace_back([&, rank] {
      const auto communicator = MakeMessageCommunicator(
          {.timeout = absl::Minutes(5), .now = SteadyWallClock()},
          std::move(transports[rank]), &rendezvous);
      std::vector<float> values(10'000);
      for (int i = 0; i < 15; ++i) {
        absl::SleepFor(island.computing[rank]);
        EXPECT_OK(communicator->ReduceScatter(absl::MakeSpan(values)));
        EXPECT_OK(communicator->AllGather(absl::MakeSpan(values)));
      }
      seen[rank] = DiagnoseCollectives(rank, communicator->TakeTimes());
      const auto worst = WorstOf(seen[rank], communicator.get());
      ASSERT_OK(worst.status());
      EXPECT_GE(worst->share, seen[rank].share);
      agreed[rank] = *worst;
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const CollectiveDiagnosis& worst : agreed) {
    EXPECT_EQ(Text(worst), Text(agreed[0]));
  }
  return {.seen = std::move(seen), .agreed = agreed[0]};
}

constexpr absl::Duration kQuick = absl::Milliseconds(10);
constexpr absl::Duration kSlow = absl::Milliseconds(50);

TEST(CollectiveDiagnosisTest, EveryRankSeesTheSlowOne) {
  for (const int ranks : {2, 3}) {
    Island island = {.ranks = ranks,
                     .computing = std::vector<absl::Duration>(ranks, kQuick)};
    island.computing[1] = kSlow;
    for (const CollectiveDiagnosis& seen : Observe(island).seen) {
      EXPECT_EQ(seen.kind, Kind::kSlowRank) << Text(seen);
      EXPECT_EQ(seen.rank, 1);
      EXPECT_GT(seen.share, 0.4);
      EXPECT_THAT(Text(seen), HasSubstr("rank 1 is slow"));
    }
  }
}

TEST(CollectiveDiagnosisTest, ASlowLinkIsNotASlowRank) {
  for (const int ranks : {2, 3}) {
    const Island island = {
        .ranks = ranks,
        .computing = std::vector<absl::Duration>(ranks, kQuick),
        .slow_receiver = ranks == 2 ? 0 : 2,
        .slow_peer = 1};
    // Only the receiver sees the slow link, and tells the others.
    const CollectiveDiagnosis agreed = Observe(island).agreed;
    EXPECT_EQ(agreed.kind, Kind::kSlowLink) << Text(agreed);
    EXPECT_EQ(agreed.rank, 1);
    EXPECT_EQ(agreed.to_rank, island.slow_receiver);
    EXPECT_THAT(Text(agreed),
                AllOf(HasSubstr(absl::StrCat("from rank 1 to rank ",
                                             agreed.to_rank, " is slow")),
                      HasSubstr("MB/s")));
  }
}

TEST(CollectiveDiagnosisTest, NothingStandsOutAmongEquals) {
  const Island island = {.computing = {kSlow, kSlow, kSlow}};
  for (const CollectiveDiagnosis& seen : Observe(island).seen) {
    EXPECT_EQ(seen.kind, Kind::kEven) << Text(seen);
  }
  EXPECT_EQ(ToRankTrouble({}).kind(), v1::RankTrouble::KIND_UNSPECIFIED);
}

TEST(CollectiveDiagnosisTest, ASlowLinkHasLessThanHalfOfTheMedianSpeed) {
  CollectiveTimes work = {.collective = Collective::kAllGather,
                          .duration = absl::Seconds(1)};
  work.peers.resize(4);
  for (const int peer : {1, 2, 3}) {
    work.peers[peer].bytes = 3000;
    work.peers[peer].transfer = absl::Seconds(0.3);
  }
  work.peers[1].transfer = absl::Seconds(0.5);
  EXPECT_EQ(DiagnoseCollectives(0, {work, work}).kind, Kind::kEven);
  work.peers[1].transfer = absl::Seconds(0.7);
  const CollectiveDiagnosis slow = DiagnoseCollectives(0, {work, work});
  EXPECT_EQ(slow.kind, Kind::kSlowLink);
  EXPECT_EQ(slow.rank, 1);
  EXPECT_DOUBLE_EQ(slow.other_speed, 10'000);
}

TEST(CollectiveDiagnosisTest, OneOperationShowsNothing) {
  CollectiveTimes work = {.collective = Collective::kReduceScatter,
                          .duration = absl::Seconds(0.1)};
  work.peers.resize(3);
  CollectiveTimes late = work;
  late.peers[1].away = absl::Seconds(7);
  EXPECT_EQ(DiagnoseCollectives(0, {work, late, work}).kind, Kind::kEven);
  const CollectiveDiagnosis twice =
      DiagnoseCollectives(0, {work, late, work, late});
  EXPECT_EQ(twice.kind, Kind::kSlowRank);
  EXPECT_EQ(twice.rank, 1);
  work.peers[2].transfer = absl::Seconds(7);
  EXPECT_EQ(DiagnoseCollectives(0, {late, work}).kind, Kind::kEven);
}

// The broadcast takes an hour in which rank 0 waits for the outer loop.
TEST(CollectiveDiagnosisTest, WaitingForOrdersDoesNotCount) {
  CollectiveTimes order = {.collective = Collective::kBroadcast,
                           .duration = absl::Hours(1)};
  order.peers.resize(2);
  order.peers[0].away = absl::Hours(1);
  CollectiveTimes work = {.collective = Collective::kAllGather,
                          .duration = absl::Seconds(1)};
  work.peers.resize(2);
  work.peers[1].transfer = absl::Seconds(0.1);
  work.peers[1].bytes = 1000;
  EXPECT_EQ(DiagnoseCollectives(0, {order, work}).kind, Kind::kEven);
  EXPECT_EQ(DiagnoseCollectives(0, {}).kind, Kind::kEven);
}

}  // namespace
}  // namespace causeway
