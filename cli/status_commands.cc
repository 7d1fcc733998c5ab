// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"
#include "cli/commands.h"
#include "cli/coordinator_client.h"
#include "cli/events/event_flags.h"
#include "cli/status_facts.h"
#include "cli/status_report.h"
#include "cli/watch/terminal.h"
#include "cli/watch/watch.h"
#include "cli/watch/watch_screen.h"
#include "common/status_macros.h"
#include "common/transport/credentials.h"
#include "common/transport/enrolment.h"
#include "glog/logging.h"
#include "proto/control.grpc.pb.h"

namespace causeway {
namespace {

// The pause before `events --follow` asks a lost coordinator again.
constexpr absl::Duration kRetry = absl::Seconds(1);

struct StatusFlags {
  ConnectionFlags connection;
  bool json = false;
  bool all = false;
  bool peers = false;
  bool check = false;
  double interval = 1;
  EventFlags events;
};

void AddJson(Command& command, StatusFlags& flags) {
  command.flags.Add("json", "",
                    "Prints JSON in protobuf's mapping (64-bit integers are "
                    "strings) instead of a table.",
                    &flags.json);
}

void AddAll(Command& command, StatusFlags& flags) {
  command.flags.Add("all", "", "Also shows islands that left or were evicted.",
                    &flags.all);
}

// Returns a command that gives each call a client and the command's flags.
Command NewCommand(
    std::string name, std::string summary, StatusEnvironment environment,
    std::function<void(Command&, StatusFlags&)> add_flags,
    std::function<absl::Status(CoordinatorClient&, const StatusFlags&,
                               const Invocation&)>
        run) {
  const auto flags = std::make_shared<StatusFlags>();
  Command command{.name = std::move(name), .summary = std::move(summary)};
  AddConnectionFlags(flags->connection, command.flags);
  add_flags(command, *flags);
  command.run = [=](const Invocation& call) -> absl::Status {
    ASSIGN_OR_RETURN(
        const std::unique_ptr<CoordinatorClient> client,
        CoordinatorClient::Create(flags->connection, environment.now()));
    return run(*client, *flags, call);
  };
  return command;
}

// Returns a command that fetches the status once and shows a part of it.
Command ShowCommand(
    std::string name, std::string summary, const StatusEnvironment& environment,
    bool has_all, std::function<std::string(const StatusSnapshot&)> json,
    std::function<void(const StatusSnapshot&, std::ostream&)> print) {
  return NewCommand(
      std::move(name), std::move(summary), environment,
      [=](Command& command, StatusFlags& flags) {
        AddJson(command, flags);
        if (has_all) AddAll(command, flags);
      },
      [=](CoordinatorClient& client, const StatusFlags& flags,
          const Invocation& call) -> absl::Status {
        ASSIGN_OR_RETURN(const StatusSnapshot snapshot,
                         client.Fetch(flags.all));
        if (flags.json) {
          call.out << json(snapshot) << "\n";
        } else {
          print(snapshot, call.out);
        }
        return absl::OkStatus();
      });
}

absl::Status ShowPeers(CoordinatorClient& client, bool json,
                       std::ostream& out) {
  ASSIGN_OR_RETURN(
      const v1::ListPeersResponse peers,
      client.Call(&v1::Control::Stub::ListPeers, v1::ListPeersRequest()));
  if (json) {
    out << MessageJson(peers) << "\n";
  } else {
    PrintPeers(peers, out);
  }
  return absl::OkStatus();
}

int ExitCodeOf(const v1::RunStatus& run) {
  if (run.attention_size() == 0) return kExitOk;
  switch (run.attention(0).severity()) {
    case v1::CRITICAL:
      return kExitCritical;
    case v1::WARNING:
      return kExitWarning;
    default:
      return kExitOk;
  }
}

Command StatusCommand(const StatusEnvironment& environment) {
  return NewCommand(
      "status", "Shows the run, its islands and its fragments.", environment,
      [](Command& command, StatusFlags& flags) {
        AddJson(command, flags);
        AddAll(command, flags);
        command.flags.Add("peers", "",
                          "Shows who is connected instead, and what each peer "
                          "uses. For operators.",
                          &flags.peers);
        command.flags.Add(
            "check", "",
            "Shows only what needs attention, and exits with 0 if nothing "
            "does, or only a notice such as a pause, 3 if the run loses "
            "something, 4 if it stands still, 1 if the coordinator does not "
            "answer.",
            &flags.check);
      },
      [=](CoordinatorClient& client, const StatusFlags& flags,
          const Invocation& call) -> absl::Status {
        if (flags.peers) return ShowPeers(client, flags.json, call.out);
        ASSIGN_OR_RETURN(const StatusSnapshot status, client.Fetch(flags.all));
        if (flags.check) call.exit_code = ExitCodeOf(status.run);
        const absl::Time now = TimeOf(status.run, environment.now());
        if (flags.check && !flags.json) {
          PrintCheck(status.run, now, call.out);
        } else if (flags.json) {
          call.out << StatusJson(status) << "\n";
        } else {
          PrintStatus(status, now, call.out);
        }
        return absl::OkStatus();
      });
}

Command IslandsCommand(const StatusEnvironment& environment) {
  return ShowCommand(
      "islands", "Lists the islands.", environment, true,
      [](const StatusSnapshot& status) { return MessageJson(status.islands); },
      PrintIslands);
}

Command FragmentsCommand(const StatusEnvironment& environment) {
  return ShowCommand(
      "fragments", "Lists the fragments, their versions and open rounds.",
      environment, false,
      [](const StatusSnapshot& status) {
        return MessageJson(status.fragments);
      },
      [=](const StatusSnapshot& status, std::ostream& out) {
        PrintFragments(status.fragments, TimeOf(status.run, environment.now()),
                       out);
      });
}

// Renews the certificate of --tls, if there is one, for a command that may
// outlast it.
std::unique_ptr<CertificateRenewer> KeepRenewed(
    const ConnectionFlags& flags, const StatusEnvironment& environment) {
  if (flags.tls.tls.empty()) return nullptr;
  // The time spreads the retries of several tools well enough.
  const auto seed = static_cast<uint64_t>(absl::ToUnixNanos(environment.now()));
  return std::make_unique<CertificateRenewer>(flags.coordinator, flags.tls.tls,
                                              environment.now, seed);
}

Command WatchCommand(const StatusEnvironment& environment) {
  return NewCommand(
      "watch", "Shows the status and refreshes it until interrupted.",
      environment,
      [](Command& command, StatusFlags& flags) {
        AddAll(command, flags);
        command.flags.Add(
            "interval", "SECONDS", "Time between two refreshes.",
            &flags.interval, [](absl::string_view text) {
              double seconds = 0;
              return absl::SimpleAtod(text, &seconds) && seconds >= 0.1
                         ? absl::OkStatus()
                         : absl::InvalidArgumentError("allowed: 0.1 and more");
            });
      },
      [=](CoordinatorClient& client, const StatusFlags& flags,
          const Invocation& call) -> absl::Status {
        const auto renewer = KeepRenewed(flags.connection, environment);
        WatchEnvironment watch = {.now = environment.now,
                                  .time_zone = environment.time_zone,
                                  .out = call.out,
                                  .sleep = environment.sleep};
        std::unique_ptr<Terminal> terminal;
        if (environment.terminal) {
          ASSIGN_OR_RETURN(terminal,
                           Terminal::Take(STDIN_FILENO, STDOUT_FILENO));
          // The renewer's words would disturb the screen.
          FLAGS_minloglevel = google::GLOG_FATAL;
          watch.terminal = terminal.get();
          watch.sleep = [&](absl::Duration duration) {
            return terminal->Wait(duration);
          };
        }
        const auto update = [&](WatchedRun& run) -> absl::Status {
          ASSIGN_OR_RETURN(run.status, client.Fetch(flags.all));
          // Only a screen shows the past.
          if (terminal == nullptr) return absl::OkStatus();
          return UpdatePast(client, run);
        };
        Watch(update, absl::Seconds(flags.interval), watch);
        return absl::OkStatus();
      });
}

// Follows the events over restarts of the coordinator until environment.sleep
// returns false. FAILED_PRECONDITION: a certificate has expired.
absl::Status FollowEvents(CoordinatorClient& client, const ClientTlsFiles& tls,
                          v1::WatchEventsRequest request,
                          const StatusEnvironment& environment,
                          const std::function<bool(const v1::Event&)>& print,
                          std::ostream& err) {
  bool lost = false;
  bool wanted = true;
  while (true) {
    const absl::Status status =
        client.WatchEvents(request, [&](const v1::Event& event) {
          lost = false;
          request.set_after_id(event.id());
          wanted = print(event);
          return wanted;
        });
    if (!wanted) return absl::OkStatus();
    // A coordinator that shuts down cleanly ends the stream with OK.
    if (!status.ok() && !absl::IsUnavailable(status) &&
        !absl::IsResourceExhausted(status) && !absl::IsCancelled(status)) {
      return status;
    }
    const absl::Status valid =
        MakeChannelCredentials(tls, environment.now()).status();
    if (absl::IsFailedPrecondition(valid)) return valid;
    if (!lost) {
      err << "waiting for the coordinator: "
          << (status.ok() ? "it has stopped" : status.message()) << "\n";
    }
    lost = true;
    if (!environment.sleep(kRetry)) return absl::OkStatus();
  }
}

Command EventsCommand(const StatusEnvironment& environment) {
  return NewCommand(
      "events", "Lists the events of the run.", environment,
      [](Command& command, StatusFlags& flags) {
        AddJson(command, flags);
        AddEventFlags(flags.events, command.flags);
      },
      [=](CoordinatorClient& client, const StatusFlags& flags,
          const Invocation& call) -> absl::Status {
        ASSIGN_OR_RETURN(const v1::WatchEventsRequest request,
                         EventsRequest(flags.events, environment.now(),
                                       environment.time_zone));
        const auto print = [&](const v1::Event& event) {
          if (flags.json) {
            call.out << MessageJson(event) << "\n";
          } else {
            PrintEvent(event, environment.time_zone, call.out);
          }
          call.out.flush();
          return call.out.good();
        };
        // The coordinator knows the kinds of events.
        if (request.recorded_only()) {
          return AsUsageError(client.WatchEvents(request, print));
        }
        const auto renewer = KeepRenewed(flags.connection, environment);
        return AsUsageError(FollowEvents(client, flags.connection.tls, request,
                                         environment, print, call.err));
      });
}

}  // namespace

std::vector<Command> StatusCommands(StatusEnvironment environment) {
  return {StatusCommand(environment), WatchCommand(environment),
          IslandsCommand(environment), FragmentsCommand(environment),
          EventsCommand(environment)};
}

}  // namespace causeway
