// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "cli/status_commands.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "cli/coordinator_connection.h"
#include "cli/human.h"
#include "cli/status_report.h"
#include "common/status_macros.h"
#include "common/transport/credentials.h"

namespace causeway {
namespace {

// The pause before `events --follow` asks a lost coordinator again.
constexpr absl::Duration kRetry = absl::Seconds(1);

// Terminal control (ECMA-48, DEC private mode 7): cursor home; erase to the end
// of the line; erase to the end of the screen; cut long lines; wrap them again.
constexpr char kHome[] = "\x1b[H";
constexpr char kEraseLine[] = "\x1b[K";
constexpr char kEraseBelow[] = "\x1b[J";
constexpr char kCutLines[] = "\x1b[?7l";
constexpr char kWrapLines[] = "\x1b[?7h";

struct StatusFlags {
  ConnectionFlags connection;
  bool json = false;
  bool all = false;
  bool follow = false;
  uint64_t after = 0;
  double interval = 1;
};

Command NewCommand(std::string name, std::string summary, StatusFlags& flags) {
  Command command{.name = std::move(name), .summary = std::move(summary)};
  AddConnectionFlags(flags.connection, command.flags);
  return command;
}

absl::StatusOr<std::unique_ptr<StatusClient>> Connect(
    const StatusFlags& flags, const StatusEnvironment& environment) {
  ASSIGN_OR_RETURN(
      const std::shared_ptr<grpc::ChannelCredentials> credentials,
      MakeChannelCredentials(flags.connection.tls, environment.now()));
  return std::make_unique<StatusClient>(flags.connection.coordinator,
                                        credentials);
}

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

Command StatusCommand(const StatusEnvironment& environment) {
  const auto flags = std::make_shared<StatusFlags>();
  Command command = NewCommand(
      "status", "Shows the run, its islands and its fragments.", *flags);
  AddJson(command, *flags);
  AddAll(command, *flags);
  command.run = [=](const Invocation& call) -> absl::Status {
    ASSIGN_OR_RETURN(const std::unique_ptr<StatusClient> client,
                     Connect(*flags, environment));
    ASSIGN_OR_RETURN(const StatusSnapshot snapshot, client->Fetch(flags->all));
    if (flags->json) {
      call.out << StatusJson(snapshot) << "\n";
    } else {
      PrintStatus(snapshot, environment.now(), call.out);
    }
    return absl::OkStatus();
  };
  return command;
}

Command WatchCommand(const StatusEnvironment& environment) {
  const auto flags = std::make_shared<StatusFlags>();
  Command command = NewCommand(
      "watch", "Shows the status and refreshes it until interrupted.", *flags);
  AddAll(command, *flags);
  command.flags.Add("interval", "SECONDS", "Time between two refreshes.",
                    &flags->interval);
  command.run = [=](const Invocation& call) -> absl::Status {
    ASSIGN_OR_RETURN(const std::unique_ptr<StatusClient> client,
                     Connect(*flags, environment));
    Watch([&] { return client->Fetch(flags->all); },
          absl::Seconds(flags->interval), environment, call.out);
    return absl::OkStatus();
  };
  return command;
}

Command IslandsCommand(const StatusEnvironment& environment) {
  const auto flags = std::make_shared<StatusFlags>();
  Command command = NewCommand("islands", "Lists the islands.", *flags);
  AddJson(command, *flags);
  AddAll(command, *flags);
  command.run = [=](const Invocation& call) -> absl::Status {
    ASSIGN_OR_RETURN(const std::unique_ptr<StatusClient> client,
                     Connect(*flags, environment));
    ASSIGN_OR_RETURN(const StatusSnapshot snapshot, client->Fetch(flags->all));
    if (flags->json) {
      call.out << MessageJson(snapshot.islands) << "\n";
    } else {
      PrintIslands(snapshot.islands, call.out);
    }
    return absl::OkStatus();
  };
  return command;
}

Command FragmentsCommand(const StatusEnvironment& environment) {
  const auto flags = std::make_shared<StatusFlags>();
  Command command = NewCommand(
      "fragments", "Lists the fragments, their versions and open rounds.",
      *flags);
  AddJson(command, *flags);
  command.run = [=](const Invocation& call) -> absl::Status {
    ASSIGN_OR_RETURN(const std::unique_ptr<StatusClient> client,
                     Connect(*flags, environment));
    ASSIGN_OR_RETURN(const StatusSnapshot snapshot, client->Fetch(false));
    if (flags->json) {
      call.out << MessageJson(snapshot.fragments) << "\n";
    } else {
      PrintFragments(snapshot.fragments, environment.now(), call.out);
    }
    return absl::OkStatus();
  };
  return command;
}

// Follows the events over restarts of the coordinator until environment.sleep
// returns false.
absl::Status FollowEvents(StatusClient& client, uint64_t after,
                          const StatusEnvironment& environment,
                          const std::function<bool(const v1::Event&)>& print,
                          std::ostream& err) {
  bool lost = false;
  bool wanted = true;
  while (true) {
    const absl::Status status =
        client.WatchEvents(after, /*follow=*/true, [&](const v1::Event& event) {
          lost = false;
          after = event.id();
          wanted = print(event);
          return wanted;
        });
    if (!wanted) return absl::OkStatus();
    // A coordinator that stops in order ends the stream in order.
    if (!status.ok() && !absl::IsUnavailable(status) &&
        !absl::IsCancelled(status)) {
      return status;
    }
    if (!lost) {
      err << "waiting for the coordinator: "
          << (status.ok() ? "it has stopped" : status.message()) << "\n";
    }
    lost = true;
    if (!environment.sleep(kRetry)) return absl::OkStatus();
  }
}

Command EventsCommand(const StatusEnvironment& environment) {
  const auto flags = std::make_shared<StatusFlags>();
  Command command =
      NewCommand("events", "Lists the events of the run.", *flags);
  AddJson(command, *flags);
  command.flags.Add("after", "ID", "Shows only events with a higher number.",
                    &flags->after);
  command.flags.Add("follow", "",
                    "Then shows new events as they happen, until interrupted. "
                    "Restarts of the coordinator do not end it.",
                    &flags->follow);
  command.run = [=](const Invocation& call) -> absl::Status {
    ASSIGN_OR_RETURN(const std::unique_ptr<StatusClient> client,
                     Connect(*flags, environment));
    const auto print = [&](const v1::Event& event) {
      if (flags->json) {
        call.out << MessageJson(event) << "\n";
      } else {
        PrintEvent(event, environment.time_zone, call.out);
      }
      call.out.flush();
      return call.out.good();
    };
    if (flags->follow) {
      return FollowEvents(*client, flags->after, environment, print, call.err);
    }
    return client->WatchEvents(flags->after, /*follow=*/false, print);
  };
  return command;
}

}  // namespace

std::vector<Command> StatusCommands(StatusEnvironment environment) {
  return {StatusCommand(environment), WatchCommand(environment),
          IslandsCommand(environment), FragmentsCommand(environment),
          EventsCommand(environment)};
}

void Watch(const std::function<absl::StatusOr<StatusSnapshot>()>& fetch,
           absl::Duration interval, const StatusEnvironment& environment,
           std::ostream& out) {
  std::optional<StatusSnapshot> last;
  absl::Time heard = environment.now();
  do {
    absl::StatusOr<StatusSnapshot> fetched = fetch();
    const absl::Time now = environment.now();
    std::ostringstream screen;
    if (fetched.ok()) {
      last = *std::move(fetched);
      heard = now;
    } else {
      screen << "no answer for " << HumanDuration(now - heard) << ": "
             << fetched.status().message() << "\n\n";
    }
    if (last.has_value()) PrintStatus(*last, now, screen);
    if (environment.terminal) {
      // Overwriting lines in place does not flicker as clearing the screen
      // would.
      out << kHome << kCutLines
          << absl::StrReplaceAll(screen.str(),
                                 {{"\n", absl::StrCat(kEraseLine, "\n")}})
          << kEraseBelow << kWrapLines;
    } else {
      out << screen.str() << "\n";
    }
    out.flush();
  } while (out.good() && environment.sleep(interval));
}

}  // namespace causeway
