// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/election/electorate.h"

#include <utility>

namespace causeway {

Electorate::Electorate(const v1::Office& office, std::string self,
                       std::string run_id, LogFeed* feed)
    : self_(std::move(self)),
      run_id_(std::move(run_id)),
      feed_(feed),
      in_sync_(InSync(office)) {
  SetFeed();
}

std::optional<v1::Office> Electorate::Next(const v1::Office& office) {
  const std::set<std::string> followers = feed_->DueInSync();
  std::set<std::string> due = followers;
  due.insert(self_);
  const bool is_new = office.run_id().empty();
  if (!in_sync_.Propose(due) && !is_new) return std::nullopt;
  SetFeed();
  // Added followers may lack published versions.
  if (!feed_->HavePublished(followers)) return std::nullopt;
  v1::Office next = WithInSync(office, due);
  next.set_run_id(run_id_);
  due_ = std::move(due);
  return next;
}

void Electorate::NoteMade() {
  in_sync_.Settle(due_);
  SetFeed();
}

void Electorate::SetFeed() {
  std::set<std::string> others = in_sync_.names();
  others.erase(self_);
  feed_->SetInSync(others);
}

}  // namespace causeway
