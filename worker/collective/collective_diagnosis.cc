// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/collective/collective_diagnosis.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "common/as_bytes.h"
#include "common/status_macros.h"

namespace causeway {
namespace {

constexpr double kNoticeableShare = 0.2;

struct Totals {
  explicit Totals(size_t ranks) : late(ranks), transfer(ranks), bytes(ranks) {}

  // The time in operations and between them.
  absl::Duration time;
  // By rank, without each one's longest time: the time by which it came after
  // all others, and the time that its data took.
  std::vector<absl::Duration> late;
  std::vector<absl::Duration> transfer;
  std::vector<int64_t> bytes;
};

Totals Add(int rank, absl::Span<const CollectiveTimes> times) {
  const size_t ranks = times[0].peers.size();
  Totals totals(ranks);
  // The longest, by rank.
  std::vector<absl::Duration> latest(ranks);
  std::vector<CollectiveTimes::Peer> slowest(ranks);
  for (const CollectiveTimes& operation : times) {
    if (operation.collective == Collective::kBroadcast) continue;
    totals.time += operation.duration + operation.peers[rank].away;
    const auto& peers = operation.peers;
    for (size_t peer = 0; peer < ranks; ++peer) {
      absl::Duration others;
      for (size_t other = 0; other < ranks; ++other) {
        if (other != peer) others = std::max(others, peers[other].away);
      }
      const absl::Duration late =
          std::max(absl::ZeroDuration(), peers[peer].away - others);
      totals.late[peer] += late;
      latest[peer] = std::max(latest[peer], late);
      totals.transfer[peer] += peers[peer].transfer;
      totals.bytes[peer] += peers[peer].bytes;
      if (peers[peer].transfer > slowest[peer].transfer) {
        slowest[peer] = peers[peer];
      }
    }
  }
  for (size_t peer = 0; peer < ranks; ++peer) {
    totals.late[peer] -= latest[peer];
    totals.transfer[peer] -= slowest[peer].transfer;
    totals.bytes[peer] -= slowest[peer].bytes;
  }
  return totals;
}

// Returns bytes per second.
double Speed(const Totals& totals, size_t peer) {
  const double seconds = absl::ToDoubleSeconds(totals.transfer[peer]);
  return seconds > 0 ? static_cast<double>(totals.bytes[peer]) / seconds
                     : std::numeric_limits<double>::infinity();
}

// Returns the median speed of the links to `rank` from ranks other than `peer`,
// or 0 if there are none.
double MedianSpeedOfOthers(const Totals& totals, size_t rank, size_t peer) {
  std::vector<double> speeds;
  for (size_t other = 0; other < totals.bytes.size(); ++other) {
    if (other != rank && other != peer) speeds.push_back(Speed(totals, other));
  }
  if (speeds.empty()) return 0;
  const auto middle = speeds.begin() + static_cast<int64_t>(speeds.size()) / 2;
  std::nth_element(speeds.begin(), middle, speeds.end());
  return *middle;
}

}  // namespace

CollectiveDiagnosis DiagnoseCollectives(
    int rank, absl::Span<const CollectiveTimes> times) {
  CollectiveDiagnosis diagnosis;
  if (times.empty() || times[0].peers.size() < 2) return diagnosis;
  const Totals totals = Add(rank, times);
  if (totals.time <= absl::ZeroDuration()) return diagnosis;

  const auto latest = std::max_element(totals.late.begin(), totals.late.end());
  const auto slowest =
      std::max_element(totals.transfer.begin(), totals.transfer.end());
  const double late_share = absl::FDivDuration(*latest, totals.time);
  const double link_share = absl::FDivDuration(*slowest, totals.time);
  if (std::max(late_share, link_share) < kNoticeableShare) return diagnosis;

  if (late_share >= link_share) {
    diagnosis.kind = CollectiveDiagnosis::Kind::kSlowRank;
    diagnosis.rank = static_cast<int>(latest - totals.late.begin());
    diagnosis.share = late_share;
    return diagnosis;
  }
  const size_t peer = static_cast<size_t>(slowest - totals.transfer.begin());
  const double speed = Speed(totals, peer);
  const double others = MedianSpeedOfOthers(totals, rank, peer);
  if (others > 0 && speed > others / 2) return diagnosis;
  diagnosis.kind = CollectiveDiagnosis::Kind::kSlowLink;
  diagnosis.rank = static_cast<int>(peer);
  diagnosis.to_rank = rank;
  diagnosis.share = link_share;
  diagnosis.speed = speed;
  diagnosis.other_speed = others;
  return diagnosis;
}

absl::StatusOr<CollectiveDiagnosis> WorstOf(const CollectiveDiagnosis& own,
                                            Communicator* communicator) {
  // Ranks run the same program, so they send diagnoses as they are in memory.
  std::vector<CollectiveDiagnosis> all(communicator->size(), own);
  const std::vector<absl::Span<const char>> to(
      all.size(), AsBytes(absl::MakeConstSpan(&own, 1)));
  std::vector<absl::Span<char>> from;
  for (CollectiveDiagnosis& diagnosis : all) {
    from.push_back(AsBytes(absl::MakeSpan(&diagnosis, 1)));
  }
  RETURN_IF_ERROR(communicator->AllToAll(to, std::move(from)));
  return *absl::c_max_element(
      all, [](const CollectiveDiagnosis& a, const CollectiveDiagnosis& b) {
        return a.share < b.share;
      });
}

v1::RankTrouble ToRankTrouble(const CollectiveDiagnosis& diagnosis) {
  v1::RankTrouble trouble;
  if (diagnosis.kind == CollectiveDiagnosis::Kind::kEven) return trouble;
  trouble.set_rank(static_cast<uint32_t>(diagnosis.rank));
  trouble.set_share(diagnosis.share);
  if (diagnosis.kind == CollectiveDiagnosis::Kind::kSlowRank) {
    trouble.set_kind(v1::RankTrouble::SLOW_RANK);
    trouble.set_text(absl::StrFormat(
        "rank %d is slow: the others wait for it %.0f %% of the time",
        diagnosis.rank, 100 * diagnosis.share));
    return trouble;
  }
  trouble.set_kind(v1::RankTrouble::SLOW_LINK);
  trouble.set_to_rank(static_cast<uint32_t>(diagnosis.to_rank));
  trouble.set_text(absl::StrFormat(
      "the link from rank %d to rank %d is slow: %.1f MB/s, %.0f %% of the "
      "time%s",
      diagnosis.rank, diagnosis.to_rank, diagnosis.speed / 1e6,
      100 * diagnosis.share,
      diagnosis.other_speed > 0 ? absl::StrFormat(" (other links %.1f MB/s)",
                                                  diagnosis.other_speed / 1e6)
                                : ""));
  return trouble;
}

}  // namespace causeway
