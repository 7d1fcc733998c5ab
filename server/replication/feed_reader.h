// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Decides what a feed (server/replication/log_feed.h) sends next to a follower
// that has caught up:
//
//   * A record goes ahead of its change, as soon as it is announced, so that
//     the follower writes it and makes the outer step while the leader's disk
//     is busy. It follows all changes so far, because the outer step begins
//     with the previous version.
//   * A change follows the records of the merges that it commits. A record that
//     went ahead is not sent again, unless another one has replaced it.
//
// Not thread-safe.
#ifndef SERVER_REPLICATION_FEED_READER_H_
#define SERVER_REPLICATION_FEED_READER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/fragment.pb.h"
#include "proto/replication.pb.h"
#include "server/replication/log_feed.h"

namespace causeway {

class FeedReader {
 public:
  // Says what to send, in this order.
  struct Step {
    std::vector<LogFeed::AnnouncedRecord> ahead;
    // The versions of `change` whose records did not go ahead.
    std::vector<v1::FragmentHead> lacking;
    // Null if there is none.
    std::shared_ptr<const v1::LogChange> change;
  };

  // The follower has the first `index` changes.
  FeedReader(const LogFeed* feed, uint64_t index)
      : feed_(feed), index_(index) {}

  // Returns the next step; an empty one if there is nothing to send.
  //   NOT_FOUND  The next change is no longer kept.
  absl::StatusOr<Step> Next();

 private:
  const LogFeed* feed_;
  uint64_t index_;
  // By fragment, the number of the last record that went ahead.
  std::map<uint32_t, uint64_t> ahead_;
};

}  // namespace causeway

#endif  // SERVER_REPLICATION_FEED_READER_H_
