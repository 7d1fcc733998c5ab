// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Keeps a leader's office up to date (who is in sync, and the id of a new run),
// and tells the feed which followers versions wait for.
//
// Pure rules: no clock, no I/O, not thread-safe.
#ifndef SERVER_ELECTION_ELECTORATE_H_
#define SERVER_ELECTION_ELECTORATE_H_

#include <optional>
#include <set>
#include <string>

#include "proto/election.pb.h"
#include "server/election/office.h"
#include "server/replication/log_feed.h"

namespace causeway {

class Electorate {
 public:
  // `office` is as the leader `self` has won it. `feed` is its log's, and must
  // outlive this object.
  Electorate(const v1::Office& office, std::string self, std::string run_id,
             LogFeed* feed);

  // Returns the office to ask etcd for, unless the leader's `office` is up to
  // date. Call it often.
  std::optional<v1::Office> Next(const v1::Office& office);
  // Notes that the last returned change is made.
  void NoteMade();

 private:
  void SetFeed();

  const std::string self_;
  const std::string run_id_;
  LogFeed* const feed_;
  SyncSet in_sync_;
  // The last returned names.
  std::set<std::string> due_;
};

}  // namespace causeway

#endif  // SERVER_ELECTION_ELECTORATE_H_
