// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <ostream>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "cli/commands.h"
#include "cli/coordinator_client.h"
#include "cli/human.h"
#include "cli/status_report.h"
#include "common/proto_time.h"
#include "common/status_macros.h"
#include "common/transport/coordinator_target.h"
#include "common/transport/enrolment.h"
#include "proto/trust.grpc.pb.h"

namespace causeway {
namespace {

using Stub = v1::Trust::Stub;

struct TokenFlags {
  ConnectionFlags connection;
  std::string island;
  std::string operator_name;
  std::string viewer;
  std::string follower;
  std::string ttl = "1h";
  uint32_t uses = 1;
  bool json = false;
};

template <typename Request, typename Response>
absl::StatusOr<Response> Ask(const ConnectionFlags& flags, const Clock& now,
                             ClientMethod<Stub, Request, Response> method,
                             const Request& request) {
  absl::StatusOr<Response> answer = CallOnce(flags, now(), method, request);
  if (!answer.ok()) return ExplainNoAuthority(answer.status());
  return answer;
}

absl::StatusOr<v1::CreateTokenRequest> TokenRequest(const TokenFlags& flags) {
  v1::CreateTokenRequest request;
  int names = 0;
  for (const auto& [role, name] : {std::pair("island", flags.island),
                                   std::pair("operator", flags.operator_name),
                                   std::pair("viewer", flags.viewer),
                                   std::pair("coordinator", flags.follower)}) {
    if (name.empty()) continue;
    request.set_role(role);
    request.set_name(name);
    ++names;
  }
  if (names != 1) {
    return UsageError(
        "token create takes one of --island NAME, --operator NAME, "
        "--viewer NAME and --follower NAME");
  }
  absl::Duration ttl;
  if (!absl::ParseDuration(flags.ttl, &ttl)) {
    return UsageError(
        absl::StrCat("--ttl is \"", flags.ttl, "\"; examples: 30m, 1h, 72h"));
  }
  if (flags.uses == 0) {
    return UsageError("--uses is 0; allowed: 1 and more");
  }
  request.mutable_ttl()->set_seconds(absl::ToInt64Seconds(ttl));
  request.set_uses(flags.uses);
  return request;
}

absl::Status CreateToken(const TokenFlags& flags, const Clock& now,
                         const Invocation& call) {
  ASSIGN_OR_RETURN(const v1::CreateTokenRequest request, TokenRequest(flags));
  ASSIGN_OR_RETURN(const v1::CreateTokenResponse response,
                   Ask(flags.connection, now, &Stub::CreateToken, request));
  const v1::Token& token = response.token();
  const bool is_island = token.role() == "island";
  // The token alone is the result, for scripts.
  call.err << "token " << token.id() << " is good for "
           << HumanDuration(ToTime(token.expires_at()) - now()) << " and "
           << token.uses_left() << (token.uses_left() == 1 ? " use" : " uses")
           << ". " << (is_island ? "On the island" : "On the other machine")
           << ":\n\n  " << (is_island ? "causeway-worker" : "causeway enrol")
           << " --coordinator HOST:PORT --tls DIR "
           << (is_island ? "--data FILE " : "") << "--join TOKEN\n\n";
  if (is_island) {
    call.err << "or, in a training loop of Python:\n\n"
             << "  causeway.join(\"HOST:PORT\", tls=\"DIR\", "
             << "join_token=\"TOKEN\")\n\n";
  }
  call.out << response.join_token() << "\n";
  return absl::OkStatus();
}

Table TableOf(const v1::ListTokensResponse& response, absl::Time now) {
  Table table({"ID", "ROLE", "NAME", ">USES", ">EXPIRES IN"});
  for (const v1::Token& token : response.tokens()) {
    table.AddRow({token.id(), token.role(), token.name(),
                  absl::StrCat(token.uses_left()),
                  HumanDuration(ToTime(token.expires_at()) - now)});
  }
  return table;
}

Table TableOf(const v1::ListCertificatesResponse& response, absl::Time now) {
  Table table({"ID", "ROLE", "NAME", "STATE", ">AGE", ">EXPIRES IN", "TOKEN"});
  for (const v1::IssuedCertificate& entry : response.certificates()) {
    table.AddRow({entry.id(), entry.role(), entry.name(),
                  entry.revoked() ? "revoked" : "good",
                  HumanDuration(now - ToTime(entry.enrolled_at())),
                  HumanDuration(ToTime(entry.expires_at()) - now),
                  entry.token_id().empty() ? "-" : entry.token_id()});
  }
  return table;
}

// Prints the answer of a method that lists, as JSON or as a table.
template <typename Request, typename Response>
absl::Status List(const TokenFlags& flags, const Clock& now,
                  ClientMethod<Stub, Request, Response> method,
                  std::ostream& out) {
  ASSIGN_OR_RETURN(const Response response,
                   Ask(flags.connection, now, method, Request()));
  if (flags.json) {
    out << MessageJson(response) << "\n";
  } else {
    TableOf(response, now()).Print(out);
  }
  return absl::OkStatus();
}

// Withdraws the token or certificate that the command names.
template <typename Request, typename Response>
absl::Status Revoke(const TokenFlags& flags, const Clock& now,
                    ClientMethod<Stub, Request, Response> method,
                    const Invocation& call) {
  Request request;
  request.set_id(call.arguments[1]);
  RETURN_IF_ERROR(Ask(flags.connection, now, method, request).status());
  call.out << request.id() << " is revoked\n";
  return absl::OkStatus();
}

void AddListFlags(TokenFlags& flags, FlagSet& set) {
  AddConnectionFlags(flags.connection, set);
  set.Add("json", "", "With list: prints JSON instead of a table.",
          &flags.json);
}

Command TokenCommand(const Clock& now) {
  const auto flags = std::make_shared<TokenFlags>();
  Command command{
      .name = "token",
      .arguments = "create | list | revoke ID",
      .summary = "Makes, lists or revokes join tokens.",
      .details =
          "A coordinator that was started with --tls auto admits only holders "
          "of its authority's certificates; a join token gets one. `create` "
          "prints a token for one island, operator, viewer or follower, `list` "
          "shows the tokens that can still be used, `revoke ID` withdraws one. "
          "Anyone who has a token can use it: keep it secret."};
  AddListFlags(*flags, command.flags);
  command.flags.Add("island", "NAME", "With create: for the island NAME.",
                    &flags->island);
  command.flags.Add("operator", "NAME",
                    "With create: for an operator, who may steer the run and "
                    "make tokens.",
                    &flags->operator_name);
  command.flags.Add("viewer", "NAME",
                    "With create: for a viewer, who may only watch the run.",
                    &flags->viewer);
  command.flags.Add("follower", "NAME",
                    "With create: for a coordinator that follows this one and "
                    "can take over the run.",
                    &flags->follower);
  command.flags.Add("ttl", "TIME",
                    "With create: how long the token can be used, 1m to 720h.",
                    &flags->ttl);
  command.flags.Add("uses", "N",
                    "With create: how many times the token can be used.",
                    &flags->uses);
  command.run = [=](const Invocation& call) -> absl::Status {
    const std::string& action = call.arguments[0];
    if (action == "create") return CreateToken(*flags, now, call);
    return action == "list" ? List(*flags, now, &Stub::ListTokens, call.out)
                            : Revoke(*flags, now, &Stub::RevokeToken, call);
  };
  return command;
}

Command CertificateCommand(const Clock& now) {
  const auto flags = std::make_shared<TokenFlags>();
  Command command{
      .name = "certificate",
      .arguments = "list | revoke ID",
      .summary =
          "Lists or revokes certificates of the coordinator's authority.",
      .details =
          "`list` shows who has enrolled. `revoke ID` withdraws a certificate "
          "and its renewals: the next call or heartbeat of its holder is "
          "refused. If it was the last operator's, a restart of the "
          "coordinator makes another one in STATE_DIR/tls/operator."};
  AddListFlags(*flags, command.flags);
  command.run = [=](const Invocation& call) {
    return call.arguments[0] == "list"
               ? List(*flags, now, &Stub::ListCertificates, call.out)
               : Revoke(*flags, now, &Stub::RevokeCertificate, call);
  };
  return command;
}

Command EnrolCommand(const Clock& now) {
  struct Flags {
    std::string coordinator;
    std::string token;
    std::string folder;
  };
  const auto flags = std::make_shared<Flags>();
  Command command{
      .name = "enrol",
      .summary = "Gets a certificate with a join token.",
      .details =
          "Makes the folder that other commands take as --tls. The key in it "
          "never leaves this machine."};
  command.flags.AddRequired("coordinator", "ADDRESS",
                            "The coordinator, as HOST:PORT; or, separated by "
                            "commas, its address and those of its followers.",
                            &flags->coordinator, CheckCoordinators);
  command.flags.AddRequired("join", "TOKEN",
                            "The token that `causeway token create` printed.",
                            &flags->token);
  command.flags.AddRequired("tls", "DIR", "The folder to create.",
                            &flags->folder);
  command.run = [=](const Invocation& call) -> absl::Status {
    RETURN_IF_ERROR(
        Enrol(flags->coordinator, flags->token, flags->folder, now()));
    call.out << "enrolled: use --coordinator " << flags->coordinator
             << " --tls " << flags->folder << "\n";
    return absl::OkStatus();
  };
  return command;
}

}  // namespace

std::vector<Command> TrustCommands(const Clock& now) {
  return {TokenCommand(now), CertificateCommand(now), EnrolCommand(now)};
}

}  // namespace causeway
