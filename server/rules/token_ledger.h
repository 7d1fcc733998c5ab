// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// What has become of the tokens that islands trained. An island trains every
// token once and contributes it once to each fragment, so there is an account
// for each incarnation and fragment, and in each of them at any time
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
// The last two are not kept but follow from the others. Reported is what
// heartbeats said, and at least what contributions showed.
//
// A process that was evicted and comes back still has what it trained: its next
// incarnation takes over what had expired with the one before. And a process
// that begins with the checkpoint of a dead one contributes what that one had
// trained: such tokens (`restored`) count where they are contributed, and no
// longer as expired with earlier incarnations of the island that were of other
// processes, the newest first.
// What was in a round that a restart of the coordinator has lost, or that could
// not be merged with it, a process contributes under its next incarnation, too.
//
// Pure rules: no clock, no I/O, not thread-safe.
#ifndef SERVER_RULES_TOKEN_LEDGER_H_
#define SERVER_RULES_TOKEN_LEDGER_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "proto/status.pb.h"

namespace causeway {

struct IncarnationKey {
  std::string island_id;
  uint64_t incarnation = 0;

  friend auto operator<=>(const IncarnationKey&,
                          const IncarnationKey&) = default;
};

// What of an account cannot be had from the contributions: to be made durable
// now and then, above all when the incarnation begins and ends.
struct AccountRecord {
  IncarnationKey key;
  // Whose it is: instance_id of JoinRequest; 0 is unknown.
  uint64_t process = 0;
  // The process's count of tokens so far (IslandProgress.tokens).
  uint64_t process_tokens = 0;
  // What heartbeats reported, by fragment. Below 0 if the incarnation before
  // has contributed tokens of this process that no heartbeat had reported yet.
  std::vector<int64_t> reported;
};

// A contribution in an open round.
struct OpenTokens {
  uint64_t tokens = 0;
  uint64_t restored = 0;
};

class TokenLedger {
 public:
  // Fates of contributed tokens; each is an addend above.
  enum class Fate { kMerged, kPartial, kRefused, kQuarantined };

  explicit TokenLedger(uint32_t fragments) : fragments_(fragments) {}

  // Puts back what storage remembers of an account, but for the fates.
  void Restore(const AccountRecord& record);

  // Begins the account of an incarnation of `process`.
  void Open(const IncarnationKey& key, uint64_t process = 0);
  // Earlier incarnations of the process.
  std::vector<IncarnationKey> OfSameProcess(const IncarnationKey& key) const;
  // `successor`, just opened, is of the same process as `predecessor`, which
  // has ended: it takes over what had expired. `open` (by fragment) are the
  // predecessor's contributions in open rounds.
  void TakeOver(const IncarnationKey& predecessor,
                const IncarnationKey& successor,
                const std::vector<OpenTokens>& open);

  // A heartbeat said so. What falls is ignored.
  void Report(const IncarnationKey& key, uint64_t process_tokens);
  // Contributed tokens, `restored` of them by an earlier process, have got a
  // fate.
  void Settle(const IncarnationKey& key, uint32_t fragment, Fate fate,
              uint64_t tokens, uint64_t restored = 0);
  // The quarantine has given tokens back, for another fate.
  void Unquarantine(const IncarnationKey& key, uint32_t fragment,
                    uint64_t tokens, uint64_t restored = 0);

  AccountRecord Record(const IncarnationKey& key) const;

  // One account. `open` is what is in the fragment's open round.
  v1::TokenLedger Account(
      const IncarnationKey& key, uint32_t fragment, bool live,
      const std::map<IncarnationKey, OpenTokens>& open) const;
  std::vector<IncarnationKey> Keys() const;

 private:
  struct Line {
    int64_t reported = 0;
    uint64_t merged = 0;
    uint64_t partial = 0;
    uint64_t refused = 0;
    uint64_t quarantined = 0;
    // Of these.
    uint64_t restored = 0;

    uint64_t settled() const {
      return merged + partial + refused + quarantined;
    }
    // What the incarnation's own process has trained of what it contributed.
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

  Incarnation& Find(const IncarnationKey& key);
  // Of what had expired with the incarnation, what later ones contributed.
  int64_t BroughtBack(const IncarnationKey& key, uint32_t fragment,
                      const std::map<IncarnationKey, OpenTokens>& open) const;
  static uint64_t& Sum(Line& line, Fate fate);

  const uint32_t fragments_;
  std::map<IncarnationKey, Incarnation> incarnations_;
};

// Adds every field of `from` to `to`.
void AddTo(const v1::TokenLedger& from, v1::TokenLedger& to);

}  // namespace causeway

#endif  // SERVER_RULES_TOKEN_LEDGER_H_
