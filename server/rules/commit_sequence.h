// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The way of a version that an outer step has made to those who may have it. A
// host does what next() says, and tells what came of it:
//
//   kRecord --> kCommit --> kReplicate --> kInstall --> kEnd
//                  |            ^
//                  | unknown    | found
//                  +--> kDoubt -+
//
// After an error, nobody gets the version.
//
// Pure rules: no clock, no I/O, not thread-safe.
#ifndef SERVER_RULES_COMMIT_SEQUENCE_H_
#define SERVER_RULES_COMMIT_SEQUENCE_H_

#include "absl/status/status.h"

namespace causeway {

class CommitSequence {
 public:
  enum class Step {
    // Make the record of the merge durable, so that a restart can make the
    // version again.
    kRecord,
    // Write the commit to the log (Journal::BeginCommit).
    kCommit,
    // The log does not know whether it has the commit: tell the rules, and wait
    // for Journal::OutcomeOfCommit.
    kDoubt,
    // Wait for the followers without which nobody may see the version.
    kReplicate,
    // Let downloads, the next merge and snapshots have the version.
    kInstall,
    // Tell the rules about status().
    kEnd,
  };

  CommitSequence();

  Step next() const { return next_; }
  // What the last step came to.
  const absl::Status& status() const { return status_; }

  // Notes what the step came to.
  void Done(absl::Status status);

 private:
  Step next_;
  absl::Status status_;
};

}  // namespace causeway

#endif  // SERVER_RULES_COMMIT_SEQUENCE_H_
