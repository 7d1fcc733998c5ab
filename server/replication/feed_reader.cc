// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/replication/feed_reader.h"

#include <utility>

#include "common/status_macros.h"

namespace causeway {

absl::StatusOr<FeedReader::Step> FeedReader::Next() {
  Step step;
  for (LogFeed::AnnouncedRecord& record : feed_->RecordsAfter(index_)) {
    uint64_t& sent = ahead_[record.head.fragment()];
    if (sent == record.number) continue;
    sent = record.number;
    step.ahead.push_back(std::move(record));
  }
  if (!step.ahead.empty()) return step;
  ASSIGN_OR_RETURN(step.change, feed_->After(index_));
  if (step.change == nullptr) return step;
  ++index_;
  for (const v1::FragmentHead& head : step.change->commits()) {
    const auto ahead = ahead_.find(head.fragment());
    if (ahead == ahead_.end() || !feed_->IsNewestRecord(head, ahead->second)) {
      step.lacking.push_back(head);
    }
  }
  return step;
}

}  // namespace causeway
