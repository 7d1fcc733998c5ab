// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// What a commit costs: writing a fragment's file, reading it back verified,
// and the transaction. Writes below $TEST_TMPDIR, or /tmp.
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "benchmark/benchmark.h"
#include "glog/logging.h"
#include "server/commit_log.h"
#include "server/fragment_store.h"
#include "server/state_directory.h"

namespace causeway {
namespace {

// A state directory of its own, removed at the end.
class Scratch {
 public:
  Scratch() {
    const char* parent = std::getenv("TEST_TMPDIR");
    path_ = absl::StrCat(parent == nullptr ? "/tmp" : parent,
                         "/storage_benchmark-XXXXXX");
    CHECK(mkdtemp(path_.data()) != nullptr) << path_;
    auto state = StateDirectory::Open(path_, {});
    CHECK(state.ok()) << state.status();
    state_ = *std::move(state);
  }

  ~Scratch() {
    state_.reset();
    CHECK_EQ(std::system(absl::StrCat("rm -r '", path_, "'").c_str()), 0);
  }

  StateDirectory& state() { return *state_; }

 private:
  std::string path_;
  std::unique_ptr<StateDirectory> state_;
};

FragmentContents ContentsOf(const std::vector<float>& values) {
  return {.run_id = "run-1", .theta = values, .momentum = values};
}

// Argument: values of the fragment; theta and momentum are written.
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
    LogBatch batch{.commits = {{.file = "file", .update_file = "update"}}};
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
