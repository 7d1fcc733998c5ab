// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "cli/control_commands.h"

#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/coordinator_connection.h"
#include "cli/human.h"
#include "cli/status_report.h"
#include "cli/table.h"
#include "common/status_macros.h"
#include "google/protobuf/util/time_util.h"
#include "proto/control.grpc.pb.h"

namespace causeway {
namespace {

struct ControlFlags {
  ConnectionFlags connection;
  std::string reason;
  bool all = false;
  bool json = false;
};

// Makes one call. Drops the contents of the answer unless `response` is given.
template <typename Request, typename Response>
absl::Status Call(const ControlFlags& flags, absl::Time now,
                  grpc::Status (v1::Control::Stub::*method)(
                      grpc::ClientContext*, const Request&, Response*),
                  const Request& request, Response& response) {
  ASSIGN_OR_RETURN(const std::shared_ptr<grpc::ChannelCredentials> credentials,
                   MakeChannelCredentials(flags.connection.tls, now));
  const std::string& address = flags.connection.coordinator;
  const std::unique_ptr<v1::Control::Stub> stub =
      v1::Control::NewStub(ConnectToCoordinator(address, credentials));
  return ExplainAnswer(CallOnce(*stub, method, request, response), address);
}

Command NewCommand(std::string name, std::string arguments, std::string summary,
                   ControlFlags& flags) {
  Command command{.name = std::move(name),
                  .arguments = std::move(arguments),
                  .summary = std::move(summary)};
  AddConnectionFlags(flags.connection, command.flags);
  return command;
}

void AddReason(Command& command, ControlFlags& flags) {
  command.flags.Add("reason", "TEXT",
                    "The reason, to be shown in the status and the events.",
                    &flags.reason);
}

Command PauseCommand(const std::function<absl::Time()>& now) {
  const auto flags = std::make_shared<ControlFlags>();
  Command command =
      NewCommand("pause", "", "Pauses a run until `resume`.", *flags);
  command.details =
      "Islands stop after their current step, and open rounds stay open. "
      "Restarts of the coordinator do not end a pause.";
  AddReason(command, *flags);
  command.run = [=](const Invocation& call) -> absl::Status {
    v1::PauseRunRequest request;
    request.set_reason(flags->reason);
    v1::PauseRunResponse response;
    RETURN_IF_ERROR(
        Call(*flags, now(), &v1::Control::Stub::PauseRun, request, response));
    call.out << "the run is paused\n";
    return absl::OkStatus();
  };
  return command;
}

Command ResumeCommand(const std::function<absl::Time()>& now) {
  const auto flags = std::make_shared<ControlFlags>();
  Command command = NewCommand("resume", "", "Continues a paused run.", *flags);
  command.run = [=](const Invocation& call) -> absl::Status {
    v1::ResumeRunResponse response;
    RETURN_IF_ERROR(Call(*flags, now(), &v1::Control::Stub::ResumeRun,
                         v1::ResumeRunRequest(), response));
    call.out << "the run goes on\n";
    return absl::OkStatus();
  };
  return command;
}

Command DrainCommand(const std::function<absl::Time()>& now) {
  const auto flags = std::make_shared<ControlFlags>();
  Command command = NewCommand(
      "drain", "ISLAND",
      "Asks an island to contribute its work and leave the run.", *flags);
  command.details =
      "The island finishes its step, contributes what it has trained, leaves "
      "and exits with code 0. `causeway islands --all` shows when it has left.";
  AddReason(command, *flags);
  command.run = [=](const Invocation& call) -> absl::Status {
    v1::DrainIslandRequest request;
    request.set_island_id(call.arguments[0]);
    request.set_reason(flags->reason);
    v1::DrainIslandResponse response;
    RETURN_IF_ERROR(Call(*flags, now(), &v1::Control::Stub::DrainIsland,
                         request, response));
    call.out << "island " << request.island_id() << " is asked to leave\n";
    return absl::OkStatus();
  };
  return command;
}

Command EvictCommand(const std::function<absl::Time()>& now) {
  const auto flags = std::make_shared<ControlFlags>();
  Command command =
      NewCommand("evict", "ISLAND",
                 "Removes an island's current process from the run.", *flags);
  command.details =
      "Use it for a process that hangs but still renews its lease. A process "
      "that still works joins again; to get rid of it, drain the island or end "
      "the process.";
  AddReason(command, *flags);
  command.run = [=](const Invocation& call) -> absl::Status {
    v1::EvictIslandRequest request;
    request.set_island_id(call.arguments[0]);
    request.set_reason(flags->reason);
    v1::EvictIslandResponse response;
    RETURN_IF_ERROR(Call(*flags, now(), &v1::Control::Stub::EvictIsland,
                         request, response));
    call.out << "island " << request.island_id() << " is evicted\n";
    return absl::OkStatus();
  };
  return command;
}

absl::Status ListQuarantine(const ControlFlags& flags, absl::Time now,
                            std::ostream& out) {
  v1::ListQuarantineRequest request;
  request.set_include_decided(flags.all);
  v1::ListQuarantineResponse response;
  RETURN_IF_ERROR(
      Call(flags, now, &v1::Control::Stub::ListQuarantine, request, response));
  if (flags.json) {
    out << MessageJson(response) << "\n";
  } else {
    PrintQuarantine(response, now, out);
  }
  return absl::OkStatus();
}

absl::Status Admit(const ControlFlags& flags, absl::Time now, uint64_t id,
                   std::ostream& out) {
  v1::AdmitContributionRequest request;
  request.set_id(id);
  v1::AdmitContributionResponse response;
  RETURN_IF_ERROR(Call(flags, now, &v1::Control::Stub::AdmitContribution,
                       request, response));
  out << "contribution " << id << " goes into the open round\n";
  return absl::OkStatus();
}

absl::Status Drop(const ControlFlags& flags, absl::Time now, uint64_t id,
                  std::ostream& out) {
  v1::DropContributionRequest request;
  request.set_id(id);
  v1::DropContributionResponse response;
  RETURN_IF_ERROR(Call(flags, now, &v1::Control::Stub::DropContribution,
                       request, response));
  out << "contribution " << id << " is dropped\n";
  return absl::OkStatus();
}

Command QuarantineCommand(const std::function<absl::Time()>& now) {
  const auto flags = std::make_shared<ControlFlags>();
  Command command = NewCommand(
      "quarantine", "ACTION...",
      "Lists, admits or drops contributions that were set aside.", *flags);
  command.details =
      "The coordinator sets a contribution aside if it is unusually large or "
      "not finite. `list` shows the contributions that wait for a decision, "
      "`admit ID` adds one to the open round of its fragment, `drop ID` "
      "discards it.";
  command.flags.Add(
      "all", "",
      "With list: also shows contributions that were admitted or dropped.",
      &flags->all);
  command.flags.Add("json", "",
                    "With list: prints JSON in protobuf's mapping (64-bit "
                    "integers are strings) instead of a table.",
                    &flags->json);
  command.run = [=](const Invocation& call) -> absl::Status {
    const std::string& action = call.arguments[0];
    if (action == "list" && call.arguments.size() == 1) {
      return ListQuarantine(*flags, now(), call.out);
    }
    uint64_t id = 0;
    if ((action != "admit" && action != "drop") || call.arguments.size() != 2 ||
        !absl::SimpleAtoi(call.arguments[1], &id)) {
      return absl::InvalidArgumentError(
          "quarantine takes `list`, `admit ID` or `drop ID`");
    }
    return action == "admit" ? Admit(*flags, now(), id, call.out)
                             : Drop(*flags, now(), id, call.out);
  };
  return command;
}

}  // namespace

std::vector<Command> ControlCommands(std::function<absl::Time()> now) {
  return {PauseCommand(now), ResumeCommand(now), DrainCommand(now),
          EvictCommand(now), QuarantineCommand(now)};
}

void PrintQuarantine(const v1::ListQuarantineResponse& quarantine,
                     absl::Time now, std::ostream& out) {
  constexpr auto kRight = Table::kRight;
  Table table({{"ID", kRight},
               {"STATE"},
               {"ISLAND"},
               {"INC", kRight},
               {"FRAGMENT", kRight},
               {"VERSION", kRight},
               {"TOKENS", kRight},
               {"NORM", kRight},
               {"AGE", kRight},
               {"REASON"}});
  for (const v1::QuarantinedContribution& held : quarantine.contributions()) {
    const absl::Time since = absl::FromUnixMicros(
        google::protobuf::util::TimeUtil::TimestampToMicroseconds(
            held.quarantined_at()));
    table.AddRow({absl::StrCat(held.id()),
                  absl::AsciiStrToLower(
                      v1::QuarantinedContribution::State_Name(held.state())),
                  held.island_id(), absl::StrCat(held.incarnation()),
                  absl::StrCat(held.fragment()),
                  absl::StrCat(held.base_version()),
                  HumanCount(static_cast<double>(held.tokens())),
                  absl::StrFormat("%.4g", held.norm()),
                  HumanDuration(now - since), held.reason()});
  }
  table.Print(out);
}

}  // namespace causeway
