// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Tests communicators whose values go from rank to rank in bf16, over each
// transport.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/clock.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "quantization/formats/dense_reference.h"
#include "worker/collective/communicator.h"
#include "worker/collective/local_transport.h"
#include "worker/collective/message_communicator.h"
#include "worker/collective/rendezvous.h"
#include "worker/collective/tcp_transport.h"

namespace causeway {
namespace {

// Runs `body` once for each rank, each on a thread of its own.
void ForEachRank(int size, const std::function<void(int rank)>& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) threads.emplace_back(body, rank);
  for (std::thread& thread : threads) thread.join();
}

enum class Kind { kLocal, kTcp };

class RoundingTest : public testing::TestWithParam<Kind> {
 protected:
  struct Island {
    LocalRendezvous rendezvous;
    std::vector<std::unique_ptr<Communicator>> ranks;
  };

  // All ranks round, except rank `exact`.
  static std::unique_ptr<Island> MakeIsland(int size, int exact = -1) {
    auto island = std::make_unique<Island>();
    std::vector<std::unique_ptr<Transport>> transports(size);
    if (GetParam() == Kind::kLocal) transports = MakeLocalTransports(size);
    ForEachRank(size, [&](int rank) {
      if (GetParam() == Kind::kLocal) return;
      auto connected = ConnectTcp({.rank = rank,
                                   .size = size,
                                   .host = "127.0.0.1",
                                   .now = SteadyWallClock()},
                                  &island->rendezvous);
      ASSERT_OK(connected);
      transports[rank] = *std::move(connected);
    });
    for (int rank = 0; rank < size; ++rank) {
      island->ranks.push_back(MakeMessageCommunicator(
          {.timeout = absl::Minutes(1),
           .now = SteadyWallClock(),
           .rounds = rank != exact},
          std::move(transports[rank]), &island->rendezvous));
    }
    return island;
  }

  static float Rounded(float value) {
    return FloatFromBf16(Bf16FromFloat(value));
  }

  // Returns values of all magnitudes, including ties.
  static std::vector<float> Values(int rank, int64_t size) {
    std::mt19937 random(rank + 1);
    std::vector<float> values(size);
    for (float& value : values) {
      value = std::ldexp(static_cast<float>(random() % 1025) / 512 - 1,
                         static_cast<int>(random() % 20) - 10);
      if (random() % 17 == 0) value = -0.0f;
    }
    return values;
  }

  static std::vector<uint32_t> BitsOf(const std::vector<float>& values) {
    std::vector<uint32_t> bits;
    for (const float value : values) {
      bits.push_back(std::bit_cast<uint32_t>(value));
    }
    return bits;
  }
};

INSTANTIATE_TEST_SUITE_P(, RoundingTest,
                         testing::Values(Kind::kLocal, Kind::kTcp),
                         [](const auto& info) {
                           return info.param == Kind::kLocal ? "Local" : "Tcp";
                         });

TEST_P(RoundingTest, SumsAreInFp32OfWhatOthersHaveInBf16) {
  constexpr int kRanks = 3;
  const auto island = MakeIsland(kRanks);
  for (const int64_t size : {0, 5, 100, 1'000'003}) {
    std::vector<std::vector<float>> gathered(kRanks);
    ForEachRank(kRanks, [&](int rank) {
      Communicator& communicator = *island->ranks[rank];
      ASSERT_TRUE(communicator.rounds());
      const Slice own = communicator.shard(size, rank);
      std::vector<float> want = Values(rank, size);
      std::vector<double> exact(size);
      std::vector<double> error(size);
      std::vector<float> sum(size, -0.0f);
      for (int peer = 0; peer < kRanks; ++peer) {
        const std::vector<float> theirs = Values(peer, size);
        for (int64_t i = own.begin; i < own.end; ++i) {
          sum[i] += peer == rank ? theirs[i] : Rounded(theirs[i]);
          exact[i] += theirs[i];
          // Allows for half of the last of 8 bits, and for the sum's rounding.
          if (peer != rank) error[i] += std::abs(theirs[i]) * 0x1p-8;
          error[i] += std::abs(theirs[i]) * kRanks * 0x1p-24;
        }
      }
      std::copy(sum.begin() + own.begin, sum.begin() + own.end,
                want.begin() + own.begin);
      std::vector<float> values = Values(rank, size);
      communicator.TakeTimes();
      ASSERT_OK(communicator.ReduceScatter(absl::MakeSpan(values)));
      ASSERT_TRUE(BitsOf(values) == BitsOf(want));
      for (int64_t i = own.begin; i < own.end; ++i) {
        ASSERT_LE(std::abs(values[i] - exact[i]), error[i]) << i;
      }
      ASSERT_OK(communicator.AllGather(absl::MakeSpan(values)));
      for (int64_t i = own.begin; i < own.end; ++i) {
        ASSERT_EQ(values[i], Rounded(want[i]));
      }
      const std::vector<CollectiveTimes> times = communicator.TakeTimes();
      for (int peer = 0; peer < kRanks; ++peer) {
        if (peer == rank) continue;
        EXPECT_EQ(times[0].peers[peer].bytes, 2 * own.size());
        EXPECT_EQ(times[1].peers[peer].bytes,
                  2 * communicator.shard(size, peer).size());
      }
      gathered[rank] = std::move(values);
    });
    for (int rank = 1; rank < kRanks; ++rank) {
      EXPECT_TRUE(BitsOf(gathered[rank]) == BitsOf(gathered[0])) << rank;
    }
  }
}

TEST_P(RoundingTest, BitsDoNotDependOnWhoComesFirst) {
  constexpr int kRanks = 3;
  constexpr int64_t kSize = 600'000;
  const auto island = MakeIsland(kRanks);
  std::vector<float> first;
  for (int late = 0; late < kRanks; ++late) {
    std::vector<float> gathered;
    ForEachRank(kRanks, [&](int rank) {
      if (rank == late) absl::SleepFor(absl::Milliseconds(30));
      std::vector<float> values = Values(rank, kSize);
      Communicator& communicator = *island->ranks[rank];
      ASSERT_OK(communicator.ReduceScatter(absl::MakeSpan(values)));
      ASSERT_OK(communicator.AllGather(absl::MakeSpan(values)));
      if (rank == 0) gathered = std::move(values);
    });
    if (late == 0) first = gathered;
    EXPECT_TRUE(BitsOf(gathered) == BitsOf(first)) << late;
  }
}

TEST_P(RoundingTest, OneRankRoundsNothing) {
  const auto island = MakeIsland(1);
  EXPECT_FALSE(island->ranks[0]->rounds());
  std::vector<float> values = Values(0, 1000);
  ASSERT_OK(island->ranks[0]->ReduceScatter(absl::MakeSpan(values)));
  ASSERT_OK(island->ranks[0]->AllGather(absl::MakeSpan(values)));
  EXPECT_EQ(BitsOf(values), BitsOf(Values(0, 1000)));
}

TEST_P(RoundingTest, AllRanksRoundOrNone) {
  const auto island = MakeIsland(2, /*exact=*/0);
  ForEachRank(2, [&](int rank) {
    std::vector<float> values(100);
    EXPECT_FALSE(island->ranks[rank]->AllGather(absl::MakeSpan(values)).ok());
  });
}

}  // namespace
}  // namespace causeway
