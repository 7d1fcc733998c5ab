// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/rules/rank_parts.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"

namespace causeway {
namespace {

bool HaveSameRuns(const RankParts& a, const RankParts& b) {
  return std::equal(a.runs.begin(), a.runs.end(), b.runs.begin(), b.runs.end(),
                    [](const StripRun& left, const StripRun& right) {
                      return left.first_range == right.first_range &&
                             left.last_range == right.last_range &&
                             left.strips == right.strips;
                    });
}

// The norms of a contribution without the strips that one rank has values of.
class NormsWithout {
 public:
  explicit NormsWithout(const RankParts& parts) : runs_(parts.runs) {
    // Add the runs before and after each: subtracting from the whole would lose
    // small values, and everything if the whole is not finite.
    before_.resize(runs_.size() + 1);
    after_.resize(runs_.size() + 1);
    for (size_t i = 0; i < runs_.size(); ++i) {
      before_[i + 1] = before_[i] + runs_[i].squares;
    }
    for (size_t i = runs_.size(); i > 0; --i) {
      after_[i - 1] = after_[i] + runs_[i - 1].squares;
    }
  }

  double whole() const { return std::sqrt(before_.back()); }

  // Call for ranks in ascending order.
  double Of(uint64_t rank) {
    while (begin_ < runs_.size() && runs_[begin_].last_range < rank) ++begin_;
    size_t end = begin_;
    while (end < runs_.size() && runs_[end].first_range <= rank) ++end;
    return std::sqrt(before_[begin_] + after_[end]);
  }

 private:
  const std::vector<StripRun>& runs_;
  std::vector<double> before_;
  std::vector<double> after_;
  size_t begin_ = 0;
};

// Returns the ranks without whose values the norm is at most `most`.
std::vector<uint64_t> Explanations(const RankParts& parts, double most) {
  std::vector<uint64_t> found;
  NormsWithout norms(parts);
  for (uint64_t rank = 0; rank < parts.ranks; ++rank) {
    // NaN, the norm of values that are not finite, compares false.
    if (norms.Of(rank) <= most) found.push_back(rank);
  }
  return found;
}

}  // namespace

void RankPartsOfFragment::Passed(const RankParts& parts) {
  if (parts.runs.empty()) return;
  const auto same = std::find_if(
      passed_.begin(), passed_.end(),
      [&](const RankParts& each) { return HaveSameRuns(each, parts); });
  if (same != passed_.end()) {
    passed_.erase(same);
  } else if (passed_.size() == kLayouts) {
    passed_.pop_back();
  }
  passed_.push_front(parts);
}

const RankParts* RankPartsOfFragment::FindUsual(const RankParts& parts) const {
  for (const RankParts& each : passed_) {
    if (HaveSameRuns(each, parts)) return &each;
  }
  return nullptr;
}

std::string RankPartsOfFragment::Explain(const RankParts& parts, double most,
                                         double usual) const {
  if (parts.runs.empty()) return "";
  const std::vector<uint64_t> ranks = Explanations(parts, most);
  if (ranks.empty()) return "; no single rank's part explains that";
  if (ranks.size() > 1 || !IsClear(parts, ranks[0], usual)) {
    return "; it is not clear which rank's part explains that";
  }
  return absl::StrCat("; without the values of rank ", ranks[0], " (of ",
                      parts.ranks,
                      ") it would pass: look at that rank's memory and "
                      "processor");
}

bool RankPartsOfFragment::IsClear(const RankParts& parts, uint64_t rank,
                                  double usual) const {
  NormsWithout norms(parts);
  const double others = norms.Of(rank);
  // If only this rank's values change, any fault must show in its part.
  if (others == 0) return false;
  if (!std::isfinite(norms.whole())) return true;
  const RankParts* const passed = FindUsual(parts);
  if (passed == nullptr) return false;
  NormsWithout before(*passed);
  // The norm of the whole that the other ranks' values predict.
  return others / before.Of(rank) * before.whole() <= usual;
}

}  // namespace causeway
