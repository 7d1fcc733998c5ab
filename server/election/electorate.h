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
  // `office` is the office that the leader `self` won. `feed` is the feed of
  // its log, and must outlive this object.
  Electorate(const v1::Office& office, std::string self, std::string run_id,
             LogFeed* feed);

  // Returns the change to ask etcd for, or nullopt if the leader's `office` is
  // up to date, or cannot be changed yet. Call it often.
  std::optional<v1::Office> Next(const v1::Office& office);
  // Notes that the last returned change was made.
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
