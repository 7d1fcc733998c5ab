// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/rules/commit_sequence.h"

#include <utility>

namespace causeway {

CommitSequence::CommitSequence() : next_(Step::kRecord) {}

void CommitSequence::Done(absl::Status status) {
  status_ = std::move(status);
  switch (next_) {
    case Step::kRecord:
      next_ = status_.ok() ? Step::kCommit : Step::kEnd;
      return;
    case Step::kCommit:
      next_ = status_.ok()               ? Step::kReplicate
              : absl::IsUnknown(status_) ? Step::kDoubt
                                         : Step::kEnd;
      return;
    case Step::kDoubt:
      next_ = status_.ok() ? Step::kReplicate : Step::kEnd;
      return;
    case Step::kReplicate:
      next_ = status_.ok() ? Step::kInstall : Step::kEnd;
      return;
    case Step::kInstall:
    case Step::kEnd:
      next_ = Step::kEnd;
  }
}

}  // namespace causeway
