// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Compares an island's outer loop, by its calls of the replica and its reports,
// with the coordinator's log.
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "common/testing/status_matchers.h"
#include "gtest/gtest.h"
#include "server/storage/state_directory.h"
#include "tests/end_to_end/synthetic_run.h"

namespace causeway {
namespace {

// The calls that the replicas of an island received.
struct Told {
  // Whether the contribution was merged, by fragment and base version.
  std::map<std::pair<uint32_t, uint64_t>, bool> merged;
  // The updates of each fragment in the order in which they were applied.
  std::map<uint32_t, std::vector<bool>> applied;
};

class RecordingReplica : public FragmentReplica {
 public:
  RecordingReplica(uint32_t fragment, std::unique_ptr<FragmentReplica> replica,
                   absl::Mutex* mu, Told* told)
      : fragment_(fragment),
        replica_(std::move(replica)),
        mu_(mu),
        told_(told) {}

  absl::Status Apply(bool includes_island) override {
    absl::MutexLock lock(mu_);
    told_->applied[fragment_].push_back(includes_island);
    return replica_->Apply(includes_island);
  }
  absl::Status BeginContribution(double ecq_bits) override {
    absl::MutexLock lock(mu_);
    // This holds as long as no update is skipped.
    version_ = told_->applied[fragment_].size();
    return replica_->BeginContribution(ecq_bits);
  }
  absl::Status EndContribution(bool merged) override {
    absl::MutexLock lock(mu_);
    told_->merged[{fragment_, version_}] = merged;
    return replica_->EndContribution(merged);
  }

  uint64_t size() const override { return replica_->size(); }
  absl::Status TakeSnapshot() override { return replica_->TakeSnapshot(); }
  absl::Status SetAnchor(absl::Span<const float> values) override {
    return replica_->SetAnchor(values);
  }
  absl::Status ReadAnchor(absl::Span<float> values) override {
    return replica_->ReadAnchor(values);
  }
  absl::StatusOr<EncodedBytes> Encode(uint64_t bytes,
                                      absl::Span<char> buffer) override {
    return replica_->Encode(bytes, buffer);
  }
  absl::Status Decode(absl::string_view received) override {
    return replica_->Decode(received);
  }
  absl::StatusOr<std::string> FinishUpdate(
      absl::string_view received) override {
    return replica_->FinishUpdate(received);
  }
  absl::Status DropUpdate() override { return replica_->DropUpdate(); }
  absl::Status ReplaceAnchor(absl::Span<const float> values) override {
    return replica_->ReplaceAnchor(values);
  }

 private:
  const uint32_t fragment_;
  const std::unique_ptr<FragmentReplica> replica_;
  absl::Mutex* const mu_;
  Told* const told_;
  uint64_t version_ = 0;
};

class OuterLoopTest : public testing::Test {
 protected:
  // Makes the island's replicas record their calls.
  auto Record(Told* told) {
    return [this, told](uint32_t fragment,
                        std::unique_ptr<FragmentReplica> replica) {
      return std::make_unique<RecordingReplica>(fragment, std::move(replica),
                                                &mu_, told);
    };
  }

  // Returns whether the log has the island in the round from `version`.
  bool IsIn(const std::string& island, uint32_t fragment,
            uint64_t version) const {
    const auto state = StateDirectory::OpenReadOnly(state_dir_);
    EXPECT_OK(state);
    const auto merged = (*state)->log().MergedContributions(fragment, version);
    EXPECT_OK(merged);
    for (const ContributionRecord& record : *merged) {
      if (record.island_id == island) return true;
    }
    return false;
  }

  const std::string state_dir_ = NewStateDir();
  absl::Mutex mu_;
};

TEST_F(OuterLoopTest, ReplicasHearWhatWasMerged) {
  v1::RunConfig config = SyntheticConfig();
  config.mutable_synchronization()->set_fragments(3);
  config.mutable_synchronization()->set_overlap_steps(2);
  config.mutable_training()->set_total_steps(80);
  config.mutable_membership()->set_drop_contributions(0.4);
  Told told[2];
  RunIslands(config, state_dir_,
             {{.name = "east",
               .target = 1,
               .instance_id = 1,
               .wrap_replica = Record(&told[0])},
              {.name = "west",
               .target = -3,
               .instance_id = 2,
               .wrap_replica = Record(&told[1])}});
  std::map<bool, int> seen;
  for (const int island : {0, 1}) {
    const std::string name = island == 0 ? "east" : "west";
    for (const auto& [of, merged] : told[island].merged) {
      const auto [fragment, version] = of;
      EXPECT_EQ(merged, IsIn(name, fragment, version))
          << name << ", fragment " << fragment << ", version " << version;
      ++seen[merged];
    }
    for (const auto& [fragment, applied] : told[island].applied) {
      for (uint64_t version = 0; version < applied.size(); ++version) {
        EXPECT_EQ(applied[version], IsIn(name, fragment, version)) << version;
      }
    }
  }
  EXPECT_GT(seen[true], 10);
  EXPECT_GT(seen[false], 10);
}

TEST_F(OuterLoopTest, VersionsThatAreSkippedAreOneStep) {
  v1::RunConfig config = SyntheticConfig();
  config.mutable_training()->set_total_steps(90);
  config.mutable_membership()->set_quorum(1);
  config.mutable_membership()->set_grace_seconds(0);
  config.mutable_storage()->set_update_history(2);
  ASSERT_OK_AND_ASSIGN(auto coordinator,
                       CoordinatorUnderTest::Start(config, state_dir_));
  absl::Notification far_ahead;
  absl::Notification caught_up;
  Told told;
  IslandUnderTest west({.name = "west",
                        .address = coordinator->address(),
                        .target = -3,
                        .instance_id = 2,
                        .before_step =
                            [&](uint64_t step) {
                              if (step == 3) far_ahead.WaitForNotification();
                              if (step > 60 && !caught_up.HasBeenNotified()) {
                                caught_up.Notify();
                              }
                              return absl::OkStatus();
                            },
                        .wrap_replica = Record(&told)});
  IslandUnderTest east({.name = "east",
                        .address = coordinator->address(),
                        .target = 1,
                        .instance_id = 1,
                        .before_step = [&](uint64_t step) {
                          if (step == 61) {
                            far_ahead.Notify();
                            caught_up.WaitForNotification();
                          }
                          return absl::OkStatus();
                        }});
  EXPECT_OK(west.Join());
  EXPECT_OK(east.Join());
  const std::vector<bool>& applied = told.applied[0];
  // The update to the first version came while west stood still; the following
  // ones, up to the sixth at least, were no longer kept.
  ASSERT_GE(applied.size(), 2);
  EXPECT_LE(applied.size(), 9 - 4);
  EXPECT_FALSE(applied[1]);
}

// West comes late to its first send; east waits for it, and later stands still
// for another reason.
TEST_F(OuterLoopTest, OnlyWaitsForUpdatesCountAsWaits) {
  const v1::RunConfig config = SyntheticConfig();
  ASSERT_OK_AND_ASSIGN(auto coordinator,
                       CoordinatorUnderTest::Start(config, state_dir_));
  constexpr int64_t kStandstill = 1000;
  std::atomic<int64_t> later_by = 0;
  absl::Notification east_waits;
  absl::Notification reported;
  IslandUnderTest east(
      {.name = "east",
       .address = coordinator->address(),
       .instance_id = 1,
       .before_step =
           [&](uint64_t step) {
             if (step == 12) later_by += kStandstill;
             if (step == 15) reported.WaitForNotification();
             return absl::OkStatus();
           },
       .now = [&] { return absl::Now() + absl::Seconds(later_by.load()); }});
  IslandUnderTest west({.name = "west",
                        .address = coordinator->address(),
                        .instance_id = 2,
                        .before_step = [&](uint64_t step) {
                          if (step == 5) east_waits.WaitForNotification();
                          return absl::OkStatus();
                        }});
  coordinator->AwaitProgress([](const v1::IslandProgress& progress) {
    return progress.run_step() == 10 && progress.wait_seconds() > 0;
  });
  east_waits.Notify();
  const v1::IslandProgress after =
      coordinator->AwaitProgress([](const v1::IslandProgress& progress) {
        return progress.run_step() == 14;
      });
  EXPECT_GT(after.wait_seconds(), 0);
  EXPECT_LT(after.wait_seconds(), kStandstill);
  reported.Notify();
  EXPECT_OK(east.Join());
  EXPECT_OK(west.Join());
}

}  // namespace
}  // namespace causeway
