// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/collective/slow_process.h"

#include <algorithm>
#include <iterator>
#include <set>

namespace causeway {
namespace {

using Kind = CollectiveDiagnosis::Kind;

// Returns the places of the processes that a window blames.
std::set<int> Blamed(const CollectiveDiagnosis& window, int ranks) {
  if (window.kind == Kind::kEven) return {};
  std::set<int> places = {window.rank / ranks};
  if (window.kind == Kind::kSlowLink) places.insert(window.to_rank / ranks);
  return places;
}

}  // namespace

double ShareSaved(double share, int processes, int fewer) {
  return 1 - (1 - share) * processes / fewer;
}

std::optional<SlowProcess> FindSlowProcess(
    absl::Span<const CollectiveDiagnosis> windows,
    const SlowProcessRules& rules) {
  if (rules.fewer == 0 || windows.size() < kSlowWindows) return std::nullopt;
  windows.remove_prefix(windows.size() - kSlowWindows);
  std::set<int> blamed = Blamed(windows[0], rules.ranks);
  double share = 1;
  for (const CollectiveDiagnosis& window : windows) {
    const std::set<int> now = Blamed(window, rules.ranks);
    for (auto place = blamed.begin(); place != blamed.end();) {
      place = now.count(*place) > 0 ? std::next(place) : blamed.erase(place);
    }
    share = std::min(share, window.share);
  }
  // The first process leads.
  blamed.erase(0);
  if (blamed.empty()) return std::nullopt;
  const double saved = ShareSaved(share, rules.processes, rules.fewer);
  if (saved < rules.least_saved) return std::nullopt;
  return SlowProcess{.place = *blamed.rbegin(), .share = share, .saved = saved};
}

}  // namespace causeway
