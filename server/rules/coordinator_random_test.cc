// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Random histories: islands that follow the protocol come, fall silent, return
// and leave, while others misbehave and commits fail. After every event the
// invariants of a run must hold, and once the faults stop, the run must finish.
//
// A failure prints its seed. To repeat that history alone:
//   CAUSEWAY_SEED=17 bazel-bin/server/rules/coordinator_random_test
#include <cstdint>
#include <cstdlib>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/rules/coordinator.h"
#include "server/rules/testing/coordinator_driver.h"

namespace causeway {
namespace {

constexpr uint64_t kHistories = 2000;
constexpr int kFaultyEvents = 120;
// Generous: a round takes only a few.
constexpr int kHealthyTicks = 400;
constexpr absl::Duration kTick = absl::Seconds(2);

// The process of an island that follows the protocol.
struct Island {
  std::string name;
  uint64_t instance = 0;
  std::optional<v1::IslandIdentity> identity;
  std::vector<uint64_t> first_contribution_version;
  // Silent islands do nothing, and their leases run out.
  bool silent = false;
  // How often the process was replaced. Each process trains other bytes.
  int life = 0;
};

class History {
 public:
  explicit History(uint64_t seed)
      : random_(seed),
        options_(RandomOptions()),
        run_(options_),
        versions_(options_.fragments, 0) {
    for (uint32_t i = 0; i < options_.max_islands; ++i) {
      islands_.push_back({.name = std::string(1, static_cast<char>('a' + i)),
                          .instance = ++instances_});
    }
  }

  void Run() {
    for (int i = 0; i < kFaultyEvents && !testing::Test::HasFailure(); ++i) {
      Disturb();
      Check();
    }
    for (Island& island : islands_) island.silent = false;
    for (int i = 0; i < kHealthyTicks && !testing::Test::HasFailure(); ++i) {
      if (run_.core().run_state() == v1::FINISHED) return;
      for (Island& island : islands_) Live(island);
      while (!run_.closed_rounds().empty()) Commit();
      Pass(kTick);
      Check();
    }
    EXPECT_EQ(run_.core().run_state(), v1::FINISHED) << "the run hangs";
  }

 private:
  uint64_t Pick(uint64_t below) { return random_() % below; }
  bool OneIn(uint64_t n) { return Pick(n) == 0; }

  CoordinatorDriver::Options RandomOptions() {
    CoordinatorDriver::Options options;
    options.max_islands = 1 + static_cast<uint32_t>(Pick(4));
    options.min_islands = 1 + static_cast<uint32_t>(Pick(options.max_islands));
    options.quorum = 1 + static_cast<uint32_t>(Pick(options.max_islands));
    options.fragments = 1 + static_cast<uint32_t>(Pick(3));
    options.rounds = 1 + Pick(4);
    return options;
  }

  void Disturb() {
    Island& island = islands_[Pick(islands_.size())];
    switch (Pick(10)) {
      case 0:
        island.silent = !island.silent;
        break;
      case 1:
        // The process dies, and another takes its place at once or later.
        if (island.identity.has_value()) fenced_.push_back(*island.identity);
        island.identity.reset();
        island.instance = ++instances_;
        ++island.life;
        break;
      case 2:
        if (island.identity.has_value() && OneIn(3)) {
          fenced_.push_back(*island.identity);
          run_.Leave(*island.identity).IgnoreError();
          island.identity.reset();
        }
        break;
      case 3:
        Misbehave();
        break;
      case 4:
        Pass(absl::Seconds(static_cast<int64_t>(Pick(15))));
        break;
      case 5:
      case 6:
        if (!run_.closed_rounds().empty()) OneIn(3) ? Fail() : Commit();
        break;
      default:
        Live(island);
    }
  }

  void Pass(absl::Duration duration) {
    run_.Advance(duration);
    run_.Tick();
  }

  // One step of an island that follows the protocol.
  void Live(Island& island) {
    if (island.silent) return;
    if (!island.identity.has_value()) {
      const auto joined = run_.TryJoin(island.name, island.instance);
      if (!joined.ok()) return;
      island.identity = joined->identity();
      run_.BeReady(*joined);
    }
    if (absl::IsAborted(run_.Heartbeat(*island.identity))) {
      fenced_.push_back(*island.identity);
      island.identity.reset();
      return;
    }
    const v1::SessionResponse view = run_.core().View(*island.identity);
    for (uint32_t fragment = 0; fragment < versions_.size(); ++fragment) {
      const uint64_t version = view.heads(fragment).version();
      if (view.run_state() == v1::WAITING_FOR_ISLANDS ||
          version >= options_.rounds ||
          view.first_contribution_version(fragment) > version) {
        continue;
      }
      const v1::ContributionHeader header = Contribution(
          *island.identity, version, fragment, absl::StrCat(island.life));
      EXPECT_OK(run_.Contribute(header));
      if (OneIn(4)) {
        EXPECT_OK(run_.Contribute(header)) << "a retry";
      }
    }
  }

  // Makes calls that must be refused or change nothing.
  void Misbehave() {
    const uint32_t fragment = static_cast<uint32_t>(Pick(versions_.size()));
    if (fenced_.empty()) return;
    const v1::IslandIdentity ghost = fenced_[Pick(fenced_.size())];
    if (run_.core().Check(ghost).ok()) return;  // Its lease has not run out.
    EXPECT_THAT(run_.Contribute(Contribution(ghost, versions_[fragment],
                                             fragment, "ghost")),
                IsAborted());
    EXPECT_THAT(run_.Heartbeat(ghost), IsAborted());
    EXPECT_THAT(run_.Leave(ghost), IsAborted());
    v1::IslandIdentity foreign = ghost;
    foreign.set_run_id("run-2");
    EXPECT_THAT(run_.Heartbeat(foreign), IsFailedPrecondition());
  }

  // Lets the orders of several fragments be answered in any order.
  void Rotate() {
    const size_t turns = Pick(run_.closed_rounds().size());
    for (size_t i = 0; i < turns; ++i) {
      run_.closed_rounds().push_back(run_.closed_rounds().front());
      run_.closed_rounds().pop_front();
    }
  }
  void Fail() {
    Rotate();
    run_.Fail(absl::UnavailableError("disk"));
  }
  void Commit() {
    Rotate();
    for (const v1::ContributionHeader& header :
         run_.closed_rounds().front().contributions) {
      const ContributionKey key = KeyOf(header);
      EXPECT_TRUE(merged_.insert(key).second) << "merged twice";
      EXPECT_TRUE(merged_bytes_
                      .insert({key.fragment, key.base_version, key.island_id,
                               header.object().digest()})
                      .second)
          << "the same bytes were merged twice";
    }
    run_.Commit();
  }

  void Check() {
    std::set<uint32_t> merging;
    for (const ClosedRound& closed : run_.closed_rounds()) {
      EXPECT_TRUE(merging.insert(closed.fragment).second)
          << "two outer steps of one fragment at a time";
      EXPECT_EQ(closed.base_version, run_.version(closed.fragment));
      EXPECT_GE(closed.contributions.size(), options_.quorum);
      for (size_t i = 0; i < closed.contributions.size(); ++i) {
        const ContributionKey key = KeyOf(closed.contributions[i]);
        EXPECT_EQ(key.fragment, closed.fragment);
        EXPECT_EQ(key.base_version, closed.base_version);
        EXPECT_TRUE(i == 0 || KeyOf(closed.contributions[i - 1]) < key);
      }
    }
    uint64_t tokens = 0;
    for (const auto& [name, member] : run_.core().membership().members()) {
      EXPECT_GE(member.incarnation, incarnations_[name]);
      incarnations_[name] = member.incarnation;
      tokens += member.tokens_merged;
    }
    EXPECT_LE(tokens, 1000 * merged_.size());
    for (uint32_t fragment = 0; fragment < versions_.size(); ++fragment) {
      const uint64_t version = run_.version(fragment);
      EXPECT_GE(version, versions_[fragment]);
      EXPECT_LE(version, options_.rounds);
      EXPECT_EQ(run_.core().round(fragment).base_version(), version);
      EXPECT_EQ(run_.core().round(fragment).merging(),
                merging.contains(fragment));
      versions_[fragment] = version;
    }
  }

  std::mt19937_64 random_;
  const CoordinatorDriver::Options options_;
  CoordinatorDriver run_;
  uint64_t instances_ = 0;
  std::vector<Island> islands_;
  // Incarnations whose process is gone.
  std::vector<v1::IslandIdentity> fenced_;
  std::vector<uint64_t> versions_;
  std::map<std::string, uint64_t> incarnations_;
  std::set<ContributionKey> merged_;
  std::set<std::tuple<uint32_t, uint64_t, std::string, std::string>>
      merged_bytes_;
};

TEST(CoordinatorRandomTest, InvariantsHoldAndEveryRunFinishes) {
  uint64_t first = 1;
  uint64_t last = kHistories;
  if (const char* seed = std::getenv("CAUSEWAY_SEED"); seed != nullptr) {
    ASSERT_TRUE(absl::SimpleAtoi(seed, &first)) << seed;
    last = first;
  }
  for (uint64_t seed = first; seed <= last; ++seed) {
    SCOPED_TRACE(absl::StrCat("CAUSEWAY_SEED=", seed));
    History(seed).Run();
    ASSERT_FALSE(HasFailure());
  }
}

}  // namespace
}  // namespace causeway
