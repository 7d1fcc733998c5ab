// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Measures the cost of a commit: writing a fragment's file, reading it back
// with verification, and the transaction. Writes below $TEST_TMPDIR, or /tmp.
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "benchmark/benchmark.h"
#include "common/testing/temporary_directory.h"
#include "glog/logging.h"
#include "server/storage/commit_log.h"
#include "server/storage/fragment_store.h"
#include "server/storage/state_directory.h"

namespace causeway {
namespace {

// A state directory that is removed at the end.
class Scratch {
 public:
  Scratch() {
    auto state = StateDirectory::Open(directory_.path(), {});
    CHECK(state.ok()) << state.status();
    state_ = *std::move(state);
  }

  StateDirectory& state() { return *state_; }

 private:
  const TemporaryDirectory directory_ =
      *TemporaryDirectory::Make("causeway-storage");
  std::unique_ptr<StateDirectory> state_;
};

FragmentContents ContentsOf(const std::vector<float>& values) {
  return {.run_id = "run-1", .theta = values, .momentum = values};
}

// Writes theta and momentum. The argument is the number of values in the
// fragment.
void BM_WriteFragment(benchmark::State& run) {
  Scratch scratch;
  const std::vector<float> values(static_cast<size_t>(run.range(0)), 0.5f);
  FragmentContents contents = ContentsOf(values);
  for (auto _ : run) {
    CHECK(scratch.state().fragments().WriteFragment(contents).ok());
  }
  run.SetBytesProcessed(run.iterations() * run.range(0) * 8);
}
BENCHMARK(BM_WriteFragment)->Arg(1 << 14)->Arg(10'000'000)->UseRealTime();

void BM_OpenFragment(benchmark::State& run) {
  Scratch scratch;
  const std::vector<float> values(static_cast<size_t>(run.range(0)), 0.5f);
  FragmentContents contents = ContentsOf(values);
  const auto file = scratch.state().fragments().WriteFragment(contents);
  CHECK(file.ok()) << file.status();
  for (auto _ : run) {
    CHECK(scratch.state()
              .fragments()
              .OpenFragment(*file, "run-1", contents.head)
              .ok());
  }
  run.SetBytesProcessed(run.iterations() * run.range(0) * 8);
}
BENCHMARK(BM_OpenFragment)->Arg(1 << 14)->Arg(10'000'000)->UseRealTime();

// One transaction: a new head, two contributions, one event.
void BM_Commit(benchmark::State& run) {
  Scratch scratch;
  uint64_t version = 0;
  for (auto _ : run) {
    LogBatch batch{.commits = {{.update_file = "update"}}};
    batch.commits[0].head.set_version(version);
    batch.commits[0].head.set_digest(std::string(16, 'd'));
    for (const char* island : {"north", "south"}) {
      batch.contributions.push_back(
          {.base_version = version, .island_id = island, .tokens = 1});
    }
    batch.events.push_back({.kind = "round_merged", .text = "merged"});
    CHECK(scratch.state().log().Apply(batch).ok());
    ++version;
  }
  run.SetItemsProcessed(run.iterations());
}
BENCHMARK(BM_Commit)->UseRealTime();

}  // namespace
}  // namespace causeway
