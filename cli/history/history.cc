// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "cli/history/history.h"

#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/coordinator_client.h"
#include "cli/human.h"
#include "cli/status_facts.h"
#include "cli/status_report.h"
#include "common/printable.h"
#include "common/proto_time.h"
#include "common/status_macros.h"

namespace causeway {
namespace {

struct HistoryFlags {
  ConnectionFlags connection;
  bool json = false;
  bool csv = false;
  uint64_t last = 20;
};

// One version of the model. At least one of the points is present.
struct Row {
  const v1::TrainingPoint* training = nullptr;
  const v1::ValidationPoint* validation = nullptr;

  absl::Time time() const {
    return ToTime(training != nullptr ? training->time() : validation->time());
  }
};

std::map<uint64_t, Row> RowsOf(const v1::GetHistoryResponse& history) {
  std::map<uint64_t, Row> rows;
  for (const v1::TrainingPoint& point : history.training()) {
    rows[point.version()].training = &point;
  }
  for (const v1::ValidationPoint& point : history.validations()) {
    rows[point.validation().version()].validation = &point;
  }
  return rows;
}

// Returns the share of live islands that were merged between two points.
std::string Share(const v1::Participation& before,
                  const v1::Participation& now) {
  if (now.live() <= before.live()) return "-";
  return HumanPercent(static_cast<double>(now.merged() - before.merged()) /
                      static_cast<double>(now.live() - before.live()));
}

// Returns the island's loss, or "".
std::string IslandLoss(const v1::TrainingPoint& point,
                       const std::string& name) {
  for (const v1::TrainingPoint::Island& island : point.islands()) {
    if (island.island_id() == name) return absl::StrCat(island.loss());
  }
  return "";
}

}  // namespace

void PrintHistory(const v1::GetHistoryResponse& history, uint64_t rows,
                  absl::TimeZone zone, std::ostream& out) {
  Table table({">VERSION", "TIME", ">STEP", ">LOSS", ">VALIDATION", ">TOKENS/S",
               ">UP", ">DOWN", ">TOOK PART", ">SIMILARITY"});
  const std::map<uint64_t, Row> all = RowsOf(history);
  uint64_t left_out =
      rows > 0 && all.size() > rows ? uint64_t{all.size()} - rows : 0;
  v1::Participation before;
  for (const auto& [version, row] : all) {
    std::vector<std::string> cells = {
        absl::StrCat(version),
        absl::FormatTime("%Y-%m-%d %H:%M:%S", row.time(), zone)};
    const std::string validation =
        row.validation == nullptr ? "-"
                                  : Loss(row.validation->validation().loss());
    if (row.training == nullptr) {
      cells.insert(cells.end(),
                   {"-", "-", validation, "-", "-", "-", "-", "-"});
    } else {
      const v1::TrainingPoint& point = *row.training;
      cells.insert(
          cells.end(),
          {absl::StrCat(point.run_step()), Loss(point.loss()), validation,
           HumanCount(point.tokens_per_second()), HumanBytes(point.bytes_up()),
           HumanBytes(point.bytes_down()), Share(before, point.participation()),
           OrDash(point.has_similarity(),
                  absl::StrFormat("%.3f", point.similarity()))});
      before = point.participation();
    }
    if (left_out > 0) {
      --left_out;
    } else {
      table.AddRow(std::move(cells));
    }
  }
  table.Print(out);
}

void PrintHistoryCsv(const v1::GetHistoryResponse& history, std::ostream& out) {
  std::set<std::string> islands;
  for (const v1::TrainingPoint& point : history.training()) {
    for (const auto& island : point.islands()) {
      islands.insert(island.island_id());
    }
  }
  out << "version,time,run_step,training_loss,validation_loss,"
         "tokens_per_second,bytes_up,bytes_down,live,contributing,merged,"
         "similarity";
  for (const std::string& name : islands) {
    out << ",training_loss_" << Printable(name);
  }
  out << "\n";
  const v1::TrainingPoint none;
  for (const auto& [version, row] : RowsOf(history)) {
    const v1::TrainingPoint& point =
        row.training == nullptr ? none : *row.training;
    std::vector<std::string> cells = {
        absl::StrCat(version),
        absl::FormatTime(absl::RFC3339_full, row.time(), absl::UTCTimeZone())};
    const auto add = [&](bool known, const auto& value) {
      cells.push_back(known ? absl::StrCat(value) : "");
    };
    const bool trained = row.training != nullptr;
    add(trained, point.run_step());
    add(point.loss() > 0, point.loss());
    add(row.validation != nullptr,
        row.validation == nullptr ? 0 : row.validation->validation().loss());
    add(trained, point.tokens_per_second());
    add(trained, point.bytes_up());
    add(trained, point.bytes_down());
    add(trained, point.participation().live());
    add(trained, point.participation().contributing());
    add(trained, point.participation().merged());
    add(point.has_similarity(), point.similarity());
    for (const std::string& name : islands) {
      cells.push_back(IslandLoss(point, name));
    }
    out << absl::StrJoin(cells, ",") << "\n";
  }
}

Command HistoryCommand(Clock now, absl::TimeZone zone) {
  const auto flags = std::make_shared<HistoryFlags>();
  Command command{
      .name = "history",
      .summary = "Shows loss, speed, traffic and participation over the run.",
      .details =
          "A row is a version of the model: every fragment has been merged "
          "that many times. LOSS is the mean training loss of the islands "
          "since the row before, VALIDATION the loss of the merged model. UP "
          "and DOWN are sums since the run began. TOOK PART is the share of "
          "live islands that were merged since the row before. SIMILARITY says "
          "how much the contributions of a round point the same way: the mean "
          "cosine of pairs, over the rounds since the row before. A long "
          "history is thinned out evenly to 1024 versions."};
  AddConnectionFlags(flags->connection, command.flags);
  command.flags.Add("last", "N", "The rows of the table; 0 prints all.",
                    &flags->last);
  command.flags.Add("csv", "",
                    "Prints all versions as comma-separated values, with each "
                    "island's loss.",
                    &flags->csv);
  command.flags.Add("json", "",
                    "Prints all versions as JSON in protobuf's mapping (64-bit "
                    "integers are strings).",
                    &flags->json);
  command.run = [=](const Invocation& call) -> absl::Status {
    if (flags->csv && flags->json) {
      return UsageError("give --csv or --json, not both");
    }
    ASSIGN_OR_RETURN(const std::unique_ptr<CoordinatorClient> client,
                     CoordinatorClient::Create(flags->connection, now()));
    v1::GetHistoryResponse history;
    RETURN_IF_ERROR(client->FetchHistory(history));
    if (flags->json) {
      call.out << MessageJson(history) << "\n";
    } else if (flags->csv) {
      PrintHistoryCsv(history, call.out);
    } else {
      PrintHistory(history, flags->last, zone, call.out);
    }
    return absl::OkStatus();
  };
  return command;
}

}  // namespace causeway
