// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/rules/fragment_files.h"

#include <cstdint>
#include <vector>

#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<SnapshotRecord> Snapshots(const std::vector<uint64_t>& versions) {
  std::vector<SnapshotRecord> snapshots;
  for (const uint64_t version : versions) {
    snapshots.emplace_back().head.set_version(version);
  }
  return snapshots;
}

// Files, some of which cannot be read.
struct Files {
  absl::Status Restore(const std::vector<uint64_t>& snapshots,
                       uint64_t newest) {
    return RestoreVersion(
        Snapshots(snapshots), newest,
        [this](const SnapshotRecord& snapshot) -> absl::Status {
          const uint64_t version = snapshot.head.version();
          if (version > newest_readable) return absl::DataLossError("snapshot");
          opened.push_back(version);
          return absl::OkStatus();
        },
        [this](uint64_t version) -> absl::Status {
          if (version == lost_record) return absl::NotFoundError("record");
          repeated.push_back(version);
          return absl::OkStatus();
        });
  }

  uint64_t newest_readable = 100;
  uint64_t lost_record = 100;
  std::vector<uint64_t> opened;
  std::vector<uint64_t> repeated;
};

TEST(RestoreVersionTest, RepeatsTheMergesSinceTheNewestSnapshot) {
  Files files;
  EXPECT_OK(files.Restore({5, 3}, 7));
  EXPECT_THAT(files.opened, ElementsAre(5));
  EXPECT_THAT(files.repeated, ElementsAre(6, 7));
}

TEST(RestoreVersionTest, ASnapshotOfTheNewestVersionIsEnough) {
  Files files;
  EXPECT_OK(files.Restore({5, 3}, 5));
  EXPECT_THAT(files.repeated, IsEmpty());
}

TEST(RestoreVersionTest, GoesBackToASnapshotThatCanBeRead) {
  Files files;
  files.newest_readable = 4;
  EXPECT_OK(files.Restore({7, 5, 3, 1}, 7));
  EXPECT_THAT(files.opened, ElementsAre(3));
  EXPECT_THAT(files.repeated, ElementsAre(4, 5, 6, 7));
}

TEST(RestoreVersionTest, ReportsWhatIsMissing) {
  Files files;
  EXPECT_THAT(files.Restore({}, 7), IsNotFound());
  files.lost_record = 6;
  EXPECT_THAT(files.Restore({5}, 7),
              StatusIs(absl::StatusCode::kNotFound, "record"));
  files.newest_readable = 2;
  EXPECT_THAT(files.Restore({5}, 7),
              StatusIs(absl::StatusCode::kDataLoss, "snapshot"));
}

TEST(RestoreVersionTest, RefusesASnapshotThatIsNewerThanTheLog) {
  Files files;
  EXPECT_THAT(files.Restore({8, 5}, 7), IsDataLoss("versions up to 7 only"));
}

TEST(LastUnneededRecordTest, IsThatOfTheOldestSnapshot) {
  EXPECT_EQ(LastUnneededRecord(Snapshots({7, 5, 3})), 3);
  EXPECT_EQ(LastUnneededRecord({}), 0);
}

}  // namespace
}  // namespace causeway
