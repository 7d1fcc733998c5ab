// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "cli/history/report.h"

#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "cli/coordinator_client.h"
#include "cli/status_facts.h"
#include "common/os/file.h"
#include "common/proto_time.h"
#include "common/status_macros.h"
#include "proto/control.grpc.pb.h"
#include "server/page/assets.h"
#include "server/page/page_json.h"
#include "server/stored_run.h"

namespace causeway {
namespace {

// The page loads these two files; a report embeds them.
constexpr char kStyleLink[] = "<link rel=\"stylesheet\" href=\"page.css\">";
constexpr char kScriptLink[] = "<script src=\"page.js\" defer></script>";
constexpr char kPolicy[] =
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src "
    "'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'\">";
constexpr char kEnd[] = "</body>";

// Asks a running coordinator.
absl::StatusOr<v1::PageData> FetchPageData(CoordinatorClient& client,
                                           absl::Time now) {
  v1::PageData data;
  ASSIGN_OR_RETURN(StatusSnapshot status, client.Fetch(/*departed=*/true));
  *data.mutable_run() = std::move(status.run);
  *data.mutable_run()->mutable_time() = ToTimestamp(TimeOf(data.run(), now));
  *data.mutable_islands() = std::move(*status.islands.mutable_islands());
  *data.mutable_fragments() = std::move(*status.fragments.mutable_fragments());
  RETURN_IF_ERROR(client.FetchHistory(*data.mutable_history()));
  v1::WatchEventsRequest notices;
  notices.set_recorded_only(true);
  notices.set_min_severity(v1::NOTICE);
  RETURN_IF_ERROR(client.WatchEvents(notices, [&](const v1::Event& event) {
    *data.add_events() = event;
    if (static_cast<uint64_t>(data.events_size()) >= 2 * kMostPageEvents) {
      data.mutable_events()->DeleteSubrange(0, kMostPageEvents);
    }
    return true;
  }));
  // A follower has no quarantined contributions.
  if (data.run().is_copy()) return data;
  absl::StatusOr<v1::ListQuarantineResponse> quarantine = client.Call(
      &v1::Control::Stub::ListQuarantine, v1::ListQuarantineRequest());
  // Only operators may see it.
  if (absl::IsPermissionDenied(quarantine.status())) return data;
  RETURN_IF_ERROR(quarantine.status());
  *data.mutable_quarantine() = std::move(*quarantine->mutable_contributions());
  return data;
}

}  // namespace

std::string ReportHtml(const v1::PageData& data) {
  return absl::StrReplaceAll(
      PageHtml(),
      {{kStyleLink, absl::StrCat(kPolicy, "<style>", PageCss(), "</style>")},
       {kScriptLink, ""},
       {kEnd, absl::StrCat("<script type=\"application/json\" id=\"report\">",
                           PageJson(data), "</script>\n<script>", PageJs(),
                           "</script>\n", kEnd)}});
}

Command ReportCommand(Clock now) {
  struct Flags {
    ConnectionFlags connection;
    std::string out;
  };
  const auto flags = std::make_shared<Flags>();
  Command command{
      .name = "report",
      .arguments = "[STATE_DIR]",
      .summary = "Writes the pictures of a run into one HTML file.",
      .details =
          "The file has the curves, islands, rounds, ledger and events that "
          "the coordinator's page shows, and needs nothing else: it can be "
          "kept, or sent. With STATE_DIR it is made from the coordinator's "
          "state directory, which keeps neither the islands' links nor the "
          "coordinator's own figures; the coordinator may be running. Without, "
          "the coordinator of --coordinator is asked."};
  AddConnectionFlags(flags->connection, command.flags);
  command.flags.AddRequired("out", "FILE", "The file to write.", &flags->out);
  command.run = [=](const Invocation& call) -> absl::Status {
    v1::PageData data;
    if (call.arguments.empty()) {
      ASSIGN_OR_RETURN(const std::unique_ptr<CoordinatorClient> client,
                       CoordinatorClient::Create(flags->connection, now()));
      ASSIGN_OR_RETURN(data, FetchPageData(*client, now()));
    } else {
      ASSIGN_OR_RETURN(data, ReadPageData(call.arguments[0], kMostPageEvents));
    }
    ShortenEvents(data);
    const std::string html = ReportHtml(data);
    RETURN_IF_ERROR(WriteFileAtomically(flags->out, {absl::string_view(html)}));
    call.err << "wrote " << flags->out << "\n";
    return absl::OkStatus();
  };
  return command;
}

}  // namespace causeway
