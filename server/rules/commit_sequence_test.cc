// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/rules/commit_sequence.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

using testing::ElementsAre;
using Step = CommitSequence::Step;

// Returns the steps that follow when the previous steps had `outcomes`.
std::vector<Step> StepsAfter(const std::vector<absl::Status>& outcomes) {
  CommitSequence sequence;
  std::vector<Step> steps = {sequence.next()};
  for (const absl::Status& outcome : outcomes) {
    sequence.Done(outcome);
    EXPECT_EQ(sequence.status(), outcome);
    steps.push_back(sequence.next());
  }
  return steps;
}

TEST(CommitSequenceTest, NoVersionIsPublishedBeforeItIsDurable) {
  const absl::Status ok;
  const absl::Status failed = absl::DataLossError("");
  const absl::Status unknown = absl::UnknownError("");
  EXPECT_THAT(StepsAfter({ok, ok, ok, ok}),
              ElementsAre(Step::kRecord, Step::kCommit, Step::kReplicate,
                          Step::kInstall, Step::kEnd));
  EXPECT_THAT(StepsAfter({failed}), ElementsAre(Step::kRecord, Step::kEnd));
  EXPECT_THAT(StepsAfter({unknown}), ElementsAre(Step::kRecord, Step::kEnd))
      << "a record is written again";
  EXPECT_THAT(StepsAfter({ok, failed}),
              ElementsAre(Step::kRecord, Step::kCommit, Step::kEnd));
  EXPECT_THAT(
      StepsAfter({ok, ok, failed}),
      ElementsAre(Step::kRecord, Step::kCommit, Step::kReplicate, Step::kEnd))
      << "the coordinator ends, and followers may lack the version";
  EXPECT_THAT(StepsAfter({ok, unknown, ok}),
              ElementsAre(Step::kRecord, Step::kCommit, Step::kDoubt,
                          Step::kReplicate));
  EXPECT_THAT(
      StepsAfter({ok, unknown, failed}),
      ElementsAre(Step::kRecord, Step::kCommit, Step::kDoubt, Step::kEnd));
}

}  // namespace
}  // namespace causeway
