// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// One round of one fragment: the contributions that will turn its version
// into the next, and the rule for when it closes.
//
//   OPEN --(Close)--> MERGING --(new version committed)--> next round OPEN
//
// A round closes when every expected live island has contributed, or when at
// least `quorum` have and the grace window since the quorum is over. It never
// closes with fewer than `quorum`.
//
// Pure rules: no clock, no I/O, not thread-safe.
#ifndef SERVER_RULES_ROUND_H_
#define SERVER_RULES_ROUND_H_

#include <compare>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "proto/coordinator.pb.h"

namespace causeway {

// Names one contribution of a run; the unit of idempotence.
struct ContributionKey {
  uint32_t fragment = 0;
  uint64_t base_version = 0;
  std::string island_id;
  uint64_t incarnation = 0;

  friend auto operator<=>(const ContributionKey&,
                          const ContributionKey&) = default;
};

ContributionKey KeyOf(const v1::ContributionHeader& header);

class Round {
 public:
  struct Options {
    uint32_t quorum = 1;
    // From the quorum on; set_grace() changes it for this round.
    absl::Duration grace = absl::Minutes(5);
  };

  Round(Options options, uint32_t fragment, uint64_t base_version)
      : options_(options), fragment_(fragment), base_version_(base_version) {}

  uint64_t base_version() const { return base_version_; }
  bool merging() const { return merging_; }

  // Whether the incarnation's contribution is in the round.
  bool Has(const std::string& island_id, uint64_t incarnation) const;
  // Whether these very bytes are, from any incarnation of the island: a process
  // that was evicted and joined again offers what it had already handed in.
  bool HasBytes(const std::string& island_id, const std::string& digest) const;
  // Whether a contribution of the island is, from any incarnation.
  bool HasIsland(const std::string& island_id) const;
  // Nothing more is to come of `incarnation`: HasBytes found it, or its
  // contribution is left out on purpose.
  void Credit(const std::string& island_id, uint64_t incarnation);
  // Lets a contribution of an earlier incarnation stand for this one, whose own
  // the round does not take.
  void StandIn(const std::string& island_id, uint64_t incarnation);
  // The incarnation was told that the round is closed.
  void TurnAway(const std::string& island_id, uint64_t incarnation);
  bool HasTurnedAway(const std::string& island_id, uint64_t incarnation) const;
  // Whether the round need not wait for the incarnation.
  bool HasOrStandsFor(const std::string& island_id, uint64_t incarnation) const;
  // The island has begun to hand in a contribution.
  void NoteOffer(const std::string& island_id, absl::Time now);
  // Adds a complete contribution of this norm to an open round. Adding one
  // twice changes nothing.
  void Add(const v1::ContributionHeader& header, double norm, absl::Time now);
  // Takes one out of an open round.
  void Remove(const ContributionKey& key);

  // In order of (island id, incarnation): the order they are summed in.
  const std::map<ContributionKey, v1::ContributionHeader>& contributions()
      const {
    return contributions_;
  }

  // Of a contribution that is in the round.
  double NormOf(const ContributionKey& key) const { return norms_.at(key); }
  // Islands that have begun to hand in a contribution.
  size_t offering() const { return offering_.size(); }
  // When the first of them did, and how long its upload took; unknown before.
  absl::Time first_offer() const { return first_offer_; }
  absl::Duration first_upload() const { return first_upload_; }
  // When there were enough contributions; the infinite future before.
  absl::Time quorum_at() const { return quorum_at_; }
  void set_grace(absl::Duration grace) { options_.grace = grace; }

  // Whether the round may close now, if `awaited` expected live islands have
  // not contributed yet.
  bool MayClose(size_t awaited, absl::Time now) const;

  // OPEN -> MERGING.
  void Close() { merging_ = true; }
  // MERGING -> OPEN, after an outer step that failed; it may be closed again
  // from `retry_at` on.
  void Reopen(absl::Time retry_at);

 private:
  Options options_;
  uint32_t fragment_;
  uint64_t base_version_;
  std::map<ContributionKey, v1::ContributionHeader> contributions_;
  std::map<ContributionKey, double> norms_;
  std::set<std::pair<std::string, uint64_t>> credited_;
  std::set<std::pair<std::string, uint64_t>> stood_for_;
  std::set<std::pair<std::string, uint64_t>> turned_away_;
  std::set<std::string> offering_;
  absl::Time first_offer_ = absl::InfiniteFuture();
  absl::Duration first_upload_ = absl::InfiniteDuration();
  bool merging_ = false;
  absl::Time quorum_at_ = absl::InfiniteFuture();
  absl::Time not_before_ = absl::InfinitePast();
};

}  // namespace causeway

#endif  // SERVER_RULES_ROUND_H_
