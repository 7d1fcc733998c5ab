// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/rules/round.h"

#include <algorithm>

#include "glog/logging.h"

namespace causeway {

ContributionKey KeyOf(const v1::ContributionHeader& header) {
  return {.fragment = header.fragment(),
          .base_version = header.base_version(),
          .island_id = header.identity().island_id(),
          .incarnation = header.identity().incarnation()};
}

bool Round::HasBytes(const std::string& island_id,
                     const std::string& digest) const {
  auto each = FirstOf(island_id);
  for (; each != contributions_.end() && each->first.island_id == island_id;
       ++each) {
    if (each->second.object().digest() == digest) return true;
  }
  return false;
}

bool Round::HasIsland(const std::string& island_id) const {
  const auto first = FirstOf(island_id);
  return first != contributions_.end() && first->first.island_id == island_id;
}

void Round::Credit(const std::string& island_id, uint64_t incarnation) {
  credited_.emplace(island_id, incarnation);
}

void Round::NoteHeard(const std::string& island_id) {
  heard_.insert(island_id);
  silent_.erase(island_id);
}

absl::Time Round::NoteCouldClose(bool could_close, absl::Time now) {
  could_close_at_ =
      could_close ? std::min(could_close_at_, now) : absl::InfiniteFuture();
  return could_close_at_;
}

void Round::NoteOffer(const std::string& island_id, absl::Time now) {
  offering_.insert(island_id);
  first_offer_ = std::min(first_offer_, now);
  overlap_since_ = std::min(overlap_since_, now);
}

void Round::Shift(absl::Duration duration, absl::Time now) {
  for (absl::Time* const since :
       {&overlap_since_, &quorum_at_, &could_close_at_}) {
    if (*since == absl::InfiniteFuture()) continue;
    *since = std::min(*since + duration, now);
  }
}

void Round::Add(const v1::ContributionHeader& header, double norm,
                absl::Time now) {
  CHECK(!merging_) << "a closed round takes no contributions";
  CHECK_EQ(header.base_version(), base_version_);
  const ContributionKey key = KeyOf(header);
  if (!contributions_.emplace(key, header).second) return;
  norms_[key] = norm;
  if (contributions_.size() == 1) {
    first_upload_ = now - std::min(overlap_since_, now);
  }
  if (contributions_.size() == options_.quorum) quorum_at_ = now;
}

void Round::Remove(const ContributionKey& key) {
  CHECK(!merging_) << "a closed round keeps its contributions";
  contributions_.erase(key);
  norms_.erase(key);
  if (contributions_.size() < options_.quorum) {
    quorum_at_ = absl::InfiniteFuture();
  }
}

bool Round::MayClose(size_t awaited, absl::Time now) const {
  if (merging_ || now < not_before_) return false;
  if (contributions_.size() < options_.quorum) return false;
  return awaited == 0 || now >= quorum_at_ + options_.grace;
}

void Round::Reopen(absl::Time retry_at) {
  merging_ = false;
  not_before_ = retry_at;
}

}  // namespace causeway
