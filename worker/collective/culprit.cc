// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/collective/culprit.h"

#include <cstdint>
#include <set>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/status_macros.h"
#include "glog/logging.h"
#include "proto/island.pb.h"

namespace causeway {
namespace {

// Longer than a failed rank takes to report. The rank that a victim waits for
// began to wait earlier, so it also gave up earlier.
constexpr absl::Duration kReportTime = absl::Seconds(1);

std::string Key(int rank) { return absl::StrCat("failure/", rank); }

absl::StatusOr<v1::RankFailure> ReportOf(int rank, Rendezvous* rendezvous) {
  ASSIGN_OR_RETURN(const std::string text,
                   rendezvous->Get(Key(rank), kReportTime));
  v1::RankFailure report;
  if (!report.ParseFromString(text)) {
    return absl::DataLossError(
        absl::StrCat("the report of rank ", rank, " is damaged"));
  }
  return report;
}

v1::RankFailure MakeReport(int rank, const absl::Status& status) {
  v1::RankFailure report;
  report.set_rank(rank);
  report.set_code(static_cast<int>(status.code()));
  report.set_message(std::string(status.message()));
  return report;
}

// Writes `report` as that of `rank` and returns it, or returns the rank's
// earlier report.
absl::StatusOr<v1::RankFailure> Report(int rank, const v1::RankFailure& report,
                                       Rendezvous* rendezvous) {
  const absl::Status put =
      rendezvous->Put(Key(rank), report.SerializeAsString());
  if (absl::IsAlreadyExists(put)) return ReportOf(rank, rendezvous);
  RETURN_IF_ERROR(put);
  return report;
}

// The payload of a status that carries a RankTrouble.
constexpr char kTroubleUrl[] = "type.googleapis.com/causeway.v1.RankTrouble";

absl::Status Blame(absl::StatusCode code, v1::RankTrouble trouble) {
  absl::Status status(code, trouble.text());
  status.SetPayload(kTroubleUrl, absl::Cord(trouble.SerializeAsString()));
  return status;
}

absl::Status BlameLink(int rank, int other, absl::string_view what) {
  v1::RankTrouble trouble;
  trouble.set_kind(v1::RankTrouble::SLOW_LINK);
  trouble.set_rank(static_cast<uint32_t>(rank));
  trouble.set_to_rank(static_cast<uint32_t>(other));
  trouble.set_share(1);
  trouble.set_text(
      absl::StrCat("ranks ", rank, " and ", other,
                   " do not reach one another, though both run: ", what));
  return Blame(absl::StatusCode::kDeadlineExceeded, std::move(trouble));
}

}  // namespace

absl::Status BlameRank(int culprit, absl::StatusCode code,
                       absl::string_view what) {
  const bool dead = code == absl::StatusCode::kUnavailable;
  v1::RankTrouble trouble;
  trouble.set_kind(dead ? v1::RankTrouble::DEAD_RANK
                        : v1::RankTrouble::STUCK_RANK);
  trouble.set_rank(static_cast<uint32_t>(culprit));
  trouble.set_text(absl::StrCat("rank ", culprit,
                                dead ? " is dead: " : " is stuck: ", what));
  return Blame(code, std::move(trouble));
}

absl::Status BlameCorruptRank(int culprit, absl::string_view what) {
  v1::RankTrouble trouble;
  trouble.set_kind(v1::RankTrouble::CORRUPT_RANK);
  trouble.set_rank(static_cast<uint32_t>(culprit));
  trouble.set_text(
      absl::StrCat("rank ", culprit, " computes wrong numbers: ", what));
  return Blame(absl::StatusCode::kDataLoss, std::move(trouble));
}

void ReportOwnFailure(int rank, const absl::Status& reason,
                      Rendezvous* rendezvous) {
  const absl::Status told =
      Report(rank, MakeReport(rank, reason), rendezvous).status();
  LOG_IF(WARNING, !told.ok())
      << "rank " << rank
      << " could not tell the others why it gives up: " << told.message();
}

absl::Status FindCulprit(int rank, int suspect, const absl::Status& seen,
                         Rendezvous* rendezvous) {
  const absl::StatusOr<v1::RankFailure> told =
      Report(rank, MakeReport(suspect, seen), rendezvous);
  if (!told.ok()) {
    // Without rank 0 there is no island, whatever else failed.
    return BlameRank(
        0, told.status().code(),
        absl::StrCat("it does not answer rank ", rank, "; ", seen.message()));
  }
  int reporter = rank;
  v1::RankFailure report = *told;
  std::set<int> reporters = {rank};
  while (report.rank() != reporter) {
    if (reporters.count(report.rank()) > 0) {
      return BlameLink(reporter, report.rank(), report.message());
    }
    const absl::StatusOr<v1::RankFailure> next =
        ReportOf(report.rank(), rendezvous);
    if (!next.ok()) {
      return BlameRank(report.rank(),
                       static_cast<absl::StatusCode>(report.code()),
                       report.message());
    }
    reporter = report.rank();
    reporters.insert(reporter);
    report = *next;
  }
  return absl::AbortedError(absl::StrCat("rank ", report.rank(),
                                         " has given up: ", report.message()));
}

std::optional<v1::RankTrouble> RankTroubleOf(const absl::Status& status) {
  const auto payload = status.GetPayload(kTroubleUrl);
  v1::RankTrouble trouble;
  if (!payload.has_value() || !trouble.ParseFromString(std::string(*payload))) {
    return std::nullopt;
  }
  return trouble;
}

}  // namespace causeway
