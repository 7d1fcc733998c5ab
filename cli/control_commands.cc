// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/substitute.h"
#include "absl/time/time.h"
#include "cli/commands.h"
#include "cli/coordinator_client.h"
#include "cli/human.h"
#include "cli/status_report.h"
#include "common/proto_time.h"
#include "common/status_macros.h"
#include "proto/control.grpc.pb.h"
#include "proto/replication.grpc.pb.h"

namespace causeway {
namespace {

using Stub = v1::Control::Stub;

// A follower first ends an outer step that it has begun, and makes it durable.
constexpr absl::Duration kPromoteTimeout = absl::Minutes(5);

// Returns a command that makes one call and prints `answer`, in which $0 is the
// island that the request names, if any. `answer` states the result, which also
// holds if the command is repeated.
template <typename Request, typename Response>
Command OneCall(Command command, const Clock& now,
                ClientMethod<Stub, Request, Response> method,
                const char* answer) {
  struct Flags {
    ConnectionFlags connection;
    std::string reason;
  };
  constexpr bool kHasReason = requires(Request r) { r.set_reason(""); };
  constexpr bool kHasIsland = requires(Request r) { r.set_island_id(""); };
  const auto flags = std::make_shared<Flags>();
  AddConnectionFlags(flags->connection, command.flags);
  if constexpr (kHasReason) {
    command.flags.Add("reason", "TEXT",
                      "Reason to show in the status and the events.",
                      &flags->reason);
  }
  command.run = [=](const Invocation& call) -> absl::Status {
    Request request;
    if constexpr (kHasIsland) request.set_island_id(call.arguments.back());
    if constexpr (kHasReason) request.set_reason(flags->reason);
    const absl::Status called =
        CallOnce(flags->connection, now(), method, request).status();
    if (absl::IsAlreadyExists(called)) {
      call.out << called.message() << "\n";
      return absl::OkStatus();
    }
    RETURN_IF_ERROR(called);
    const std::string island = kHasIsland ? call.arguments.back() : "";
    call.out << absl::Substitute(answer, island) << "\n";
    return absl::OkStatus();
  };
  return command;
}

void PrintQuarantine(const v1::ListQuarantineResponse& quarantine,
                     absl::Time now, std::ostream& out) {
  Table table({">ID", "STATE", "ISLAND", ">INC", ">FRAGMENT", ">VERSION",
               ">TOKENS", ">NORM", ">AGE", "REASON"});
  for (const v1::QuarantinedContribution& held : quarantine.contributions()) {
    table.AddRow(
        {absl::StrCat(held.id()),
         absl::AsciiStrToLower(
             v1::QuarantinedContribution::State_Name(held.state())),
         held.island_id(), absl::StrCat(held.incarnation()),
         absl::StrCat(held.fragment()), absl::StrCat(held.base_version()),
         HumanCount(held.tokens()), absl::StrFormat("%.4g", held.norm()),
         HumanDuration(now - ToTime(held.quarantined_at())), held.reason()});
  }
  table.Print(out);
}

struct QuarantineFlags {
  ConnectionFlags connection;
  bool all = false;
  bool json = false;
};

absl::Status ListQuarantine(const QuarantineFlags& flags, const Clock& now,
                            std::ostream& out) {
  v1::ListQuarantineRequest request;
  request.set_include_decided(flags.all);
  ASSIGN_OR_RETURN(
      const v1::ListQuarantineResponse response,
      CallOnce(flags.connection, now(), &Stub::ListQuarantine, request));
  if (flags.json) {
    out << MessageJson(response) << "\n";
  } else {
    PrintQuarantine(response, now(), out);
  }
  return absl::OkStatus();
}

template <typename Request, typename Response>
absl::Status Decide(const QuarantineFlags& flags, const Clock& now,
                    ClientMethod<Stub, Request, Response> method, uint64_t id) {
  Request request;
  request.set_id(id);
  return CallOnce(flags.connection, now(), method, request).status();
}

Command QuarantineCommand(const Clock& now) {
  const auto flags = std::make_shared<QuarantineFlags>();
  Command command{
      .name = "quarantine",
      .arguments = "list | admit ID | drop ID",
      .summary = "Lists, admits or drops contributions that were set aside.",
      .details =
          "The coordinator sets a contribution aside if it is unusually large "
          "or not finite. `list` shows the contributions that wait for a "
          "decision, `admit ID` adds one to the open round of its fragment, "
          "`drop ID` discards it."};
  AddConnectionFlags(flags->connection, command.flags);
  command.flags.Add(
      "all", "",
      "With list: also shows contributions that were admitted or dropped.",
      &flags->all);
  command.flags.Add("json", "",
                    "With list: prints JSON in protobuf's mapping (64-bit "
                    "integers are strings) instead of a table.",
                    &flags->json);
  command.run = [=](const Invocation& call) -> absl::Status {
    if (call.arguments[0] == "list") {
      return ListQuarantine(*flags, now, call.out);
    }
    const bool admits = call.arguments[0] == "admit";
    uint64_t id = 0;
    if (!absl::SimpleAtoi(call.arguments[1], &id)) {
      return UsageError(absl::StrCat(
          "ID must be a number that `quarantine list` shows, not \"",
          call.arguments[1], "\""));
    }
    RETURN_IF_ERROR(admits ? Decide(*flags, now, &Stub::AdmitContribution, id)
                           : Decide(*flags, now, &Stub::DropContribution, id));
    call.out << "contribution " << id
             << (admits ? " goes into the open round\n" : " is dropped\n");
    return absl::OkStatus();
  };
  return command;
}

Command DataCommand(const Clock& now) {
  return OneCall(
      {.name = "data",
       .arguments = "accept ISLAND",
       .summary = "Accepts the data that an island reads as the run's data.",
       .details =
           "Without this, the run's data are those that more than half of the "
           "live islands read, or the first island's. An island that reads "
           "other data trains, but does not measure the merged model; "
           "`causeway islands` shows it. An operator's choice holds for the "
           "rest of the run, or until the next choice."},
      now, &Stub::AcceptData, "the data that island $0 reads are the run's");
}

Command PromoteCommand(const Clock& now) {
  struct Flags {
    ConnectionFlags connection;
    bool force = false;
  };
  Command command = {
      .name = "promote",
      .summary = "Makes a follower the coordinator of the run.",
      .details =
          "--coordinator names the follower. Islands that know its address "
          "switch to it by themselves. The previous coordinator stands down as "
          "soon as it hears of this; stop it first if it is alive."};
  const auto flags = std::make_shared<Flags>();
  AddConnectionFlags(flags->connection, command.flags);
  command.flags.Add("force", "",
                    "Takes the run over even if the coordinator is alive.",
                    &flags->force);
  command.run = [=](const Invocation& call) -> absl::Status {
    v1::PromoteRequest request;
    request.set_force(flags->force);
    const absl::StatusOr<v1::PromoteResponse> response =
        CallOnce(flags->connection, now(), &v1::Replication::Stub::Promote,
                 request, kPromoteTimeout);
    if (absl::IsDeadlineExceeded(response.status())) {
      return absl::DeadlineExceededError(absl::StrCat(
          "the follower has not answered within ",
          absl::FormatDuration(kPromoteTimeout),
          "; it may still take over: ask `causeway status --coordinator ",
          flags->connection.coordinator, "` before you promote another"));
    }
    RETURN_IF_ERROR(response.status());
    call.out << "the follower is the run's coordinator, with epoch "
             << response->epoch();
    if (response->changes_behind() > 0) {
      call.out << "; it lacked the last " << response->changes_behind()
               << " changes, which are lost";
    }
    call.out << "\n";
    return absl::OkStatus();
  };
  return command;
}

}  // namespace

std::vector<Command> ControlCommands(const Clock& now) {
  return {
      OneCall({.name = "pause",
               .summary = "Pauses a run until `resume`.",
               .details = "Islands stop after their current step, and open "
                          "rounds stay open. Restarts of the coordinator do "
                          "not end a pause."},
              now, &Stub::PauseRun, "the run is paused"),
      OneCall({.name = "resume", .summary = "Continues a paused run."}, now,
              &Stub::ResumeRun, "the run continues"),
      OneCall({.name = "drain",
               .arguments = "ISLAND",
               .summary = "Asks an island to contribute its work and leave the "
                          "run.",
               .details = "The island finishes its step, contributes what it "
                          "has trained, leaves and exits with code 0. "
                          "`causeway islands --all` shows when it has left."},
              now, &Stub::DrainIsland, "island $0 is asked to leave"),
      OneCall({.name = "evict",
               .arguments = "ISLAND",
               .summary = "Removes an island's current process from the run.",
               .details = "Use it for a process that hangs but still renews "
                          "its lease. A process that still works joins again; "
                          "to get rid of it, drain the island or end the "
                          "process."},
              now, &Stub::EvictIsland, "island $0 is evicted"),
      QuarantineCommand(now),
      DataCommand(now),
      PromoteCommand(now)};
}

}  // namespace causeway
