// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/collective/culprit.h"

#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/status_macros.h"
#include "glog/logging.h"
#include "proto/island.pb.h"

namespace causeway {
namespace {

// Longer than it takes a rank that has failed to report it. Whom a victim waits
// for began to wait earlier than the victim, so it also gave up earlier.
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

// Writes `report` as that of `rank`; what it reported before if it has.
v1::RankFailure Report(int rank, const v1::RankFailure& report,
                       Rendezvous* rendezvous) {
  const absl::Status put =
      rendezvous->Put(Key(rank), report.SerializeAsString());
  if (absl::IsAlreadyExists(put)) {
    const absl::StatusOr<v1::RankFailure> earlier = ReportOf(rank, rendezvous);
    if (earlier.ok()) return *earlier;
  }
  LOG_IF(WARNING, !put.ok() && !absl::IsAlreadyExists(put))
      << "rank " << rank
      << " could not tell the others what it saw: " << put.message();
  return report;
}

v1::RankFailure MakeReport(int rank, const absl::Status& status) {
  v1::RankFailure report;
  report.set_rank(rank);
  report.set_code(static_cast<int>(status.code()));
  report.set_message(std::string(status.message()));
  return report;
}

}  // namespace

void ReportOwnFailure(int rank, const absl::Status& reason,
                      Rendezvous* rendezvous) {
  Report(rank, MakeReport(rank, reason), rendezvous);
}

absl::Status FindCulprit(int rank, int suspect, const absl::Status& seen,
                         Rendezvous* rendezvous) {
  int reporter = rank;
  v1::RankFailure report = Report(rank, MakeReport(suspect, seen), rendezvous);
  std::set<int> reporters = {rank};
  while (report.rank() != reporter) {
    if (reporters.count(report.rank()) > 0) {
      return absl::DeadlineExceededError(absl::StrCat(
          "ranks ", reporter, " and ", report.rank(),
          " do not reach one another, though both run: ", report.message()));
    }
    const absl::StatusOr<v1::RankFailure> next =
        ReportOf(report.rank(), rendezvous);
    if (!next.ok()) break;
    reporter = report.rank();
    reporters.insert(reporter);
    report = *next;
  }
  const auto code = static_cast<absl::StatusCode>(report.code());
  const char* verdict = report.rank() == reporter ? " has given up: "
                        : code == absl::StatusCode::kUnavailable
                            ? " is dead: "
                            : " is stuck: ";
  return absl::Status(
      report.rank() == reporter && code != absl::StatusCode::kFailedPrecondition
          ? absl::StatusCode::kAborted
          : code,
      absl::StrCat("rank ", report.rank(), verdict, report.message()));
}

}  // namespace causeway
