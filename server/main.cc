// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// causeway-coordinator: holds one run and serves it.
//
// Exit codes: 0 the run is finished, or a signal of common/os/daemon.h came; 1
// failure; 2 wrong use, such as an invalid configuration or, if neither
// --follow nor --etcd is given, a state directory with another run, which a
// restart cannot mend. A coordinator beside others tries again instead.
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/config/run_config.h"
#include "common/os/daemon.h"
#include "common/os/file.h"
#include "common/os/service_manager.h"
#include "common/status_macros.h"
#include "common/transport/coordinator_target.h"
#include "common/transport/credentials.h"
#include "common/transport/socket_address.h"
#include "google/protobuf/stubs/logging.h"
#include "server/election/election.h"
#include "server/follow.h"
#include "server/lead.h"
#include "server/serve_options.h"
#include "server/trust/authority.h"

namespace causeway {

// A duration whose error asks for the unit.
struct DurationFlag {
  absl::Duration value;
};

bool AbslParseFlag(absl::string_view text, DurationFlag* flag,
                   std::string* error) {
  if (absl::ParseDuration(text, &flag->value)) return true;
  *error = "give a number and its unit, such as 90s, 30m or 2h, or inf";
  return false;
}

std::string AbslUnparseFlag(DurationFlag flag) {
  return absl::FormatDuration(flag.value);
}

}  // namespace causeway

ABSL_FLAG(std::string, config, "",
          "The run's configuration: a text-format causeway.v1.RunConfig.");
ABSL_FLAG(std::string, state_dir, "",
          "Directory for the run's state; made if missing. A coordinator "
          "restarted on it continues the run.");
ABSL_FLAG(std::string, follow, "",
          "Follow the run's coordinator at this address, host:port: keep a "
          "copy of the run in --state_dir, ready to take it over (`causeway "
          "promote`). Needs no --config.");
ABSL_FLAG(
    std::string, follow_tls, "",
    "With --follow or --promote: folder with a certificate of the role "
    "coordinator, which `causeway enrol` makes from a token of `causeway token "
    "create --follower`. Turns TLS on, also for --listen unless --tls_cert or "
    "--tls auto is given.");
ABSL_FLAG(std::string, follow_tls_ca, "",
          "With --follow or --etcd: PEM file with the authorities that sign "
          "the followed coordinator's certificate. Turns TLS on; this "
          "coordinator then shows --tls_cert to the other.");
ABSL_FLAG(
    std::string, name, "",
    "With --follow or --etcd: a name for this coordinator that no other one of "
    "the run has, 1 to 64 of [a-z0-9-]. Empty: the machine's name.");
ABSL_FLAG(bool, promote, false,
          "Take over the run that --state_dir has a copy of. For when no "
          "follower is running there. Without --config, the run keeps its "
          "last configuration.");
ABSL_FLAG(int, above_epoch, 0,
          "With --promote: lead with a higher epoch than this one, which "
          "islands have heard of. For a state from a backup.");
ABSL_FLAG(
    std::vector<std::string>, etcd, {},
    "Members of an etcd cluster, host:port, separated by commas. Coordinators "
    "that share it elect a leader for the run; the others follow, and one "
    "takes over if the leader is lost. Empty: no election.");
ABSL_FLAG(std::string, etcd_prefix, "",
          "With --etcd: prefix of the run's keys. Empty: /causeway/NAME/, with "
          "the name in the run's configuration.");
ABSL_FLAG(causeway::DurationFlag, etcd_lease,
          causeway::DurationFlag{absl::Seconds(5)},
          "With --etcd: how long a leader may be silent before another "
          "coordinator takes over, such as 5s. Whole seconds, 2s or more.");
ABSL_FLAG(std::string, etcd_tls_ca, "",
          "PEM file with the authorities that sign etcd's certificates. Turns "
          "TLS to etcd on.");
ABSL_FLAG(std::string, etcd_tls_cert, "",
          "PEM file: a certificate to show to etcd.");
ABSL_FLAG(std::string, etcd_tls_key, "",
          "PEM file: the key of --etcd_tls_cert.");
ABSL_FLAG(std::string, etcd_user, "", "User name for etcd. Empty: none.");
ABSL_FLAG(std::string, etcd_password_file, "",
          "File with the password of --etcd_user.");
ABSL_FLAG(std::string, advertise, "",
          "With --etcd or --region: the address, host:port, at which the other "
          "coordinators and islands of the region reach this one. Empty: the "
          "address of --listen.");
ABSL_FLAG(std::string, region, "",
          "This coordinator's region, 1 to 64 of [a-z0-9-]. While it follows, "
          "islands with the same --region fetch updates and parameters from "
          "it. Empty: no region.");
ABSL_FLAG(std::string, initial_parameters, "",
          "Checkpoint that a new run starts from, a safetensors file or a "
          "Hugging Face model directory (fp32, fp16 or bf16); not read again "
          "later. Empty: parameters made from the run's seed.");
ABSL_FLAG(
    std::string, listen, "",
    "Address to listen on, host:port. Port 0: a free port. Empty: 0.0.0.0:7070 "
    "where clients show certificates, otherwise 127.0.0.1:7070.");
ABSL_FLAG(bool, insecure, false,
          "Allow --listen beyond this machine without client certificates. "
          "Anyone who can reach the port can then read and change the run.");
ABSL_FLAG(std::string, metrics_listen, "",
          "Address, host:port, that serves /metrics for Prometheus, /healthz "
          "and /readyz to anyone who can reach it: choose a private one. Port "
          "0: a free port, which the log names. Empty: none.");
ABSL_FLAG(std::string, http_listen, "",
          "Address, host:port, of a web page that shows the run. Anyone who "
          "can reach it can see the run, but change nothing. Port 0: a free "
          "port, which the log names. Empty: no page.");
ABSL_FLAG(std::vector<std::string>, http_hosts, {},
          "Host names, separated by commas, under which browsers may open the "
          "page of --http_listen, besides IP addresses, localhost, and the "
          "host of --http_listen.");
ABSL_FLAG(std::string, port_file, "",
          "File to write the port of --listen to. Empty: none.");
ABSL_FLAG(
    std::string, tls, "",
    "\"auto\" makes a certificate authority in STATE_DIR/tls and admits only "
    "holders of its certificates: see `causeway token create --help`. Empty: "
    "TLS as --tls_cert, --tls_key and --tls_client_ca say.");
ABSL_FLAG(
    causeway::DurationFlag, certificate_life,
    causeway::DurationFlag{absl::Hours(24 * 7)},
    "With --tls auto: how long the certificates that tokens give are valid, "
    "such as 168h. They are renewed after two thirds of that. Those in "
    "STATE_DIR/tls, which are the coordinator's and the first operator's, are "
    "valid for 30 days.");
ABSL_FLAG(std::string, tls_cert, "",
          "PEM file: the coordinator's certificate, with its chain. Turns TLS "
          "on; without it everything is plain text.");
ABSL_FLAG(std::string, tls_key, "", "PEM file: the key of --tls_cert.");
ABSL_FLAG(std::string, tls_client_ca, "",
          "PEM file: the authorities that sign clients' certificates. Clients "
          "must then show one (mutual TLS). Empty: clients need none.");
ABSL_FLAG(int, max_connections, 0,
          "The most TCP connections to accept, at most half of them from one "
          "address. 0: 256, plus 8 for each of membership.max_islands.");
ABSL_FLAG(int, merge_threads, 0,
          "Threads of an outer step. 0: one for each core, at most 4.");
ABSL_FLAG(bool, evictable_state, false,
          "For models larger than memory: keep parameters and outer optimizer "
          "in files in --state_dir, which the kernel pages in and out. Costs "
          "disk space and time.");
ABSL_FLAG(causeway::DurationFlag, drain_slow_after,
          causeway::DurationFlag{absl::InfiniteDuration()},
          "Ask an island to leave after it has trained at less than 0.75 of "
          "the others' pace for this long, such as 30m, if enough others "
          "remain for the quorum. inf: never.");
ABSL_FLAG(bool, exit_when_finished, false,
          "Exit once the run is finished and its islands have left.");

namespace causeway {
namespace {

int MergeThreads() {
  const int threads = absl::GetFlag(FLAGS_merge_threads);
  if (threads > 0) return threads;
  return std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1,
                    4);
}

// The shortest --certificate_life that leaves time to renew.
constexpr absl::Duration kShortestLife = absl::Seconds(5);

bool HasOwnAuthority() { return absl::GetFlag(FLAGS_tls) == "auto"; }

// Returns the files that the flags name, for --listen.
ServerTlsFiles FilesOfFlags() {
  const std::string folder = absl::GetFlag(FLAGS_follow_tls);
  if (!folder.empty() && absl::GetFlag(FLAGS_tls_cert).empty() &&
      !HasOwnAuthority()) {
    return {.tls_cert = absl::StrCat(folder, "/", kFolderCertificate),
            .tls_key = absl::StrCat(folder, "/", kFolderKey),
            .tls_client_ca = absl::StrCat(folder, "/", kFolderAuthority)};
  }
  return {.tls_cert = absl::GetFlag(FLAGS_tls_cert),
          .tls_key = absl::GetFlag(FLAGS_tls_key),
          .tls_client_ca = absl::GetFlag(FLAGS_tls_client_ca)};
}

// Returns the files to present to the followed coordinator.
ClientTlsFiles PeerFilesOfFlags() {
  const std::string authorities = absl::GetFlag(FLAGS_follow_tls_ca);
  if (authorities.empty()) {
    return {.tls = absl::GetFlag(FLAGS_follow_tls), .prefix = "follow_"};
  }
  return {.tls_ca = authorities,
          .tls_cert = absl::GetFlag(FLAGS_tls_cert),
          .tls_key = absl::GetFlag(FLAGS_tls_key),
          .prefix = "follow_"};
}

// Returns the problem with the flags of TLS, or "".
std::string TlsProblem() {
  const std::string tls = absl::GetFlag(FLAGS_tls);
  const bool is_elected = !absl::GetFlag(FLAGS_etcd).empty();
  if (is_elected && !absl::GetFlag(FLAGS_follow_tls).empty()) {
    return "--etcd and --follow_tls cannot be combined: the authority that "
           "renews such certificates may be lost with its coordinator; use "
           "--follow_tls_ca, --tls_cert and --tls_key";
  }
  if (tls.empty()) return "";
  if (tls != "auto") {
    return absl::StrCat("--tls is \"", tls, "\"; allowed: auto");
  }
  if (is_elected) {
    return "--tls auto and --etcd cannot be combined: the authority would be "
           "lost with its coordinator; use certificates of your own "
           "(--tls_cert, --tls_key, --tls_client_ca, --follow_tls_ca)";
  }
  if (!absl::GetFlag(FLAGS_follow).empty()) {
    return "--tls auto and --follow cannot be combined: a follower needs a "
           "certificate of the coordinator's authority (--follow_tls)";
  }
  const ServerTlsFiles files = FilesOfFlags();
  if (!absl::StrCat(files.tls_cert, files.tls_key, files.tls_client_ca)
           .empty()) {
    return "--tls auto makes its own files: leave out --tls_cert, --tls_key "
           "and --tls_client_ca";
  }
  const absl::Duration life = absl::GetFlag(FLAGS_certificate_life).value;
  if (life < kShortestLife || life > kAuthorityLife) {
    return absl::StrCat("--certificate_life must be ",
                        absl::FormatDuration(kShortestLife), " to ",
                        absl::FormatDuration(kAuthorityLife));
  }
  return "";
}

// Returns the address to listen on.
//   INVALID_ARGUMENT  --listen is no address, or not a safe one.
absl::StatusOr<std::string> ListenAddress(bool clients_show_certificates) {
  std::string address = absl::GetFlag(FLAGS_listen);
  if (address.empty()) {
    return clients_show_certificates ? "0.0.0.0:7070" : "127.0.0.1:7070";
  }
  if (clients_show_certificates || absl::GetFlag(FLAGS_insecure) ||
      IsLoopback(address)) {
    return address;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("anyone who can reach --listen ", address,
                   " could read and change the run; use --tls auto, or "
                   "--tls_cert, --tls_key and --tls_client_ca, or, if everyone "
                   "on the network is trusted, --insecure"));
}

std::string OwnName() {
  const std::string given = absl::GetFlag(FLAGS_name);
  if (!given.empty()) return given;
  char host[64] = {};
  gethostname(host, sizeof(host) - 1);
  std::string name = absl::AsciiStrToLower(host);
  for (char& c : name) {
    if (!absl::ascii_isalnum(c)) c = '-';
  }
  return name;
}

// Checks this coordinator's name, its region, and the address at which others
// reach it. Returns INVALID_ARGUMENT if one is not valid.
absl::Status CheckPlace(const ServeOptions& options) {
  const std::string& address = options.advertised;
  const bool is_elected = !absl::GetFlag(FLAGS_etcd).empty();
  const bool follows = !absl::GetFlag(FLAGS_follow).empty();
  if ((is_elected || follows) && !IsValidName(options.name)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--name is \"", options.name, "\"; allowed: 1 to 64 of [a-z0-9-]"));
  }
  if (!options.region.empty() && !IsValidName(options.region)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--region is \"", options.region, "\"; allowed: 1 to 64 of [a-z0-9-]"));
  }
  const bool is_dialled = is_elected || (!options.region.empty() && follows);
  if (is_dialled &&
      (!HasHostAndPort(address) || absl::StartsWith(address, "0.0.0.0:") ||
       absl::StartsWith(address, "[::]:"))) {
    return absl::InvalidArgumentError(absl::StrCat(
        is_elected ? "the other coordinators" : "the islands of --region",
        " cannot reach \"", address, "\": set --advertise"));
  }
  return absl::OkStatus();
}

// Returns the options that the flags name. Errors are wrong use.
absl::StatusOr<ServeOptions> ServeOptionsOfFlags() {
  ServeOptions options{
      .state_dir = absl::GetFlag(FLAGS_state_dir),
      .files = FilesOfFlags(),
      .has_own_authority = HasOwnAuthority(),
      .certificate_life = absl::GetFlag(FLAGS_certificate_life).value,
      .peer_files = PeerFilesOfFlags(),
      .name = OwnName(),
      .region = absl::GetFlag(FLAGS_region),
      .advertised = absl::GetFlag(FLAGS_advertise),
      .metrics_listen = absl::GetFlag(FLAGS_metrics_listen),
      .http_listen = absl::GetFlag(FLAGS_http_listen),
      .http_hosts = absl::GetFlag(FLAGS_http_hosts),
      .port_file = absl::GetFlag(FLAGS_port_file),
      .max_connections = absl::GetFlag(FLAGS_max_connections),
      .merge_threads = MergeThreads(),
      .evictable_state = absl::GetFlag(FLAGS_evictable_state),
      .drain_slow_after = absl::GetFlag(FLAGS_drain_slow_after).value,
      .initial_parameters = absl::GetFlag(FLAGS_initial_parameters),
      .exit_when_finished = absl::GetFlag(FLAGS_exit_when_finished),
      .above_epoch = static_cast<uint64_t>(absl::GetFlag(FLAGS_above_epoch)),
      .now = SteadyWallClock(),
      .wall_clock = WallClock(),
      .random = [] { return std::random_device{}(); }};
  const std::string problem = TlsProblem();
  if (!problem.empty()) return absl::InvalidArgumentError(problem);
  ASSIGN_OR_RETURN(options.address,
                   ListenAddress(options.ClientsShowCertificates()));
  if (options.advertised.empty()) options.advertised = options.address;
  RETURN_IF_ERROR(CheckPlace(options));
  return options;
}

// Returns the options of an election that the flags name. Errors are wrong use.
absl::StatusOr<Election::Options> ElectionOptionsOfFlags(
    const ServeOptions& serve, const v1::RunConfig& config) {
  Election::Options options{.etcd = {.members = absl::GetFlag(FLAGS_etcd),
                                     .user = absl::GetFlag(FLAGS_etcd_user)},
                            .prefix = absl::GetFlag(FLAGS_etcd_prefix),
                            .lease = absl::GetFlag(FLAGS_etcd_lease).value};
  for (const std::string& member : options.etcd.members) {
    if (!HasHostAndPort(member)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--etcd has \"", member, "\"; allowed: host:port[,host:port...]"));
    }
  }
  if (options.prefix.empty()) {
    options.prefix = absl::StrCat("/causeway/", config.name(), "/");
  }
  if (options.lease < absl::Seconds(2) ||
      options.lease != absl::Trunc(options.lease, absl::Seconds(1))) {
    return absl::InvalidArgumentError(
        "--etcd_lease must be whole seconds, 2 or more");
  }
  options.self.set_name(serve.name);
  options.self.set_address(serve.advertised);
  ASSIGN_OR_RETURN(
      options.etcd.credentials,
      MakeChannelCredentials({.tls_ca = absl::GetFlag(FLAGS_etcd_tls_ca),
                              .tls_cert = absl::GetFlag(FLAGS_etcd_tls_cert),
                              .tls_key = absl::GetFlag(FLAGS_etcd_tls_key),
                              .prefix = "etcd_",
                              .pair_prefix = "etcd_"},
                             serve.wall_clock()));
  if (const std::string file = absl::GetFlag(FLAGS_etcd_password_file);
      !file.empty()) {
    absl::StatusOr<std::string> password = ReadFile(file);
    if (!password.ok()) {
      return absl::Status(
          password.status().code(),
          absl::StrCat("--etcd_password_file: ", password.status().message()));
    }
    options.etcd.password = *std::move(password);
    absl::StripTrailingAsciiWhitespace(&options.etcd.password);
  }
  return options;
}

constexpr char kProgram[] = "causeway-coordinator";

int WrongUse(const absl::Status& status) {
  return UsageError(kProgram, status.message());
}

// Returns the exit code of a coordinator without others that did not start
// because of `status`, or has ended.
int LeadExitCode(const absl::Status& status) {
  const int code = ExitCode(kProgram, status);
  return absl::IsFailedPrecondition(status) ? 2 : code;
}

int Main() {
  absl::StatusOr<ServeOptions> options = ServeOptionsOfFlags();
  if (!options.ok()) return WrongUse(options.status());
  ServiceManager manager(options->now);
  // Reading and writing a large model's state take minutes.
  const ServiceManager::Phase phase(&manager, /*is_busy=*/true);
  options->manager = &manager;
  const std::string leader = absl::GetFlag(FLAGS_follow);
  const bool promote = absl::GetFlag(FLAGS_promote);
  const bool is_copy = !leader.empty() || promote;
  const std::string config_file = absl::GetFlag(FLAGS_config);
  std::optional<v1::RunConfig> config;
  if (!is_copy || (promote && !config_file.empty())) {
    absl::StatusOr<v1::RunConfig> loaded = LoadRunConfig(config_file);
    if (!loaded.ok()) {
      ExitCode(kProgram, loaded.status());
      // systemd restarts the service after other failures.
      return 2;
    }
    config = *std::move(loaded);
  }
  if (is_copy) {
    const absl::Status status = RunFollower(*options, leader, promote, config);
    return leader.empty() ? LeadExitCode(status) : ExitCode(kProgram, status);
  }
  if (absl::GetFlag(FLAGS_etcd).empty()) {
    return LeadExitCode(Lead(*options, *config, "", nullptr).status());
  }
  const absl::StatusOr<Election::Options> election_options =
      ElectionOptionsOfFlags(*options, *config);
  if (!election_options.ok()) return WrongUse(election_options.status());
  Election election(*election_options);
  return ExitCode(kProgram, RunElected(*options, *config, election));
}

// Returns the problem with the command line, or "".
std::string FlagsProblem() {
  const bool is_copy =
      !absl::GetFlag(FLAGS_follow).empty() || absl::GetFlag(FLAGS_promote);
  if ((absl::GetFlag(FLAGS_config).empty() && !is_copy) ||
      absl::GetFlag(FLAGS_state_dir).empty()) {
    return "--config and --state_dir are needed";
  }
  if (is_copy && !absl::GetFlag(FLAGS_etcd).empty()) {
    return "--etcd decides which coordinator leads: leave out --follow and "
           "--promote";
  }
  const std::string leader = absl::GetFlag(FLAGS_follow);
  if (!leader.empty() && !HasHostAndPort(leader)) {
    return absl::StrCat("--follow is \"", leader, "\"; allowed: host:port");
  }
  for (const auto& [flag, address] :
       {std::pair("--listen", absl::GetFlag(FLAGS_listen)),
        std::pair("--metrics_listen", absl::GetFlag(FLAGS_metrics_listen)),
        std::pair("--http_listen", absl::GetFlag(FLAGS_http_listen))}) {
    if (!address.empty() && PortOf(address) < 0) {
      return absl::StrCat(flag, " is \"", address, "\"; allowed: host:port");
    }
  }
  if (absl::GetFlag(FLAGS_merge_threads) < 0 ||
      absl::GetFlag(FLAGS_above_epoch) < 0 ||
      absl::GetFlag(FLAGS_max_connections) < 0) {
    return "--merge_threads, --above_epoch and --max_connections must be 0 or "
           "more";
  }
  if (absl::GetFlag(FLAGS_above_epoch) > 0 && !absl::GetFlag(FLAGS_promote)) {
    return "--above_epoch needs --promote";
  }
  if (absl::GetFlag(FLAGS_drain_slow_after).value <= absl::ZeroDuration()) {
    return "--drain_slow_after must be above 0";
  }
  return "";
}

}  // namespace
}  // namespace causeway

int main(int argc, char** argv) {
  causeway::StartDaemon(
      argc, argv,
      "Holds one training run: merges what islands contribute and serves the "
      "result.\n\n"
      "  causeway-coordinator --config run.textproto --state_dir DIR --tls "
      "auto\n"
      "  causeway-coordinator --follow HOST:PORT --state_dir DIR",
      "server/main.cc");
  // Otherwise protobuf would log each request with a text that is not UTF-8.
  google::protobuf::SetLogHandler(nullptr);
  const std::string problem = causeway::FlagsProblem();
  if (!problem.empty()) {
    return causeway::UsageError(causeway::kProgram, problem);
  }
  return causeway::Main();
}
