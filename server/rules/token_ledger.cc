// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/rules/token_ledger.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <limits>
#include <utility>

#include "glog/logging.h"

namespace causeway {
namespace {

constexpr auto kMostSigned = static_cast<int64_t>(TokenLedger::kMost);
constexpr uint64_t kNewest = std::numeric_limits<uint64_t>::max();

OpenTokens Bounded(const OpenTokens& open) {
  return {.tokens = std::min(open.tokens, TokenLedger::kMost),
          .restored = std::min(open.restored, TokenLedger::kMost)};
}

OpenTokens InRound(const IncarnationKey& key,
                   const std::map<IncarnationKey, OpenTokens>& open) {
  const auto found = open.find(key);
  return found == open.end() ? OpenTokens() : Bounded(found->second);
}

// Returns a + b, at most `most`; a must not be above it.
uint64_t BoundedSum(uint64_t a, uint64_t b,
                    uint64_t most = TokenLedger::kMost) {
  return b > most - a ? most : a + b;
}

// Returns a - b, or 0 if b is more.
uint64_t Difference(uint64_t a, uint64_t b) { return a - std::min(a, b); }

}  // namespace

uint64_t& TokenLedger::Of(Line& line, Fate fate) {
  switch (fate) {
    case Fate::kMerged:
      return line.merged;
    case Fate::kPartial:
      return line.partial;
    case Fate::kRefused:
      return line.refused;
    case Fate::kQuarantined:
      return line.quarantined;
  }
  LOG(FATAL) << "fate " << static_cast<int>(fate);
}

TokenLedger::Incarnation& TokenLedger::Find(const IncarnationKey& key) {
  Incarnation& incarnation = incarnations_[key];
  incarnation.lines.resize(fragments_);
  return incarnation;
}

void TokenLedger::Restore(const AccountRecord& record) {
  Incarnation& incarnation = Find(record.key);
  incarnation.process = record.process;
  incarnation.process_tokens = record.process_tokens;
  for (uint32_t fragment = 0;
       fragment < std::min<size_t>(fragments_, record.reported.size());
       ++fragment) {
    incarnation.lines[fragment].reported = record.reported[fragment];
  }
}

void TokenLedger::Open(const IncarnationKey& key, uint64_t process) {
  Incarnation& incarnation = Find(key);
  incarnation.process = process;
  const auto folded = folded_processes_.find({key.island_id, process});
  if (folded != folded_processes_.end()) {
    incarnation.process_tokens = folded->second;
  }
}

std::vector<IncarnationKey> TokenLedger::OfSameProcess(
    const IncarnationKey& key) const {
  std::vector<IncarnationKey> earlier;
  const auto end = incarnations_.find(key);
  if (end == incarnations_.end() || end->second.process == 0) return earlier;
  for (auto each = incarnations_.lower_bound({key.island_id, 0}); each != end;
       ++each) {
    if (each->second.process == end->second.process) {
      earlier.push_back(each->first);
    }
  }
  return earlier;
}

bool TokenLedger::TakeOver(const IncarnationKey& predecessor,
                           const IncarnationKey& successor,
                           const std::vector<OpenTokens>& open) {
  Incarnation& from = Find(predecessor);
  Incarnation& to = Find(successor);
  to.process_tokens = std::max(to.process_tokens, from.process_tokens);
  bool has_moved = false;
  for (uint32_t fragment = 0; fragment < fragments_; ++fragment) {
    Line& line = from.lines[fragment];
    const int64_t kept = line.contributed(Bounded(open[fragment]));
    int64_t& reported = to.lines[fragment].reported;
    reported = std::min(reported + line.reported - kept, kMostSigned);
    has_moved |= line.reported != kept;
    line.reported = kept;
  }
  return has_moved;
}

void TokenLedger::Report(const IncarnationKey& key, uint64_t process_tokens) {
  Incarnation& incarnation = Find(key);
  if (process_tokens <= incarnation.process_tokens) return;
  const auto trained = static_cast<int64_t>(
      std::min(process_tokens - incarnation.process_tokens, kMost));
  incarnation.process_tokens = process_tokens;
  for (Line& line : incarnation.lines) {
    line.reported = std::min(line.reported + trained, kMostSigned);
  }
}

void TokenLedger::Settle(const IncarnationKey& key, uint32_t fragment,
                         Fate fate, uint64_t tokens, uint64_t restored) {
  Line& line = Find(key).lines[fragment];
  Of(line, fate) = BoundedSum(Of(line, fate), tokens);
  line.restored = BoundedSum(line.restored, restored);
}

void TokenLedger::Unquarantine(const IncarnationKey& key, uint32_t fragment,
                               uint64_t tokens, uint64_t restored) {
  Line& line = Find(key).lines[fragment];
  line.quarantined = Difference(line.quarantined, tokens);
  line.restored = Difference(line.restored, restored);
}

void TokenLedger::Fold(absl::FunctionRef<bool(const std::string&)> is_known,
                       const std::set<IncarnationKey>& open) {
  const IncarnationKey nameless;
  for (auto begin = incarnations_.upper_bound(nameless);
       begin != incarnations_.end();) {
    const std::string island_id = begin->first.island_id;
    const auto end = incarnations_.upper_bound({island_id, kNewest});
    const bool known = is_known(island_id);
    const auto foldable =
        EndOfFoldable(begin, end, known ? kUnfolded : 0, open);
    if (known) {
      if (std::distance(begin, foldable) > 1) {
        FoldInto(std::prev(foldable)->first, begin, foldable);
      }
    } else if (foldable == end) {
      // All at once, because those left could not restore the others' tokens.
      FoldInto(nameless, begin, end);
    }
    begin = end;
  }
}

TokenLedger::Incarnations::iterator TokenLedger::EndOfFoldable(
    Incarnations::iterator begin, Incarnations::iterator end, int64_t unfolded,
    const std::set<IncarnationKey>& open) {
  const auto most = std::max<int64_t>(0, std::distance(begin, end) - unfolded);
  auto last =
      std::find_if(begin, std::next(begin, most), [&](const auto& each) {
        const auto& [key, incarnation] = each;
        return open.contains(key) ||
               std::any_of(
                   incarnation.lines.begin(), incarnation.lines.end(),
                   [](const Line& line) { return line.quarantined > 0; });
      });
  // Returns whether one of the `count` accounts from `last` may bring back
  // tokens of `old`.
  const auto is_continued = [&](const Incarnation& old, int64_t count) {
    const bool has_expired = std::any_of(
        old.lines.begin(), old.lines.end(),
        [](const Line& line) { return line.reported > line.contributed({}); });
    if (old.process == 0 || !has_expired) return false;
    for (auto later = last; count > 0 && later != end; ++later, --count) {
      if (later->second.process == old.process) return true;
    }
    return false;
  };
  int64_t places = 0;
  for (auto each = last; each != begin && places < kUnfolded;) {
    --each;
    ++places;
    if (is_continued(each->second, kUnfolded + 1 - places)) {
      last = each;
      places = 0;
    }
  }
  return last;
}

void TokenLedger::FoldInto(IncarnationKey into, Incarnations::iterator begin,
                           Incarnations::iterator end) {
  const IncarnationKey newest = std::prev(end)->first;
  Incarnation folded;
  for (uint32_t fragment = 0; fragment < fragments_; ++fragment) {
    v1::TokenLedger sum;
    if (into.island_id != newest.island_id) {
      sum = Account(into, fragment, /*live=*/false, {});
    }
    std::map<IncarnationKey, int64_t> brought_back =
        BroughtBack(newest, fragment, {});
    for (auto each = begin; each != end; ++each) {
      AddTo(MakeAccount(each->second.lines[fragment], {}, /*live=*/false,
                        brought_back[each->first]),
            sum);
    }
    Line& line = folded.lines.emplace_back();
    line.merged = std::min(sum.merged(), kMost);
    line.partial = std::min(sum.partial_merged(), kMost);
    line.refused = std::min(sum.refused(), kMost);
    line.reported =
        static_cast<int64_t>(line.settled() + std::min(sum.expired(), kMost));
  }
  for (auto each = begin; each != end; ++each) {
    const Incarnation& old = each->second;
    if (old.process == 0) continue;
    uint64_t& tokens = folded_processes_[{newest.island_id, old.process}];
    tokens = std::max(tokens, old.process_tokens);
  }
  incarnations_.erase(begin, end);
  incarnations_[std::move(into)] = std::move(folded);
}

AccountRecord TokenLedger::Record(const IncarnationKey& key) const {
  AccountRecord record{.key = key};
  const auto found = incarnations_.find(key);
  if (found == incarnations_.end()) return record;
  record.process = found->second.process;
  record.process_tokens = found->second.process_tokens;
  for (const Line& line : found->second.lines) {
    record.reported.push_back(line.reported);
  }
  return record;
}

std::map<IncarnationKey, int64_t> TokenLedger::BroughtBack(
    const IncarnationKey& newest, uint32_t fragment,
    const std::map<IncarnationKey, OpenTokens>& open) const {
  // An incarnation with `left` expired tokens that are not yet brought back.
  struct Expired {
    const IncarnationKey* key;
    uint64_t process;
    // Its place among the island's incarnations.
    int64_t place;
    int64_t left;
  };
  // Oldest first.
  std::vector<Expired> expired;
  std::map<IncarnationKey, int64_t> brought_back;
  // Takes what is left, at most `tokens`.
  const auto take = [&](Expired& from, int64_t& tokens) {
    const int64_t moved = std::clamp<int64_t>(tokens, 0, from.left);
    tokens -= moved;
    from.left -= moved;
    brought_back[*from.key] += moved;
  };
  int64_t place = 0;
  for (auto each = incarnations_.lower_bound({newest.island_id, 0});
       each != incarnations_.end() && each->first <= newest; ++each, ++place) {
    const Line& line = each->second.lines[fragment];
    const OpenTokens tokens = InRound(each->first, open);
    const int64_t contributed = line.contributed(tokens);
    auto restored = static_cast<int64_t>(line.restored + tokens.restored);
    // These may merely be tokens that no heartbeat has reported yet.
    int64_t again = contributed - std::max<int64_t>(0, line.reported);
    const uint64_t process = each->second.process;
    const auto is_near = [&](const Expired& from) {
      return place - from.place <= kUnfolded;
    };
    const auto is_own = [&](const Expired& from) {
      return process != 0 && from.process == process && is_near(from);
    };
    for (auto from = expired.rbegin();
         again > 0 && from != expired.rend() && is_near(*from); ++from) {
      if (is_own(*from)) take(*from, again);
    }
    for (auto from = expired.rbegin(); restored > 0 && from != expired.rend();
         ++from) {
      if (!is_own(*from)) take(*from, restored);
    }
    while (!expired.empty() && expired.back().left == 0) expired.pop_back();
    if (line.reported <= contributed) continue;
    expired.push_back({.key = &each->first,
                       .process = process,
                       .place = place,
                       .left = line.reported - contributed});
  }
  return brought_back;
}

v1::TokenLedger TokenLedger::Account(
    const IncarnationKey& key, uint32_t fragment, bool live,
    const std::map<IncarnationKey, OpenTokens>& open) const {
  const auto found = incarnations_.find(key);
  if (found == incarnations_.end()) return {};
  return MakeAccount(
      found->second.lines[fragment], InRound(key, open), live,
      BroughtBack({key.island_id, kNewest}, fragment, open)[key]);
}

v1::TokenLedger TokenLedger::Sum(
    uint32_t fragment, absl::FunctionRef<bool(const IncarnationKey&)> is_live,
    absl::FunctionRef<std::map<IncarnationKey, OpenTokens>(const std::string&)>
        open_of) const {
  v1::TokenLedger sum;
  for (auto each = incarnations_.begin(); each != incarnations_.end();) {
    const std::string& island_id = each->first.island_id;
    const std::map<IncarnationKey, OpenTokens> open = open_of(island_id);
    const std::map<IncarnationKey, int64_t> brought_back =
        BroughtBack({island_id, kNewest}, fragment, open);
    for (; each != incarnations_.end() && each->first.island_id == island_id;
         ++each) {
      const auto& [key, incarnation] = *each;
      const auto back = brought_back.find(key);
      AddTo(MakeAccount(incarnation.lines[fragment], InRound(key, open),
                        is_live(key),
                        back == brought_back.end() ? 0 : back->second),
            sum);
    }
  }
  return sum;
}

v1::TokenLedger TokenLedger::MakeAccount(const Line& line,
                                         const OpenTokens& tokens, bool live,
                                         int64_t brought_back) {
  v1::TokenLedger account;
  // At least the contributed tokens: a heartbeat will report them later.
  const int64_t trained =
      std::max(line.reported, line.contributed(tokens)) - brought_back;
  const uint64_t reported =
      static_cast<uint64_t>(trained) + line.restored + tokens.restored;
  const uint64_t undecided = Difference(reported, line.settled());
  account.set_reported(line.settled() + undecided);
  account.set_merged(line.merged);
  account.set_partial_merged(line.partial);
  account.set_refused(line.refused);
  account.set_quarantined(line.quarantined);
  const uint64_t pending =
      live ? undecided : std::min(undecided, tokens.tokens);
  account.set_pending(pending);
  account.set_expired(undecided - pending);
  return account;
}

void AddTo(const v1::TokenLedger& from, v1::TokenLedger& to) {
  const auto sum = [](uint64_t a, uint64_t b) {
    return BoundedSum(a, b, std::numeric_limits<uint64_t>::max());
  };
  to.set_reported(sum(to.reported(), from.reported()));
  to.set_merged(sum(to.merged(), from.merged()));
  to.set_partial_merged(sum(to.partial_merged(), from.partial_merged()));
  to.set_expired(sum(to.expired(), from.expired()));
  to.set_refused(sum(to.refused(), from.refused()));
  to.set_quarantined(sum(to.quarantined(), from.quarantined()));
  to.set_pending(sum(to.pending(), from.pending()));
}

}  // namespace causeway
