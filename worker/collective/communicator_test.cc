// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Tests that communicators over each transport keep their contract.
#include "worker/collective/communicator.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/blocking_counter.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/collective/device_collectives.h"
#include "worker/collective/local_transport.h"
#include "worker/collective/message_communicator.h"
#include "worker/collective/rendezvous.h"
#include "worker/collective/tcp_transport.h"
#include "worker/collective/testing/host_collectives.h"
#include "worker/collective/time_limit.h"
#include "worker/collective/transport.h"

namespace causeway {
namespace {

using testing::ElementsAre;

enum class Kind { kLocal, kTcp, kEncrypted, kSharedDevice };

// Runs `body` once for each rank, each on a thread of its own.
void ForEachRank(int size, const std::function<void(int rank)>& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) threads.emplace_back(body, rank);
  for (std::thread& thread : threads) thread.join();
}

class CommunicatorTest : public testing::TestWithParam<Kind> {
 protected:
  struct Island {
    LocalRendezvous rendezvous;
    std::vector<std::unique_ptr<Communicator>> ranks;
  };

  static std::unique_ptr<Island> MakeIsland(
      int size, absl::Duration timeout = absl::Seconds(60),
      const std::function<Clock(int rank)>& clock = nullptr) {
    auto island = std::make_unique<Island>();
    std::vector<std::unique_ptr<Transport>> transports;
    const auto clock_of = [&](int rank) {
      return clock == nullptr ? SteadyWallClock() : clock(rank);
    };
    if (GetParam() == Kind::kLocal || GetParam() == Kind::kSharedDevice) {
      transports = MakeLocalTransports(size);
    } else {
      transports.resize(size);
      ForEachRank(size, [&](int rank) {
        auto connected = ConnectTcp({.rank = rank,
                                     .size = size,
                                     .host = "127.0.0.1",
                                     .encrypt = GetParam() == Kind::kEncrypted,
                                     .now = clock_of(rank)},
                                    &island->rendezvous);
        ASSERT_OK(connected);
        transports[rank] = *std::move(connected);
      });
    }
    for (int rank = 0; rank < size; ++rank) {
      island->ranks.push_back(MakeMessageCommunicator(
          {.timeout = timeout, .now = clock_of(rank)},
          std::move(transports[rank]), &island->rendezvous,
          GetParam() == Kind::kSharedDevice
              ? std::make_unique<HostCollectives>(rank)
              : nullptr));
    }
    return island;
  }
};

INSTANTIATE_TEST_SUITE_P(, CommunicatorTest,
                         testing::Values(Kind::kLocal, Kind::kTcp,
                                         Kind::kEncrypted, Kind::kSharedDevice),
                         [](const auto& info) {
                           switch (info.param) {
                             case Kind::kLocal:
                               return "Local";
                             case Kind::kTcp:
                               return "Tcp";
                             case Kind::kEncrypted:
                               return "Encrypted";
                             case Kind::kSharedDevice:
                               return "SharedDevice";
                           }
                           return "";
                         });

// Returns small whole numbers, so that sums are exact in any order.
float Value(int rank, int64_t i) {
  return static_cast<float>((i * 31 + rank * 7) % 1000);
}

std::vector<float> Values(int rank, int64_t size) {
  std::vector<float> values(size);
  for (int64_t i = 0; i < size; ++i) values[i] = Value(rank, i);
  return values;
}

float Sum(int ranks, int64_t i) {
  float sum = 0;
  for (int rank = 0; rank < ranks; ++rank) sum += Value(rank, i);
  return sum;
}

TEST_P(CommunicatorTest, OperationsDoWhatTheySay) {
  std::mt19937 random(3);
  for (const int ranks : {1, 2, 3, 5}) {
    const auto island = MakeIsland(ranks);
    // These are fewer values than ranks, indivisible sizes, several pieces of a
    // reduce-scatter, and random sizes.
    std::vector<int64_t> sizes = {0, 1, 15, 16, 17, 33, 1'700'001};
    for (int i = 0; i < 20; ++i) sizes.push_back(random() % 5000);
    ForEachRank(ranks, [&](int rank) {
      Communicator& communicator = *island->ranks[rank];
      ASSERT_EQ(communicator.rank(), rank);
      ASSERT_EQ(communicator.size(), ranks);
      for (const int64_t size : sizes) {
        SCOPED_TRACE(absl::StrCat(size, " values, rank ", rank));
        const Slice own = communicator.shard(size, rank);

        std::vector<float> want = Values(rank, size);
        for (int64_t i = own.begin; i < own.end; ++i) want[i] = Sum(ranks, i);
        std::vector<float> values = Values(rank, size);
        ASSERT_OK(communicator.ReduceScatter(absl::MakeSpan(values)));
        ASSERT_EQ(values, want);

        for (int64_t i = 0; i < size; ++i) want[i] = Sum(ranks, i);
        ASSERT_OK(communicator.AllGather(absl::MakeSpan(values)));
        ASSERT_EQ(values, want);

        const int root = static_cast<int>(size % ranks);
        std::string bytes(size, static_cast<char>('a' + rank));
        ASSERT_OK(communicator.Broadcast(
            root, absl::MakeSpan(&bytes[0], bytes.size())));
        ASSERT_EQ(bytes, std::string(size, static_cast<char>('a' + root)));

        std::vector<double> sums = {rank + 0.5, static_cast<double>(size)};
        ASSERT_OK(communicator.AllReduce(absl::MakeSpan(sums)));
        ASSERT_THAT(sums, ElementsAre(ranks * (ranks - 1) / 2 + 0.5 * ranks,
                                      static_cast<double>(ranks) * size));
      }
    });
  }
}

TEST_P(CommunicatorTest, AllToAllMovesBytesOfAnySize) {
  constexpr int kRanks = 3;
  const auto island = MakeIsland(kRanks);
  const auto message = [](int from, int to) {
    return std::string((from * 5 + to * 3) % 7 * 10'000,
                       static_cast<char>('a' + from * kRanks + to));
  };
  ForEachRank(kRanks, [&](int rank) {
    std::vector<std::string> sent(kRanks);
    std::vector<std::string> got(kRanks);
    std::vector<absl::Span<const char>> to(kRanks);
    std::vector<absl::Span<char>> from(kRanks);
    for (int peer = 0; peer < kRanks; ++peer) {
      if (peer == rank) continue;
      sent[peer] = message(rank, peer);
      got[peer].resize(message(peer, rank).size());
      to[peer] = sent[peer];
      from[peer] = absl::MakeSpan(&got[peer][0], got[peer].size());
    }
    ASSERT_OK(island->ranks[rank]->AllToAll(to, from));
    for (int peer = 0; peer < kRanks; ++peer) {
      if (peer == rank) continue;
      EXPECT_EQ(got[peer], message(peer, rank));
    }
    // Empty lists are allowed.
    EXPECT_OK(island->ranks[rank]->AllToAll({}, {}));
  });
}

TEST_P(CommunicatorTest, AllToAllNeedsTheSameSizesOnBothSides) {
  const auto island = MakeIsland(2);
  ForEachRank(2, [&](int rank) {
    std::string bytes(rank == 0 ? 5 : 6, 'x');
    std::vector<absl::Span<const char>> to(2);
    std::vector<absl::Span<char>> from(2);
    if (rank == 0) {
      to[1] = bytes;
    } else {
      from[0] = absl::MakeSpan(&bytes[0], bytes.size());
    }
    const absl::Status status = island->ranks[rank]->AllToAll(to, from);
    if (rank == 1) {
      EXPECT_THAT(status, IsFailedPrecondition("all-to-all of 6 bytes"));
    }
  });
}

TEST_P(CommunicatorTest, ShardsCoverTheVectorOnce) {
  const auto island = MakeIsland(3);
  for (const int64_t size : {0, 1, 47, 48, 1000}) {
    int64_t end = 0;
    for (int rank = 0; rank < 3; ++rank) {
      const Slice shard = island->ranks[0]->shard(size, rank);
      EXPECT_EQ(shard.begin, end);
      end = shard.end;
    }
    EXPECT_EQ(end, size);
  }
}

TEST_P(CommunicatorTest, SumsAreAddedInOrderOfRank) {
  // Another order of these terms gives another result.
  const std::vector<float> terms = {1, 1e8f, -1e8f, 3};
  const float want = ((terms[0] + terms[1]) + terms[2]) + terms[3];
  ASSERT_NE(want, terms[0] + ((terms[1] + terms[2]) + terms[3]));
  const auto island = MakeIsland(4);
  ForEachRank(4, [&](int rank) {
    Communicator& communicator = *island->ranks[rank];
    std::vector<float> values(64, terms[rank]);
    EXPECT_OK(communicator.ReduceScatter(absl::MakeSpan(values)));
    EXPECT_OK(communicator.AllGather(absl::MakeSpan(values)));
    EXPECT_EQ(values, std::vector<float>(64, want));
    std::vector<double> doubles = {rank == 0   ? 1
                                   : rank == 1 ? 1e16
                                   : rank == 2 ? -1e16
                                               : 3.0};
    EXPECT_OK(communicator.AllReduce(absl::MakeSpan(doubles)));
    EXPECT_EQ(doubles[0], ((1.0 + 1e16) - 1e16) + 3.0);
  });
}

// Each operation works on the results of the previous ones.
TEST_P(CommunicatorTest, ManyOperationsFollowOneAnother) {
  constexpr int kRanks = 3;
  constexpr int kOperations = 200;
  const auto island = MakeIsland(kRanks);
  ForEachRank(kRanks, [&](int rank) {
    Communicator& communicator = *island->ranks[rank];
    std::vector<float> values(50, static_cast<float>(rank));
    double sum = 1;
    for (int i = 0; i < kOperations; ++i) {
      ASSERT_OK(communicator.AllReduce(absl::MakeSpan(&sum, 1)));
      if (i % 50 != 0) continue;
      ASSERT_OK(communicator.ReduceScatter(absl::MakeSpan(values)));
      ASSERT_OK(communicator.AllGather(absl::MakeSpan(values)));
      ASSERT_OK(communicator.Broadcast(
          0, absl::MakeSpan(reinterpret_cast<char*>(&sum), sizeof(sum))));
    }
    // Each operation triples the sum.
    EXPECT_EQ(sum, std::pow(3.0, kOperations));
    // 0 + 1 + 2 is 3, and three more operations triple it.
    EXPECT_EQ(values, std::vector<float>(50, 3 * 3 * 3 * 3));
  });
}

TEST_P(CommunicatorTest, ARankThatLeavesIsNamed) {
  const auto island = MakeIsland(3);
  ForEachRank(3, [&](int rank) {
    std::vector<float> values(1000);
    EXPECT_OK(island->ranks[rank]->ReduceScatter(absl::MakeSpan(values)));
  });
  island->ranks[1].reset();
  ForEachRank(3, [&](int rank) {
    if (rank == 1) return;
    Communicator& communicator = *island->ranks[rank];
    std::vector<float> values(1000);
    const auto dead = IsUnavailable("rank 1 is dead");
    EXPECT_THAT(communicator.ReduceScatter(absl::MakeSpan(values)), dead);
    EXPECT_THAT(communicator.AllGather(absl::MakeSpan(values)), dead);
  });
}

TEST_P(CommunicatorTest, ARankThatDoesNotComeIsNamedInTime) {
  const auto island = MakeIsland(3, absl::Milliseconds(300));
  ForEachRank(3, [&](int rank) {
    if (rank == 2) return;
    std::vector<float> values(1000);
    const Clock now = SteadyWallClock();
    const absl::Time begin = now();
    EXPECT_THAT(
        island->ranks[rank]->AllGather(absl::MakeSpan(values)),
        IsDeadlineExceeded("rank 2 is stuck", "all-gather", "number 1"));
    EXPECT_LT(now() - begin, absl::Seconds(10));
  });
}

TEST_P(CommunicatorTest, AStuckAllToAllSaysHowManyBytesItWaitsFor) {
  const auto island = MakeIsland(2, absl::Milliseconds(300));
  std::string bytes(7, 'x');
  EXPECT_THAT(
      island->ranks[1]->AllToAll({}, {absl::MakeSpan(&bytes[0], 7)}),
      IsDeadlineExceeded("rank 0 is stuck", "all-to-all", "of 7 bytes"));
}

TEST_P(CommunicatorTest, AbortTellsEverybodyWhy) {
  const auto island = MakeIsland(3);
  ForEachRank(3, [&](int rank) {
    Communicator& communicator = *island->ranks[rank];
    std::vector<float> values(1000);
    const auto told = StatusIs(absl::StatusCode::kAborted,
                               "rank 1 has given up: out of data");
    if (rank == 1) {
      communicator.Abort(absl::NotFoundError("out of data"));
    }
    EXPECT_THAT(communicator.ReduceScatter(absl::MakeSpan(values)), told);
    EXPECT_THAT(communicator.ReduceScatter(absl::MakeSpan(values)), told);
  });
}

TEST_P(CommunicatorTest, DifferentOperationsAreRefused) {
  const auto island = MakeIsland(2);
  ForEachRank(2, [&](int rank) {
    Communicator& communicator = *island->ranks[rank];
    std::vector<float> values(100 + rank);
    EXPECT_THAT(
        communicator.AllGather(absl::MakeSpan(values)),
        IsFailedPrecondition("404 bytes", "400 bytes", "rank 0", "rank 1"));
  });
}

// The operations have equally many bytes: only their kinds show the error.
TEST_P(CommunicatorTest, OperationsOfAnotherKindOrRootAreRefused) {
  using Start =
      std::function<absl::Status(Communicator&, std::vector<double>&)>;
  const auto floats = [](std::vector<double>& values) {
    return absl::MakeSpan(reinterpret_cast<float*>(values.data()),
                          2 * values.size());
  };
  const auto bytes = [](std::vector<double>& values) {
    return absl::MakeSpan(reinterpret_cast<char*>(values.data()),
                          sizeof(double) * values.size());
  };
  const std::pair<const char*, Start> operations[] = {
      {"reduce-scatter of 320 bytes with root 0",
       [&](Communicator& communicator, std::vector<double>& values) {
         return communicator.ReduceScatter(floats(values));
       }},
      {"all-gather of 320 bytes with root 0",
       [&](Communicator& communicator, std::vector<double>& values) {
         return communicator.AllGather(floats(values));
       }},
      {"all-reduce of 320 bytes with root 0",
       [](Communicator& communicator, std::vector<double>& values) {
         return communicator.AllReduce(absl::MakeSpan(values));
       }},
      {"broadcast of 320 bytes with root 0",
       [&](Communicator& communicator, std::vector<double>& values) {
         return communicator.Broadcast(0, bytes(values));
       }},
      {"broadcast of 320 bytes with root 1",
       [&](Communicator& communicator, std::vector<double>& values) {
         return communicator.Broadcast(1, bytes(values));
       }},
      {"all-to-all of 320 bytes with root 0",
       [&](Communicator& communicator, std::vector<double>& values) {
         std::vector<absl::Span<const char>> to(2, bytes(values));
         std::vector<absl::Span<char>> from(2, bytes(values));
         return communicator.AllToAll(to, from);
       }}};
  for (const auto& [name, start] : operations) {
    for (const auto& [other_name, other_start] : operations) {
      if (name == other_name) continue;
      const auto island = MakeIsland(2);
      ForEachRank(2, [&, name = name, start = start, other_name = other_name,
                      other_start = other_start](int rank) {
        std::vector<double> values(40);
        EXPECT_THAT(
            (rank == 0 ? start : other_start)(*island->ranks[rank], values),
            IsFailedPrecondition(name, other_name, "rank 0", "rank 1"));
      });
    }
  }
}

TEST_P(CommunicatorTest, OneRankNeedsNobody) {
  const auto island = MakeIsland(1);
  std::vector<float> values = {1, 2, 3};
  EXPECT_OK(island->ranks[0]->ReduceScatter(absl::MakeSpan(values)));
  EXPECT_OK(island->ranks[0]->AllGather(absl::MakeSpan(values)));
  EXPECT_THAT(values, ElementsAre(1, 2, 3));
}

TEST_P(CommunicatorTest, TimesSayWhoWasAwayAndWhatCame) {
  // The clock of rank 1 advances by an hour between two operations: rank 1 is
  // the slow one, whichever rank waits.
  absl::Mutex mu;
  absl::Duration ahead;
  const auto clock = [&](int rank) -> Clock {
    const Clock steady = SteadyWallClock();
    if (rank != 1) return steady;
    return [steady, &mu, &ahead] {
      absl::MutexLock lock(&mu);
      return steady() + ahead;
    };
  };
  const auto island = MakeIsland(2, absl::Seconds(60), clock);
  ForEachRank(2, [&](int rank) {
    double value = 0;
    EXPECT_OK(island->ranks[rank]->AllReduce(absl::MakeSpan(&value, 1)));
  });
  {
    absl::MutexLock lock(&mu);
    ahead = absl::Hours(1);
  }
  ForEachRank(2, [&](int rank) {
    std::vector<float> values(1000);
    EXPECT_OK(island->ranks[rank]->AllGather(absl::MakeSpan(values)));
  });
  for (int rank = 0; rank < 2; ++rank) {
    const std::vector<CollectiveTimes> times = island->ranks[rank]->TakeTimes();
    ASSERT_EQ(times.size(), 2);
    EXPECT_EQ(times[0].collective, Collective::kAllReduce);
    EXPECT_EQ(times[1].collective, Collective::kAllGather);
    EXPECT_EQ(times[1].sequence, 2);
    EXPECT_LT(times[1].peers[0].away, absl::Minutes(1));
    EXPECT_GE(times[1].peers[1].away, absl::Hours(1));
    EXPECT_EQ(times[1].peers[1 - rank].bytes,
              4 * island->ranks[rank]->shard(1000, 1 - rank).size());
    EXPECT_GE(times[1].duration, times[1].peers[1 - rank].wait +
                                     times[1].peers[1 - rank].transfer);
    EXPECT_TRUE(island->ranks[rank]->TakeTimes().empty());
  }
}

// --- Devices that fail.

// The process is stopped in the middle of an operation, but clocks run on.
TEST_P(CommunicatorTest, AProcessThatWasStoppedBlamesNoOther) {
  std::atomic<int> hours = 0;
  const auto clock = [&](int /*rank*/) -> Clock {
    return [&, steady = SteadyWallClock()] {
      return steady() + absl::Hours(hours.load());
    };
  };
  const auto island = MakeIsland(3, absl::Seconds(60), clock);
  ForEachRank(3, [&](int rank) {
    if (rank == 2) {
      absl::SleepFor(absl::Milliseconds(100));
      hours = 1;
      // Sleeps longer than ranks wait before they look at the clock.
      absl::SleepFor(2 * TimeLimit::kSlice);
      hours = 2;
    }
    double value = 1;
    EXPECT_OK(island->ranks[rank]->AllReduce(absl::MakeSpan(&value, 1)));
    EXPECT_EQ(value, 3);
  });
}

// A device like NCCL whose peer is gone: ends at its deadline, or by Abort.
class FakeDevice : public DeviceCollectives {
 public:
  using Body = std::function<absl::Status(absl::Time deadline)>;
  explicit FakeDevice(Body body) : body_(std::move(body)) {}
  absl::Status ReduceScatter(const DeviceVectors&,
                             absl::Time deadline) override {
    return body_(deadline);
  }
  absl::Status AllGather(const DeviceVectors&, absl::Time deadline) override {
    return body_(deadline);
  }
  void Abort() override {}

 private:
  const Body body_;
};

// Returns the results of ranks whose devices run `bodies`. The communicators
// live until all ranks are done.
std::vector<absl::Status> WithDevices(
    const std::vector<FakeDevice::Body>& bodies) {
  const int size = static_cast<int>(bodies.size());
  LocalRendezvous rendezvous;
  auto transports = MakeLocalTransports(size);
  std::vector<std::unique_ptr<Communicator>> ranks;
  for (int rank = 0; rank < size; ++rank) {
    ranks.push_back(MakeMessageCommunicator(
        {.timeout = absl::Seconds(1), .now = SteadyWallClock()},
        std::move(transports[rank]), &rendezvous,
        std::make_unique<FakeDevice>(bodies[rank])));
  }
  std::vector<absl::Status> statuses(size);
  ForEachRank(size, [&](int rank) {
    std::vector<float> values(100);
    statuses[rank] = ranks[rank]->ReduceScatter(absl::MakeSpan(values));
  });
  return statuses;
}

TEST(DeviceCollectivesTest, ADeviceThatFailsIsNamedWithItsReason) {
  const auto works = [](absl::Time) { return absl::OkStatus(); };
  const std::vector<absl::Status> statuses = WithDevices(
      {works, [](absl::Time) { return absl::InternalError("xid 79"); }, works});
  EXPECT_THAT(statuses[1], IsInternal("xid 79"));
  for (const int rank : {0, 2}) {
    EXPECT_THAT(statuses[rank], IsAborted("rank 1 has given up: xid 79"));
  }
}

TEST(DeviceCollectivesTest, ADeviceThatOthersWaitForIsNamedWithItsReason) {
  const auto waits = [&](absl::Time deadline) -> absl::Status {
    absl::SleepFor(deadline - SteadyWallClock()());
    return absl::DeadlineExceededError("NCCL did not finish");
  };
  const std::vector<absl::Status> statuses = WithDevices(
      {waits, [](absl::Time) { return absl::DataLossError("ECC"); }, waits});
  EXPECT_THAT(statuses[1], IsDataLoss("ECC"));
  for (const int rank : {0, 2}) {
    EXPECT_THAT(statuses[rank], IsAborted("rank 1 has given up: ECC"));
  }
}

TEST(DeviceCollectivesTest, ARankThatIsStuckInADeviceIsNamed) {
  absl::BlockingCounter others(2);
  const auto waits = [&](absl::Time deadline) -> absl::Status {
    absl::SleepFor(deadline - SteadyWallClock()());
    others.DecrementCount();
    return absl::DeadlineExceededError("the device did not finish");
  };
  const std::vector<absl::Status> statuses = WithDevices(
      {waits,
       [&](absl::Time) {
         others.Wait();
         absl::SleepFor(absl::Seconds(4));  // Longer than outcomes take.
         return absl::OkStatus();
       },
       waits});
  for (const int rank : {0, 2}) {
    EXPECT_THAT(statuses[rank], IsDeadlineExceeded("rank 1 is stuck"));
  }
  EXPECT_FALSE(statuses[1].ok());
}

// Each reading of the clock advances it by a second, so waiting for headers
// takes time.
TEST(DeviceCollectivesTest, DevicesHaveTheWholeTimeLimitAfterALateRank) {
  constexpr absl::Duration kTimeout = absl::Minutes(10);
  LocalRendezvous rendezvous;
  auto transports = MakeLocalTransports(2);
  std::vector<absl::Time> clocks(2, absl::FromUnixSeconds(0));
  std::vector<std::unique_ptr<Communicator>> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    absl::Time& clock = clocks[rank];
    ranks.push_back(MakeMessageCommunicator(
        {.timeout = kTimeout, .now = [&] { return clock += absl::Seconds(1); }},
        std::move(transports[rank]), &rendezvous,
        std::make_unique<FakeDevice>([&](absl::Time deadline) {
          EXPECT_EQ(deadline, clock + kTimeout);
          return absl::OkStatus();
        })));
  }
  ForEachRank(2, [&](int rank) {
    std::vector<float> values(100);
    EXPECT_OK(ranks[rank]->ReduceScatter(absl::MakeSpan(values)));
  });
}

TEST(DeviceCollectivesTest, WithEveryRankThereTheFailureIsTheDevices) {
  const auto fails = [](absl::Time) {
    return absl::DeadlineExceededError("NCCL did not finish");
  };
  for (const absl::Status& status : WithDevices({fails, fails})) {
    EXPECT_THAT(status, IsDeadlineExceeded("NCCL did not finish"));
  }
}

}  // namespace
}  // namespace causeway
