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
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "common/status_macros.h"
#include "glog/logging.h"
#include "proto/island.pb.h"

namespace causeway {
namespace {

// A failed rank takes less than this to report. The rank that a victim waits
// for began to wait earlier, so it also gave up earlier.
constexpr absl::Duration kReportTime = absl::Seconds(1);

// Connections to a table may break, and a network may be away for a moment. A
// table that is away this many times in a row, with kRendezvousAnswer between,
// has ended.
constexpr int kTriesUntilGone = 25;

// The key with the trouble of a rank that cannot connect.
constexpr char kUnconnectedKey[] = "unconnected";

std::string Key(int rank) { return absl::StrCat("failure/", rank); }

std::string ReachKey(int rank) { return absl::StrCat("unreached/", rank); }

absl::StatusOr<v1::RankFailure> ReportOf(int rank, absl::Duration timeout,
                                         Rendezvous* rendezvous) {
  ASSIGN_OR_RETURN(const std::string text, rendezvous->Get(Key(rank), timeout));
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

// Writes and returns `report` as the report of `rank`, or returns its earlier
// one.
absl::StatusOr<v1::RankFailure> Report(int rank, const v1::RankFailure& report,
                                       Rendezvous* rendezvous) {
  const absl::Status put =
      rendezvous->Put(Key(rank), report.SerializeAsString());
  if (absl::IsAlreadyExists(put)) {
    return ReportOf(rank, kReportTime, rendezvous);
  }
  RETURN_IF_ERROR(put);
  return report;
}

std::string GivenUp(const v1::RankFailure& report) {
  return absl::StrCat("rank ", report.rank(),
                      " has given up: ", report.message());
}

// Returns how long to wait for the report of `rank`, for which `reporter`
// waited. It may come late only if the network reaches `rank` from rank 0,
// which gets the reports, but not from `reporter`.
absl::Duration ReportTime(const SeenFailure& failure, int reporter, int rank,
                          Rendezvous* rendezvous) {
  const bool may_be_late =
      !Reaches(reporter, rank, kRendezvousAnswer, rendezvous).value_or(true) &&
      Reaches(0, rank, kReportTime, rendezvous).value_or(true);
  return may_be_late ? failure.patience : kReportTime;
}

// The payload of a status that carries a RankTrouble.
constexpr char kTroubleUrl[] = "type.googleapis.com/causeway.v1.RankTrouble";

absl::Status Blame(absl::StatusCode code, v1::RankTrouble trouble) {
  absl::Status status(code, trouble.text());
  status.SetPayload(kTroubleUrl, absl::Cord(trouble.SerializeAsString()));
  return status;
}

// Returns the status for every rank after this value of kUnconnectedKey.
absl::Status Unconnected(const std::string& text) {
  v1::RankTrouble trouble;
  if (!trouble.ParseFromString(text)) return absl::OkStatus();
  const bool dead = trouble.kind() == v1::RankTrouble::DEAD_RANK;
  return Blame(dead ? absl::StatusCode::kUnavailable
                    : absl::StatusCode::kDeadlineExceeded,
               std::move(trouble));
}

// Blames the silent rank that the report of `reporter` names. Compares what the
// other ranks reach. If some reach the silent rank, but the reporter or rank 0
// does not, the link from there is broken; if none does, the host is dead.
// Nothing is known of ranks that rank 0 does not reach, such as others on a
// lost host.
absl::Status BlameSilentRank(const SeenFailure& failure, int reporter,
                             const v1::RankFailure& report,
                             Rendezvous* rendezvous) {
  const int silent = report.rank();
  const auto reaches = [&](int rank, absl::Duration timeout) {
    return Reaches(rank, silent, timeout, rendezvous);
  };
  int without = reporter;
  if (reaches(reporter, kRendezvousAnswer).value_or(true)) without = 0;
  if (reaches(without, kRendezvousAnswer).value_or(true)) {
    return BlameRank(silent, static_cast<absl::StatusCode>(report.code()),
                     report.message());
  }
  absl::Duration patience = failure.patience;
  for (int rank = 0; rank < failure.ranks; ++rank) {
    if (rank == silent || rank == without ||
        !Reaches(0, rank, kRendezvousAnswer, rendezvous).value_or(true)) {
      continue;
    }
    const std::optional<bool> reached = reaches(rank, patience);
    if (!reached.has_value()) patience = kRendezvousAnswer;
    if (reached.value_or(false)) {
      return ReportBrokenLink(without, silent, report.message(), rendezvous);
    }
  }
  return BlameRank(
      silent, absl::StatusCode::kUnavailable,
      absl::StrCat("its host cannot be reached; ", report.message()));
}

}  // namespace

absl::Status ReportBrokenLink(int rank, int other, absl::string_view what,
                              Rendezvous* rendezvous) {
  v1::RankTrouble trouble;
  trouble.set_kind(v1::RankTrouble::SLOW_LINK);
  trouble.set_rank(static_cast<uint32_t>(rank));
  trouble.set_to_rank(static_cast<uint32_t>(other));
  trouble.set_share(1);
  trouble.set_text(
      absl::StrCat("ranks ", rank, " and ", other,
                   " cannot reach each other, though both run: ", what));
  // The first of several reports counts.
  rendezvous->Put(kUnconnectedKey, trouble.SerializeAsString()).IgnoreError();
  return Blame(absl::StatusCode::kDeadlineExceeded, std::move(trouble));
}

void ReportDeadRank(int rank, absl::string_view what, Rendezvous* rendezvous) {
  const absl::Status dead =
      BlameRank(rank, absl::StatusCode::kUnavailable, what);
  rendezvous->Put(kUnconnectedKey, RankTroubleOf(dead)->SerializeAsString())
      .IgnoreError();
}

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
  if (IsWithoutRank0(reason)) return;
  const absl::Status told =
      Report(rank, MakeReport(rank, reason), rendezvous).status();
  LOG_IF(WARNING, !told.ok())
      << "rank " << rank
      << " could not tell the others why it gives up: " << told.message();
}

absl::Status CheckGivenUp(int ranks, Rendezvous* rendezvous) {
  // The causes are not known, so people see all.
  std::vector<std::string> reasons;
  for (int rank = 1; rank < ranks; ++rank) {
    const absl::StatusOr<v1::RankFailure> report =
        ReportOf(rank, absl::ZeroDuration(), rendezvous);
    if (report.ok() && report->rank() == rank) {
      reasons.push_back(GivenUp(*report));
    }
  }
  return reasons.empty() ? absl::OkStatus()
                         : absl::AbortedError(absl::StrJoin(reasons, "; "));
}

absl::Status FindCulprit(const SeenFailure& failure, Rendezvous* rendezvous,
                         absl::FunctionRef<void()> reported) {
  const int rank = failure.rank;
  // The report may reach rank 0 where data do not: the leader can have an
  // address in another network.
  const absl::StatusOr<v1::RankFailure> told =
      Report(rank, MakeReport(failure.suspect, failure.status), rendezvous);
  if (told.ok()) {
    // The first of several communicators' failures counts.
    rendezvous->Put(ReachKey(rank), absl::StrJoin(failure.unreached, ","))
        .IgnoreError();
  }
  reported();
  // Another communicator of this rank may have found the culprit.
  RETURN_IF_ERROR(CheckUnconnected(absl::ZeroDuration(), rendezvous));
  if (absl::IsResourceExhausted(told.status())) return told.status();
  if (!told.ok()) {
    // Without rank 0 there is no island, whatever else failed.
    return BlameRank(0, told.status().code(),
                     absl::StrCat("it does not answer rank ", rank, "; ",
                                  failure.status.message()));
  }
  int reporter = rank;
  v1::RankFailure report = *told;
  std::set<int> reporters = {rank};
  while (report.rank() != reporter) {
    if (reporters.count(report.rank()) > 0) {
      return ReportBrokenLink(reporter, report.rank(), report.message(),
                              rendezvous);
    }
    const absl::StatusOr<v1::RankFailure> next = ReportOf(
        report.rank(), ReportTime(failure, reporter, report.rank(), rendezvous),
        rendezvous);
    if (!next.ok()) {
      return BlameSilentRank(failure, reporter, report, rendezvous);
    }
    reporter = report.rank();
    reporters.insert(reporter);
    report = *next;
  }
  return absl::AbortedError(GivenUp(report));
}

std::optional<bool> Reaches(int from, int to, absl::Duration timeout,
                            Rendezvous* rendezvous) {
  const absl::StatusOr<std::string> unreached =
      rendezvous->Get(ReachKey(from), timeout);
  if (!unreached.ok()) return std::nullopt;
  for (const absl::string_view rank : absl::StrSplit(*unreached, ',')) {
    if (rank == absl::StrCat(to)) return false;
  }
  return true;
}

absl::Status CheckUnconnected(absl::Duration timeout, Rendezvous* rendezvous) {
  const absl::StatusOr<std::string> text =
      rendezvous->Get(kUnconnectedKey, timeout);
  return text.ok() ? Unconnected(*text) : absl::OkStatus();
}

absl::Status CheckWhileConnecting(Rendezvous* rendezvous) {
  absl::Status away;
  for (int i = 0; i < kTriesUntilGone; ++i) {
    const absl::StatusOr<std::string> text =
        rendezvous->Get(kUnconnectedKey, kRendezvousAnswer);
    if (text.ok()) return Unconnected(*text);
    // A rank 0 that lives may be slow to answer.
    if (absl::IsDeadlineExceeded(text.status())) return absl::OkStatus();
    // This process cannot open a socket to ask.
    if (absl::IsResourceExhausted(text.status())) return text.status();
    away = text.status();
    absl::SleepFor(kRendezvousAnswer);
  }
  return BlameRank(0, absl::StatusCode::kUnavailable,
                   absl::StrCat("its table is gone; ", away.message()));
}

bool IsWithoutRank0(const absl::Status& status) {
  const std::optional<v1::RankTrouble> trouble = RankTroubleOf(status);
  return trouble.has_value() && trouble->rank() == 0 &&
         (trouble->kind() == v1::RankTrouble::DEAD_RANK ||
          trouble->kind() == v1::RankTrouble::STUCK_RANK);
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
