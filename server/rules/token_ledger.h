// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The fate of the tokens that islands trained. An island trains every token
// once and contributes it once to each fragment. So there is an account for
// each incarnation and fragment, in which at any time
//
//   reported = merged + partial + refused + quarantined + pending + expired
//
//   merged       part of the committed parameters
//   partial      the same, by a contribution cut short because the island left
//   refused      dropped out of the quarantine
//   quarantined  in the quarantine
//   pending      not decided yet: of live incarnations, or in an open round
//   expired      the rest, once the incarnation has ended: lost with it
//
// The last two are not stored; they follow from the others. `reported` is what
// heartbeats reported, but at least what was contributed.
//
// A process that was evicted and comes back still has what it trained, so its
// next incarnation takes over the tokens that had expired with the earlier one.
// They include tokens of contributions that a restart of the coordinator lost,
// or that no outer step could merge.
//
// A process that begins with the checkpoint of a dead process contributes the
// dead one's training. Such tokens (`restored`) count for the incarnation that
// contributes them. The tokens that expired with earlier incarnations of the
// island, in other processes, decrease by as many, newest first.
//
// Incarnations are many in a long run: the accounts of those that are over are
// folded into one for each island, and once all of a forgotten island's are
// over, into a nameless one. Nothing can be taken over from them any more, and
// nothing from a forgotten island's can be restored. Folding changes no sum,
// and a ledger restored from storage has the same sums, because a process
// counts as that of an earlier account only among the next kUnfolded ones. If
// it comes back later and contributes tokens that had expired, they count
// twice. Only a forgotten island that comes back may have other sums after a
// restart, which restores its accounts.
//
// Counts are claims of islands, so sums stop at kMost instead of overflowing.
//
// Pure rules: no clock, no I/O, not thread-safe.
#ifndef SERVER_RULES_TOKEN_LEDGER_H_
#define SERVER_RULES_TOKEN_LEDGER_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "proto/status.pb.h"

namespace causeway {

struct IncarnationKey {
  std::string island_id;
  uint64_t incarnation = 0;

  friend auto operator<=>(const IncarnationKey&,
                          const IncarnationKey&) = default;
};

// The part of an account that does not follow from the contributions. It is
// made durable at least when the incarnation begins and ends.
struct AccountRecord {
  IncarnationKey key;
  // The incarnation's process: instance_id of JoinRequest; 0 is unknown.
  uint64_t process = 0;
  // The process's count of tokens so far (IslandProgress.tokens).
  uint64_t process_tokens = 0;
  // For each fragment, the tokens that heartbeats reported. Negative if the
  // earlier incarnation has contributed tokens of this process that no
  // heartbeat had reported yet.
  std::vector<int64_t> reported;
};

// A contribution in an open round.
struct OpenTokens {
  uint64_t tokens = 0;
  uint64_t restored = 0;
};

class TokenLedger {
 public:
  // The highest sum. A few of these fit into 63 bits.
  static constexpr uint64_t kMost = uint64_t{1} << 60;

  // At least this many of an island's newest accounts are not folded.
  static constexpr int64_t kUnfolded = 4;

  // The fates of contributed tokens; each is a term of the sum above.
  enum class Fate { kMerged, kPartial, kRefused, kQuarantined };

  explicit TokenLedger(uint32_t fragments) : fragments_(fragments) {}

  // Restores an account from storage, without the fates.
  void Restore(const AccountRecord& record);

  // Begins the account of an incarnation of `process`.
  void Open(const IncarnationKey& key, uint64_t process = 0);
  // Returns the earlier incarnations of the same process.
  std::vector<IncarnationKey> OfSameProcess(const IncarnationKey& key) const;
  // Moves the tokens that had expired with `predecessor`, which has ended, to
  // `successor`, a new incarnation of the same process. `open` has the
  // predecessor's contributions to open rounds, by fragment. Returns whether
  // that changed the predecessor's account.
  bool TakeOver(const IncarnationKey& predecessor,
                const IncarnationKey& successor,
                const std::vector<OpenTokens>& open);

  // Notes the count that a heartbeat reports. Ignores a lower count.
  void Report(const IncarnationKey& key, uint64_t process_tokens);
  // Gives contributed tokens a fate; an earlier process trained `restored` of
  // them.
  void Settle(const IncarnationKey& key, uint32_t fragment, Fate fate,
              uint64_t tokens, uint64_t restored = 0);
  // Takes tokens out of the quarantine, so that they can get another fate.
  void Unquarantine(const IncarnationKey& key, uint32_t fragment,
                    uint64_t tokens, uint64_t restored = 0);

  // Folds old accounts. `is_known` returns whether an island is not forgotten;
  // `open` has the incarnations with contributions to open rounds.
  void Fold(absl::FunctionRef<bool(const std::string&)> is_known,
            const std::set<IncarnationKey>& open);

  // The incarnation's account must not be folded.
  AccountRecord Record(const IncarnationKey& key) const;

  // Returns one account. `open` has the contributions in the fragment's open
  // round.
  v1::TokenLedger Account(
      const IncarnationKey& key, uint32_t fragment, bool live,
      const std::map<IncarnationKey, OpenTokens>& open) const;
  // Returns the sum of the fragment's accounts. `open_of` returns an island's
  // contributions in the fragment's open round. Takes time in proportion to the
  // number of accounts.
  v1::TokenLedger Sum(uint32_t fragment,
                      absl::FunctionRef<bool(const IncarnationKey&)> is_live,
                      absl::FunctionRef<std::map<IncarnationKey, OpenTokens>(
                          const std::string&)>
                          open_of) const;

 private:
  struct Line {
    int64_t reported = 0;
    uint64_t merged = 0;
    uint64_t partial = 0;
    uint64_t refused = 0;
    uint64_t quarantined = 0;
    // The part of these that earlier processes trained.
    uint64_t restored = 0;

    uint64_t settled() const {
      return merged + partial + refused + quarantined;
    }
    // Returns the contributed tokens that the incarnation's own process has
    // trained.
    int64_t contributed(const OpenTokens& open) const {
      return static_cast<int64_t>(settled() - restored + open.tokens -
                                  open.restored);
    }
  };
  struct Incarnation {
    uint64_t process = 0;
    uint64_t process_tokens = 0;
    std::vector<Line> lines;
  };
  using Incarnations = std::map<IncarnationKey, Incarnation>;

  Incarnation& Find(const IncarnationKey& key);
  // Returns the end of the oldest of the island's accounts from `begin` to
  // `end` that can be folded, so that `unfolded` are left.
  static Incarnations::iterator EndOfFoldable(
      Incarnations::iterator begin, Incarnations::iterator end,
      int64_t unfolded, const std::set<IncarnationKey>& open);
  // Makes one account, `into`, of itself and an island's oldest ones, which end
  // at `end`.
  void FoldInto(IncarnationKey into, Incarnations::iterator begin,
                Incarnations::iterator end);
  // Maps the island's incarnations up to `newest` to how many of their expired
  // tokens later ones of them contributed.
  std::map<IncarnationKey, int64_t> BroughtBack(
      const IncarnationKey& newest, uint32_t fragment,
      const std::map<IncarnationKey, OpenTokens>& open) const;
  static v1::TokenLedger MakeAccount(const Line& line, const OpenTokens& tokens,
                                     bool live, int64_t brought_back);
  static uint64_t& Of(Line& line, Fate fate);

  const uint32_t fragments_;
  Incarnations incarnations_;
  // The process_tokens of the islands' processes with folded accounts.
  std::map<std::pair<std::string, uint64_t>, uint64_t> folded_processes_;
};

// Adds every field of `from` to `to`, up to the type's highest number.
void AddTo(const v1::TokenLedger& from, v1::TokenLedger& to);

}  // namespace causeway

#endif  // SERVER_RULES_TOKEN_LEDGER_H_
