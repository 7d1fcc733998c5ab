// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The steps between making a version and publishing it. A host does what next()
// says, and reports the result to Done():
//
//   kRecord --> kCommit --> kReplicate --> kInstall --> kEnd
//                  |            ^
//                  | unknown    | found
//                  +--> kDoubt -+
//
// After an error, the version is not published.
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
    // version again. Followers may get it now, because it commits nothing.
    kRecord,
    // Write the commit to the log (Journal::BeginCommit).
    kCommit,
    // The log does not know whether it has the commit: tell the rules, and wait
    // for Journal::OutcomeOfCommit.
    kDoubt,
    // Wait for the followers that must have the version before it is published.
    kReplicate,
    // Let downloads, the next merge and snapshots have the version.
    kInstall,
    // Report status() to the rules.
    kEnd,
  };

  CommitSequence();

  Step next() const { return next_; }
  // The result of the last step.
  const absl::Status& status() const { return status_; }

  // Notes the result of the step.
  void Done(absl::Status status);

 private:
  Step next_;
  absl::Status status_;
};

}  // namespace causeway

#endif  // SERVER_RULES_COMMIT_SEQUENCE_H_
