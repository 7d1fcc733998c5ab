// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/rules/token_ledger.h"

#include <algorithm>

#include "glog/logging.h"

namespace causeway {

uint64_t& TokenLedger::Sum(Line& line, Fate fate) {
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
  incarnation.process_tokens = record.process_tokens;
  for (uint32_t fragment = 0;
       fragment < std::min<size_t>(fragments_, record.reported.size());
       ++fragment) {
    incarnation.lines[fragment].reported = record.reported[fragment];
  }
}

void TokenLedger::Open(const IncarnationKey& key) { Find(key); }

void TokenLedger::TakeOver(const IncarnationKey& predecessor,
                           const IncarnationKey& successor,
                           const std::vector<uint64_t>& open_tokens) {
  Incarnation& from = Find(predecessor);
  Incarnation& to = Find(successor);
  to.process_tokens = from.process_tokens;
  for (uint32_t fragment = 0; fragment < fragments_; ++fragment) {
    Line& line = from.lines[fragment];
    const auto kept =
        static_cast<int64_t>(line.settled() + open_tokens[fragment]);
    to.lines[fragment].reported += line.reported - kept;
    line.reported = kept;
  }
}

void TokenLedger::Report(const IncarnationKey& key, uint64_t process_tokens) {
  Incarnation& incarnation = Find(key);
  if (process_tokens <= incarnation.process_tokens) return;
  const auto trained =
      static_cast<int64_t>(process_tokens - incarnation.process_tokens);
  incarnation.process_tokens = process_tokens;
  for (Line& line : incarnation.lines) line.reported += trained;
}

void TokenLedger::Settle(const IncarnationKey& key, uint32_t fragment,
                         Fate fate, uint64_t tokens) {
  Sum(Find(key).lines[fragment], fate) += tokens;
}

void TokenLedger::Unquarantine(const IncarnationKey& key, uint32_t fragment,
                               uint64_t tokens) {
  Line& line = Find(key).lines[fragment];
  CHECK_GE(line.quarantined, tokens);
  line.quarantined -= tokens;
}

AccountRecord TokenLedger::Record(const IncarnationKey& key) const {
  AccountRecord record{.key = key};
  const auto found = incarnations_.find(key);
  if (found == incarnations_.end()) return record;
  record.process_tokens = found->second.process_tokens;
  for (const Line& line : found->second.lines) {
    record.reported.push_back(line.reported);
  }
  return record;
}

v1::TokenLedger TokenLedger::Account(const IncarnationKey& key,
                                     uint32_t fragment, bool live,
                                     uint64_t open_tokens) const {
  v1::TokenLedger account;
  const auto found = incarnations_.find(key);
  if (found == incarnations_.end()) return account;
  const Line& line = found->second.lines[fragment];
  const uint64_t shown = line.settled() + open_tokens;
  const uint64_t reported = std::max(
      shown, static_cast<uint64_t>(std::max<int64_t>(0, line.reported)));
  const uint64_t undecided = reported - line.settled();
  account.set_reported(reported);
  account.set_merged(line.merged);
  account.set_partial_merged(line.partial);
  account.set_refused(line.refused);
  account.set_quarantined(line.quarantined);
  account.set_pending(live ? undecided : open_tokens);
  account.set_expired(live ? 0 : undecided - open_tokens);
  return account;
}

std::vector<IncarnationKey> TokenLedger::Keys() const {
  std::vector<IncarnationKey> keys;
  for (const auto& [key, incarnation] : incarnations_) keys.push_back(key);
  return keys;
}

void AddTo(const v1::TokenLedger& from, v1::TokenLedger& to) {
  to.set_reported(to.reported() + from.reported());
  to.set_merged(to.merged() + from.merged());
  to.set_partial_merged(to.partial_merged() + from.partial_merged());
  to.set_expired(to.expired() + from.expired());
  to.set_refused(to.refused() + from.refused());
  to.set_quarantined(to.quarantined() + from.quarantined());
  to.set_pending(to.pending() + from.pending());
}

}  // namespace causeway
