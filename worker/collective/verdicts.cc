// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/collective/verdicts.h"

#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "glog/logging.h"
#include "worker/collective/rank_stamps.h"

namespace causeway {
namespace {

std::string Key(int process) { return absl::StrCat("verdict/", process); }

}  // namespace

std::optional<v1::RankTrouble> Joined(std::optional<v1::RankTrouble> first,
                                      std::optional<v1::RankTrouble> second) {
  if (!first.has_value()) return second;
  if (second.has_value()) {
    absl::StrAppend(first->mutable_text(), "; ", second->text());
  }
  return first;
}

void ShareVerdict(int process, Rendezvous* table) {
  const std::optional<v1::RankTrouble> verdict = TakeOpenedVerdict();
  if (!verdict.has_value()) return;
  const absl::Status told =
      table->Put(Key(process), verdict->SerializeAsString());
  LOG_IF(WARNING, !told.ok()) << "rank 0 could not be told that "
                              << verdict->text() << ": " << told.message();
}

std::optional<v1::RankTrouble> Verdicts::Take() {
  std::optional<v1::RankTrouble> all = TakeOpenedVerdict();
  for (int process = 1; table_ != nullptr && process < processes_; ++process) {
    if (heard_.contains(process)) continue;
    const absl::StatusOr<std::string> text =
        table_->Get(Key(process), absl::ZeroDuration());
    if (!text.ok()) continue;
    heard_.insert(process);
    v1::RankTrouble verdict;
    if (!verdict.ParseFromString(*text)) continue;
    all = Joined(std::move(all), std::move(verdict));
  }
  return all;
}

}  // namespace causeway
