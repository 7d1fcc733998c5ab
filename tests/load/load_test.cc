// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// A small load, which checks that the coordinator's memory is bounded, not how
// fast it is.
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/testing/status_matchers.h"
#include "gtest/gtest.h"
#include "tests/end_to_end/process.h"
#include "tests/load/trial.h"

namespace causeway {
namespace {

constexpr uint64_t kMiB = 1 << 20;

std::string NewDirectory(const std::string& name) {
  const std::string path = absl::StrCat(testing::TempDir(), "/", name);
  std::filesystem::remove_all(path);
  std::filesystem::create_directory(path);
  return path;
}

TEST(LoadTest, MemoryStaysWithinTheBoundForUploads) {
  constexpr int kIslands = 32;
  ASSERT_OK_AND_ASSIGN(const LoadResult result,
                       RunRounds({.programs = ProgramPath(""),
                                  .directory = NewDirectory("rounds"),
                                  .islands = kIslands,
                                  .rounds = 12,
                                  .layers = 2,
                                  .hidden_size = 128}));
  ASSERT_EQ(result.rounds.size(), 12);
  uint64_t early = 0;
  uint64_t late = 0;
  for (size_t i = 0; i < result.rounds.size(); ++i) {
    uint64_t& most = i < 6 ? early : late;
    most = std::max(most, result.rounds[i].peak_bytes);
  }
  // Besides uploads: for each island, two connections and a message of a chunk
  // in each direction; and the outer step's update.
  const uint64_t bound = result.idle_bytes + result.staging_bytes +
                         result.parameters + kIslands * 2 * kMiB + 16 * kMiB;
  EXPECT_LE(early, bound);
  EXPECT_LE(late, bound);
  // Rounds leave nothing behind.
  EXPECT_LE(late, early + early / 4 + 2 * kMiB);
}

TEST(LoadTest, JoinersDoNotMultiplyTheCoordinatorsMemory) {
  constexpr int kJoiners = 8;
  ASSERT_OK_AND_ASSIGN(const JoinersResult result,
                       RunJoiners({.programs = ProgramPath(""),
                                   .directory = NewDirectory("joiners"),
                                   .joiners = kJoiners,
                                   .limit = 0,
                                   .layers = 4,
                                   .hidden_size = 512}));
  const uint64_t model = result.parameters * sizeof(float);
  EXPECT_EQ(result.alone.bytes, model);
  EXPECT_EQ(result.together.bytes, kJoiners * model);
  ASSERT_GT(model, 48 * kMiB);
  // Each joiner has some messages of a chunk under way, and none has a copy of
  // the model.
  EXPECT_LE(result.together.peak_bytes,
            result.together.before_bytes + kJoiners * 5 * kMiB);
}

}  // namespace
}  // namespace causeway
