// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Measures the collectives of a step, a reduce-scatter and an all-gather,
// between ranks that are connected over loopback.
#include <cstdint>
#include <thread>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "benchmark/benchmark.h"
#include "common/clock.h"
#include "glog/logging.h"
#include "worker/collective/communicator.h"
#include "worker/collective/message_communicator.h"
#include "worker/collective/rendezvous.h"
#include "worker/collective/tcp_transport.h"

namespace causeway {
namespace {

// Runs one rank: calls `again` before each step, and ends when it returns false
// on rank 0.
template <typename Again>
void RunRank(int rank, int size, bool encrypt, int64_t values,
             Rendezvous* rendezvous, Again again) {
  auto transport = ConnectTcp({.rank = rank,
                               .size = size,
                               .host = "127.0.0.1",
                               .encrypt = encrypt,
                               .now = SteadyWallClock()},
                              rendezvous);
  CHECK(transport.ok()) << transport.status();
  const auto communicator = MakeMessageCommunicator(
      {.now = SteadyWallClock()}, *std::move(transport), rendezvous);
  std::vector<float> vector(values);
  for (;;) {
    char go = again() ? 1 : 0;
    CHECK(communicator->Broadcast(0, absl::MakeSpan(&go, 1)).ok());
    if (go == 0) return;
    CHECK(communicator->ReduceScatter(absl::MakeSpan(vector)).ok());
    CHECK(communicator->AllGather(absl::MakeSpan(vector)).ok());
  }
}

void BM_Step(benchmark::State& state, bool encrypt) {
  const int size = static_cast<int>(state.range(0));
  const int64_t values = state.range(1);
  LocalRendezvous rendezvous;
  std::vector<std::thread> others;
  for (int rank = 1; rank < size; ++rank) {
    others.emplace_back([&, rank] {
      RunRank(rank, size, encrypt, values, &rendezvous, [] { return true; });
    });
  }
  RunRank(0, size, encrypt, values, &rendezvous,
          [&] { return state.KeepRunning(); });
  for (std::thread& other : others) other.join();
  state.SetBytesProcessed(state.iterations() * values *
                          static_cast<int64_t>(sizeof(float)));
}

BENCHMARK_CAPTURE(BM_Step, plain, false)
    ->ArgNames({"ranks", "values"})
    ->ArgsProduct({{2, 4}, {1 << 10, 16 << 20}})
    ->UseRealTime();
BENCHMARK_CAPTURE(BM_Step, encrypted, true)
    ->ArgNames({"ranks", "values"})
    ->ArgsProduct({{2, 4}, {1 << 10, 16 << 20}})
    ->UseRealTime();

}  // namespace
}  // namespace causeway
