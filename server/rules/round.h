// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// One round of one fragment: the contributions that turn its version into the
// next, and the rule that closes the round.
//
//   OPEN --(Close)--> MERGING --(new version committed)--> next round OPEN
//
// A round closes when every expected live island has contributed, or when
// `quorum` islands have and the grace window, which begins then, is over. It
// never closes with fewer than `quorum` contributions.
//
// An island that has offered nothing during a whole round is silent until it
// offers something.
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
    // Counts from the quorum on; set_grace() changes it for this round.
    absl::Duration grace = absl::Minutes(5);
  };

  Round(Options options, uint32_t fragment, uint64_t base_version,
        std::set<std::string> silent = {})
      : options_(options),
        fragment_(fragment),
        base_version_(base_version),
        silent_(std::move(silent)) {}

  uint32_t fragment() const { return fragment_; }
  uint64_t base_version() const { return base_version_; }
  bool merging() const { return merging_; }

  // Returns whether the round has the incarnation's contribution or credit.
  bool Has(const std::string& island_id, uint64_t incarnation) const {
    return contributions_.contains(
               {fragment_, base_version_, island_id, incarnation}) ||
           credited_.contains({island_id, incarnation});
  }
  // Returns whether these bytes are in the round, from any incarnation of the
  // island: a process that was evicted and joins again offers the bytes that it
  // had already handed in.
  bool HasBytes(const std::string& island_id, const std::string& digest) const;
  // Returns whether the round has a contribution of any incarnation of the
  // island.
  bool HasIsland(const std::string& island_id) const;
  // Notes that `incarnation` will send nothing more: HasBytes has found its
  // bytes, or its contribution is left out on purpose.
  void Credit(const std::string& island_id, uint64_t incarnation);
  // Notes that an earlier incarnation's contribution stands for this
  // incarnation's, which the round does not take.
  void StandIn(const std::string& island_id, uint64_t incarnation) {
    stood_for_.emplace(island_id, incarnation);
  }
  // Notes that the incarnation was told that the round is closed.
  void TurnAway(const std::string& island_id, uint64_t incarnation) {
    turned_away_.emplace(island_id, incarnation);
  }
  bool HasTurnedAway(const std::string& island_id, uint64_t incarnation) const {
    return turned_away_.contains({island_id, incarnation});
  }
  // Returns whether the round need not wait for the incarnation.
  bool HasOrStandsFor(const std::string& island_id,
                      uint64_t incarnation) const {
    return Has(island_id, incarnation) ||
           stood_for_.contains({island_id, incarnation});
  }
  // Notes any offer of the island to the fragment, even a late one.
  void NoteHeard(const std::string& island_id);
  // Returns whether the island has offered something during this round.
  bool HasHeard(const std::string& island_id) const {
    return heard_.contains(island_id);
  }
  bool IsSilent(const std::string& island_id) const {
    return silent_.contains(island_id);
  }
  // Records whether the round could reach its quorum if islands that trained
  // its window, but are not expected, contributed. Returns the time since which
  // it could, or the infinite future.
  absl::Time NoteCouldClose(bool could_close, absl::Time now);
  // Notes that the island has begun to hand in a contribution.
  void NoteOffer(const std::string& island_id, absl::Time now);
  // Moves the beginnings of what the round waits for by a time that does not
  // count, at most to `now`: in that time, islands could not send.
  void Shift(absl::Duration duration, absl::Time now);
  // Adds a complete contribution to an open round. Adding it twice changes
  // nothing.
  void Add(const v1::ContributionHeader& header, double norm, absl::Time now);
  // Removes a contribution from an open round.
  void Remove(const ContributionKey& key);

  // Ordered by (island id, incarnation), the order in which they are summed.
  const std::map<ContributionKey, v1::ContributionHeader>& contributions()
      const {
    return contributions_;
  }

  // Returns the Euclidean norm of a contribution that is in the round.
  double NormOf(const ContributionKey& key) const { return norms_.at(key); }
  // The islands that have begun to hand in a contribution.
  const std::set<std::string>& offering() const { return offering_; }
  // The time at which the first island began, and the duration of its upload;
  // infinite before.
  absl::Time first_offer() const { return first_offer_; }
  absl::Duration first_upload() const { return first_upload_; }
  // The time since which islands train on in their overlap: first_offer(),
  // moved by Shift.
  absl::Time overlap_since() const { return overlap_since_; }
  // The time at which the quorum was reached, moved by Shift; the infinite
  // future before.
  absl::Time quorum_at() const { return quorum_at_; }
  void set_grace(absl::Duration grace) { options_.grace = grace; }

  // Returns whether the round may close now, if `awaited` expected live islands
  // have not contributed yet.
  bool MayClose(size_t awaited, absl::Time now) const;

  // OPEN -> MERGING.
  void Close() { merging_ = true; }
  // MERGING -> OPEN, after an outer step that failed. The round may close again
  // from `retry_at` on.
  void Reopen(absl::Time retry_at);

 private:
  // Returns the first contribution of the island, or of the next by name.
  auto FirstOf(const std::string& island_id) const {
    return contributions_.lower_bound(
        {fragment_, base_version_, island_id, /*incarnation=*/0});
  }

  Options options_;
  uint32_t fragment_;
  uint64_t base_version_;
  std::map<ContributionKey, v1::ContributionHeader> contributions_;
  std::map<ContributionKey, double> norms_;
  std::set<std::pair<std::string, uint64_t>> credited_;
  std::set<std::pair<std::string, uint64_t>> stood_for_;
  std::set<std::pair<std::string, uint64_t>> turned_away_;
  std::set<std::string> offering_;
  std::set<std::string> heard_;
  std::set<std::string> silent_;
  absl::Time first_offer_ = absl::InfiniteFuture();
  absl::Time overlap_since_ = absl::InfiniteFuture();
  absl::Duration first_upload_ = absl::InfiniteDuration();
  bool merging_ = false;
  absl::Time quorum_at_ = absl::InfiniteFuture();
  absl::Time could_close_at_ = absl::InfiniteFuture();
  absl::Time not_before_ = absl::InfinitePast();
};

}  // namespace causeway

#endif  // SERVER_RULES_ROUND_H_
