// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Decides what a coordinator that does not lead does next. A host reads the
// office and what its disk has, does what Next() says, and asks again.
//
// Pure rules: no clock, no I/O, not thread-safe.
#ifndef SERVER_ELECTION_VOTER_H_
#define SERVER_ELECTION_VOTER_H_

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "server/election/office.h"

namespace causeway {

class Voter {
 public:
  enum class Step {
    // Ask again later.
    kWait,
    // Follow the leader at its address.
    kFollow,
    // Stop following, and ask again at once: what arrived until then may have
    // changed the disk.
    kPause,
    // Ask for the office, as it was read.
    kCampaign,
  };

  // The lease of a leader that is well may have ended while etcd was away. A
  // follower gives it time to get another: it asks so often before it stands
  // for the office.
  static constexpr int kPatience = 20;

  explicit Voter(std::string name) : name_(std::move(name)) {}

  //   FAILED_PRECONDITION  The disk has another run.
  absl::StatusOr<Step> Next(const absl::StatusOr<OfficeView>& view,
                            const Holding& holding);

 private:
  const std::string name_;
  // The epoch of the leader that is followed; 0 if none is.
  uint64_t following_ = 0;
  // How often to wait yet.
  int patience_ = 0;
};

}  // namespace causeway

#endif  // SERVER_ELECTION_VOTER_H_
