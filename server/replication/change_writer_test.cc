// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/replication/change_writer.h"

#include <cstdint>

#include "absl/synchronization/notification.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

using testing::ElementsAre;

ReceivedChange ChangeOf(uint64_t index) {
  ReceivedChange received;
  received.change.mutable_position()->set_index(index);
  return received;
}

std::vector<uint64_t> IndicesOf(const std::vector<ReceivedChange>& group) {
  std::vector<uint64_t> indices;
  for (const ReceivedChange& received : group) {
    indices.push_back(received.change.position().index());
  }
  return indices;
}

TEST(ChangeWriterTest, ChangesThatArriveWhileTheDiskIsBusyFormAGroup) {
  std::vector<std::vector<uint64_t>> groups;
  absl::Notification begun;
  absl::Notification may_end;
  {
    ChangeWriter writer(
        [&](std::vector<ReceivedChange> group) {
          groups.push_back(IndicesOf(group));
          if (groups.size() == 1) {
            begun.Notify();
            may_end.WaitForNotification();
          }
          return absl::OkStatus();
        },
        [] { ADD_FAILURE(); });
    writer.Add(ChangeOf(1));
    begun.WaitForNotification();
    writer.Add(ChangeOf(2));
    writer.Add(ChangeOf(3));
    may_end.Notify();
    EXPECT_OK(writer.Flush());
    EXPECT_THAT(groups, ElementsAre(ElementsAre(1), ElementsAre(2, 3)));
    writer.Add(ChangeOf(4));
  }
  EXPECT_THAT(groups.back(), ElementsAre(4)) << "its end writes what is left";
}

TEST(ChangeWriterTest, EndsWithTheFirstError) {
  absl::Notification failed;
  int groups = 0;
  ChangeWriter writer(
      [&](const std::vector<ReceivedChange>&) {
        ++groups;
        return absl::DataLossError("the disk");
      },
      [&] { failed.Notify(); });
  writer.Add(ChangeOf(1));
  failed.WaitForNotification();
  for (uint64_t index = 2; index < 200; ++index) writer.Add(ChangeOf(index));
  EXPECT_THAT(writer.Flush(), IsDataLoss());
  EXPECT_EQ(groups, 1);
}

}  // namespace
}  // namespace causeway
