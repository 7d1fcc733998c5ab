// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/island_checkpoint.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/os/file.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

using testing::HasSubstr;

std::string Directory(const char* name) {
  return absl::StrCat(std::getenv("TEST_TMPDIR"), "/", name);
}

IslandState SomeState(uint64_t step) {
  IslandState state{.anchors = {4, 5, 6},
                    .trainer = {.parameters = {1, 2, 3},
                                .optimizer = {.updates = step,
                                              .first_moment = {7, 8, 9},
                                              .second_moment = {10, 11, 12}},
                                .next_micro_batch = 77,
                                .micro_batch_size = 2}};
  state.position.set_run_id("run-1");
  state.position.set_instance_id(5);
  state.position.set_run_step(step);
  auto& fragment = *state.position.add_fragments();
  fragment.mutable_anchor()->set_version(3);
  fragment.set_tokens(640);
  return state;
}

// The write begins when it reads the clock.
TEST(IslandCheckpointTest, AStuckDiskDelaysTheEndByTheLimitOnly) {
  const std::string directory = Directory("still");
  absl::Notification go_on;
  {
    const auto store =
        IslandCheckpointStore::Open(directory, absl::Milliseconds(10));
    ASSERT_OK(store.status());
    (*store)->SaveLater(SomeState(10), [&go_on] {
      go_on.WaitForNotification();
      return absl::Now();
    });
    EXPECT_THAT((*store)->Remove(),
                IsUnavailable("checkpoint of step 10 is not in", directory));
  }
  // No other process can use the directory while the write may continue.
  EXPECT_THAT(IslandCheckpointStore::Open(directory), IsFailedPrecondition());
  go_on.Notify();
  absl::StatusOr<std::unique_ptr<IslandCheckpointStore>> next;
  do {
    next = IslandCheckpointStore::Open(directory);
  } while (absl::IsFailedPrecondition(next.status()));
  ASSERT_OK(next.status());
  EXPECT_THAT((*next)->SavedStep(), IsOkAndHolds(10));
}

TEST(IslandCheckpointTest, TheLastOneSavedComesBack) {
  const std::string directory = Directory("last");
  {
    const auto store = IslandCheckpointStore::Open(directory);
    ASSERT_OK(store.status());
    const auto none = (*store)->Load();
    ASSERT_OK(none.status());
    EXPECT_FALSE(none->has_value());
    (*store)->SaveLater(SomeState(10), absl::Now);
    (*store)->SaveLater(SomeState(20), absl::Now);
  }
  const auto store = IslandCheckpointStore::Open(directory);
  ASSERT_OK(store.status());
  const auto loaded = (*store)->Load();
  ASSERT_OK(loaded.status());
  ASSERT_TRUE(loaded->has_value());
  const IslandState& state = **loaded;
  const IslandState want = SomeState(20);
  EXPECT_EQ(state.position.run_step(), 20);
  EXPECT_EQ(state.position.fragments(0).tokens(), 640);
  EXPECT_EQ(state.trainer.parameters, want.trainer.parameters);
  EXPECT_EQ(state.anchors, want.anchors);
  EXPECT_EQ(state.trainer.optimizer.updates, 20);
  EXPECT_EQ(state.trainer.next_micro_batch, 77);
  EXPECT_EQ(state.trainer.micro_batch_size, 2);
  EXPECT_EQ(state.trainer.optimizer.first_moment,
            want.trainer.optimizer.first_moment);
  EXPECT_EQ(state.trainer.optimizer.second_moment,
            want.trainer.optimizer.second_moment);
}

TEST(IslandCheckpointTest, LeastWriteIsTheShortest) {
  const auto store = IslandCheckpointStore::Open(Directory("shortest"));
  ASSERT_OK(store.status());
  EXPECT_EQ((*store)->least_write(), absl::InfiniteDuration());
  for (const int seconds : {3, 2, 4}) {
    absl::Time now = absl::UnixEpoch();
    (*store)->SaveLater(SomeState(10),
                        [&] { return now += absl::Seconds(seconds); });
    while ((*store)->busy()) std::this_thread::yield();
  }
  EXPECT_EQ((*store)->least_write(), absl::Seconds(2));
}

// Returns a store that has the state of a step, if that is not 0.
std::unique_ptr<IslandCheckpointStore> StoreWith(const char* name,
                                                 uint64_t step) {
  auto store = IslandCheckpointStore::Open(Directory(name));
  EXPECT_OK(store.status());
  if (step != 0) {
    EXPECT_OK((*store)->Save(SomeState(step)));
  }
  return *std::move(store);
}

// Changes the last byte of a checkpoint, which belongs to a moment.
void DamageLastByte(const std::string& path) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(-1, std::ios::end);
  const char last = static_cast<char>(file.get());
  file.seekp(-1, std::ios::end);
  file.put(static_cast<char>(last ^ 1));
}

TEST(IslandCheckpointTest, TheNewestOfTwoStoresCounts) {
  const auto newest = [](const IslandCheckpointStore* store,
                         const IslandCheckpointStore* recent) {
    const auto state = LoadNewest(store, recent);
    EXPECT_OK(state.status());
    return state.ok() && state->has_value() ? (*state)->position.run_step() : 0;
  };
  const auto store = StoreWith("newest", 10);
  const auto newer = StoreWith("newer", 12);
  const auto older = StoreWith("older", 8);
  const auto empty = StoreWith("empty", 0);
  EXPECT_EQ(newest(store.get(), newer.get()), 12);
  EXPECT_EQ(newest(store.get(), older.get()), 10);
  EXPECT_EQ(newest(store.get(), empty.get()), 10);
  EXPECT_EQ(newest(store.get(), nullptr), 10);
  EXPECT_EQ(newest(empty.get(), older.get()), 8);
  EXPECT_EQ(newest(nullptr, older.get()), 8);
  EXPECT_EQ(newest(nullptr, nullptr), 0);

  // A copy counts, too, even if a process has locked its directory.
  const auto copied = [&](const char* copy) -> IslandState {
    const auto state = LoadNewest(store.get(), older.get(), Directory(copy));
    EXPECT_OK(state.status());
    return state.ok() && state->has_value() ? **state : IslandState();
  };
  EXPECT_EQ(copied("newer").position.run_step(), 12);
  EXPECT_EQ(copied("newer").position.instance_id(), 0);
  EXPECT_EQ(copied("older").position.run_step(), 10);
  EXPECT_EQ(copied("older").position.instance_id(),
            (*store->Load())->position.instance_id());
  EXPECT_EQ(copied("missing").position.run_step(), 10);

  // Only the newest state's values are read.
  DamageLastByte(Directory("older") + "/island.safetensors");
  EXPECT_EQ(newest(store.get(), older.get()), 10);
  EXPECT_THAT(older->SavedStep(), IsOkAndHolds(std::optional<uint64_t>(8)));
  EXPECT_THAT(older->Load(), IsDataLoss());
  EXPECT_EQ(newest(empty.get(), older.get()), 0);

  ASSERT_OK(WriteFileAtomically(Directory("newer") + "/island.safetensors",
                                {"not a checkpoint"}));
  EXPECT_EQ(newest(store.get(), newer.get()), 10);
  EXPECT_EQ(newest(empty.get(), newer.get()), 0);
  EXPECT_EQ(copied("newer").position.run_step(), 10);
}

TEST(IslandCheckpointTest, KnowsThatAnotherProcessMayHaveContributedSince) {
  auto store = IslandCheckpointStore::Open(Directory("process"));
  ASSERT_OK(store.status());
  const IslandState saved = SomeState(10);
  ASSERT_OK((*store)->SetProcess(5));
  (*store)->SaveLater(saved, absl::Now);
  store->reset();  // Waits for it.
  store = IslandCheckpointStore::Open(Directory("process"));
  ASSERT_OK(store.status());
  const auto same = (*store)->Load();
  ASSERT_OK(same.status());
  EXPECT_EQ((*same)->position.instance_id(), 5);

  ASSERT_OK((*store)->SetProcess(1ull << 63));
  const auto other = (*store)->Load();
  ASSERT_OK(other.status());
  EXPECT_EQ((*other)->position.instance_id(), 1ull << 63);
  EXPECT_EQ((*other)->saved_by, 5);
  EXPECT_EQ((*other)->position.fragments(0).tokens(), 640);
}

TEST(IslandCheckpointTest, ARemovedCheckpointStaysAway) {
  const auto store = IslandCheckpointStore::Open(Directory("removed"));
  ASSERT_OK(store.status());
  EXPECT_OK((*store)->Remove()) << "nothing to remove";
  EXPECT_FALSE((*store)->busy());
  EXPECT_OK((*store)->SetProcess(7));
  (*store)->SaveLater(SomeState(10), absl::Now);
  EXPECT_OK((*store)->Remove());
  EXPECT_FALSE((*store)->busy()) << "the write has ended";
  const auto none = (*store)->Load();
  ASSERT_OK(none.status());
  EXPECT_FALSE(none->has_value());
  // The process of a removed checkpoint is unrelated to a later one.
  const IslandState later = SomeState(20);
  EXPECT_OK((*store)->Save(later));
  const auto state = (*store)->Load();
  ASSERT_OK(state.status());
  EXPECT_EQ((*state)->position.instance_id(), later.position.instance_id());
}

TEST(IslandCheckpointTest, TwoProcessesCannotShareADirectory) {
  const auto first = IslandCheckpointStore::Open(Directory("shared"));
  ASSERT_OK(first.status());
  EXPECT_EQ(IslandCheckpointStore::Open(Directory("shared")).status().code(),
            absl::StatusCode::kFailedPrecondition);
  // One that only reads may, and makes no directory.
  ASSERT_OK((*first)->Save(SomeState(10)));
  ASSERT_OK((*first)->SetProcess(6));
  ASSERT_OK_AND_ASSIGN(std::optional<IslandState> state,
                       IslandCheckpointStore::LoadFrom(Directory("shared")));
  ASSERT_TRUE(state.has_value());
  EXPECT_EQ(state->anchors, SomeState(10).anchors);
  EXPECT_EQ(state->position.instance_id(), 6);
  ASSERT_OK_AND_ASSIGN(state,
                       IslandCheckpointStore::LoadFrom(Directory("mistyped")));
  EXPECT_FALSE(state.has_value());
  EXPECT_FALSE(std::filesystem::exists(Directory("mistyped")));
}

TEST(IslandCheckpointTest, WhatAKilledProcessHasLeftIsRemoved) {
  const std::string directory = Directory("killed");
  StoreWith("killed", 10).reset();
  const std::string left = directory + "/island.safetensors.tmp-1";
  const std::string foreign = directory + "/thesis.tmp-1";
  for (const std::string& file : {left, foreign}) std::ofstream(file) << "x";
  const auto store = IslandCheckpointStore::Open(directory);
  ASSERT_OK(store.status());
  EXPECT_FALSE(std::filesystem::exists(left));
  EXPECT_TRUE(std::filesystem::exists(foreign));
  ASSERT_OK_AND_ASSIGN(const auto step, (*store)->SavedStep());
  EXPECT_EQ(step, 10);
}

TEST(IslandCheckpointTest, AnyDamageIsSeen) {
  const std::string directory = Directory("damaged");
  const std::string path = absl::StrCat(directory, "/island.safetensors");
  {
    const auto store = IslandCheckpointStore::Open(directory);
    ASSERT_OK(store.status());
    (*store)->SaveLater(SomeState(10), absl::Now);
  }
  const auto store = IslandCheckpointStore::Open(directory);
  ASSERT_OK(store.status());
  std::ifstream file(path, std::ios::binary);
  const std::string good(std::istreambuf_iterator<char>(file), {});
  // Safetensors itself checks the length and the padding of the header.
  for (size_t at = 8; at < good.size(); at += 13) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 1);
    std::ofstream(path, std::ios::binary) << bad;
    const auto loaded = (*store)->Load();
    if (loaded.ok()) {
      // The byte has no meaning, such as a space.
      ASSERT_TRUE(loaded->has_value());
      EXPECT_EQ((*loaded)->trainer.parameters, SomeState(10).trainer.parameters)
          << at;
      EXPECT_EQ((*loaded)->anchors, SomeState(10).anchors) << at;
      continue;
    }
    EXPECT_EQ(loaded.status().code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(loaded.status().message(), HasSubstr("remove it"));
  }
}

TEST(IslandCheckpointTest, ADirectoryWithForeignFilesIsLeftAlone) {
  const std::string directory = Directory("foreign");
  ASSERT_OK(CreateDirectory(directory));
  ASSERT_OK(WriteFileAtomically(directory + "/process", {"of a novel"}));
  EXPECT_THAT(IslandCheckpointStore::Open(directory).status(),
              IsDataLoss("/process"));
  EXPECT_THAT(ReadFile(directory + "/process"), IsOkAndHolds("of a novel"));
}

}  // namespace
}  // namespace causeway
