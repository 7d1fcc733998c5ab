// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// causeway-coordinator: holds one run and serves it.
//
// Exit codes: 0 the run is finished, or SIGTERM or SIGINT came; 1 failure; 2
// wrong use, such as a configuration with mistakes, which no repetition mends.
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <memory>
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
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/daemon.h"
#include "common/file.h"
#include "common/http/http_server.h"
#include "common/metrics/metric_families.h"
#include "common/metrics/metrics_server.h"
#include "common/run_config.h"
#include "common/service_manager.h"
#include "common/status_macros.h"
#include "common/transport/certificate_expiry.h"
#include "common/transport/credentials.h"
#include "common/transport/enrolment.h"
#include "common/transport/socket_address.h"
#include "glog/logging.h"
#include "google/protobuf/stubs/logging.h"
#include "server/edge/access.h"
#include "server/edge/server.h"
#include "server/edge/services.h"
#include "server/engine.h"
#include "server/page/page_handlers.h"
#include "server/replication/follower.h"
#include "server/replication/replacement_notice.h"
#include "server/rules/coordinator.h"
#include "server/status_metrics.h"
#include "server/storage/state_directory.h"
#include "server/trust/trust.h"

ABSL_FLAG(std::string, config, "",
          "The run's configuration: a text-format causeway.v1.RunConfig.");
ABSL_FLAG(std::string, state_dir, "",
          "Directory that holds the run's state; made if missing. A "
          "coordinator that is started again on it continues the run.");
ABSL_FLAG(
    std::string, follow, "",
    "Address, host:port, of the run's coordinator: keep a copy of its run "
    "in --state_dir, from which this one can take the run over (`causeway "
    "promote`). --config is not needed.");
ABSL_FLAG(
    std::string, follow_tls, "",
    "With --follow: folder of a certificate with the role coordinator, as "
    "`causeway enrol` makes it with a token of `causeway token create "
    "--follower`. Turns TLS on, also for --listen unless --tls_cert is given.");
ABSL_FLAG(std::string, follow_tls_ca, "",
          "With --follow: PEM file with the authorities that sign the "
          "coordinator's certificate. Turns TLS on; --tls_cert and --tls_key "
          "are shown to it.");
ABSL_FLAG(std::string, follower_name, "",
          "With --follow: a name of this follower's own, 1 to 64 of [a-z0-9-]. "
          "Empty: the name of the machine.");
ABSL_FLAG(bool, promote, false,
          "Take over the run of which --state_dir has a copy, when no follower "
          "runs there. --config is not needed.");
ABSL_FLAG(std::string, initial_parameters, "",
          "Checkpoint that a new run begins with, instead of parameters made "
          "from its seed: a safetensors file, or a directory of the Hugging "
          "Face libraries (fp32, fp16 or bf16). A run that has begun does not "
          "read it again.");
ABSL_FLAG(std::string, listen, "",
          "Address to listen on, host:port. Port 0 takes a free one. If empty: "
          "0.0.0.0:7070 where clients show certificates, otherwise "
          "127.0.0.1:7070.");
ABSL_FLAG(bool, insecure, false,
          "Allow a --listen beyond this machine without clients' "
          "certificates. Whoever reaches the port can then change and read the "
          "run.");
ABSL_FLAG(std::string, metrics_listen, "",
          "Address, host:port, that serves Prometheus's metrics at /metrics, "
          "and /healthz and /readyz, to whoever reaches it: give a private "
          "one. Port 0 takes a free one, which the log names. Empty: none.");
ABSL_FLAG(
    std::string, http_listen, "",
    "Address, host:port, on which a page for browsers shows the run. "
    "Whoever reaches it can see the run, and change nothing. Port 0 takes "
    "a free one, which the log names. Empty: no page.");
ABSL_FLAG(std::vector<std::string>, http_hosts, {},
          "Names, separated by commas, under which browsers may ask for the "
          "page of --http_listen, besides IP addresses, localhost, and the "
          "host of --http_listen.");
ABSL_FLAG(std::string, port_file, "",
          "Write the port that is listened on to this file.");
ABSL_FLAG(std::string, tls, "",
          "\"auto\" makes an authority and certificates in STATE_DIR/tls, and "
          "lets in who has a certificate of that authority: see `causeway "
          "token create --help`. Empty: TLS as the next three flags say.");
ABSL_FLAG(absl::Duration, certificate_life, absl::Hours(24 * 7),
          "With --tls auto: how long certificates of islands and operators are "
          "good. They are renewed after two thirds of that.");
ABSL_FLAG(std::string, tls_cert, "",
          "PEM file: the coordinator's certificate, with its chain. Turns TLS "
          "on; without it everything is plain text.");
ABSL_FLAG(std::string, tls_key, "", "PEM file: the key of --tls_cert.");
ABSL_FLAG(std::string, tls_client_ca, "",
          "PEM file: authorities of clients' certificates. Clients must then "
          "show one (mutual TLS).");
ABSL_FLAG(int, max_connections, 0,
          "TCP connections that are let in, half as many from one address. 0 "
          "takes 256, and 8 for each of membership.max_islands.");
ABSL_FLAG(int, merge_threads, 0,
          "Threads of an outer step; 0 takes one for each core, at most 4.");
ABSL_FLAG(bool, exit_when_finished, false,
          "End once the run is finished and its islands have left.");

namespace causeway {
namespace {

// The time that islands get to fetch the last update before the process ends.
constexpr absl::Duration kFarewell = absl::Seconds(30);

bool FinishedAndAlone(Engine& engine, absl::Time now, absl::Time& since) {
  if (engine.run_state() != v1::FINISHED) return false;
  if (since == absl::InfiniteFuture()) since = now;
  return engine.ListIslands(false).islands_size() == 0 ||
         now - since > kFarewell;
}

int MergeThreads() {
  const int threads = absl::GetFlag(FLAGS_merge_threads);
  if (threads > 0) return threads;
  return std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1,
                    4);
}

// The least --certificate_life that leaves time to renew.
constexpr absl::Duration kShortestLife = absl::Seconds(5);

bool HasOwnAuthority() { return absl::GetFlag(FLAGS_tls) == "auto"; }

// Returns the files that the flags name, for --listen.
ServerTlsFiles FilesOfFlags() {
  const std::string folder = absl::GetFlag(FLAGS_follow_tls);
  if (!folder.empty() && absl::GetFlag(FLAGS_tls_cert).empty()) {
    return {.tls_cert = absl::StrCat(folder, "/", kFolderCertificate),
            .tls_key = absl::StrCat(folder, "/", kFolderKey),
            .tls_client_ca = absl::StrCat(folder, "/", kFolderAuthority)};
  }
  return {.tls_cert = absl::GetFlag(FLAGS_tls_cert),
          .tls_key = absl::GetFlag(FLAGS_tls_key),
          .tls_client_ca = absl::GetFlag(FLAGS_tls_client_ca)};
}

bool ClientsShowCertificates() {
  return HasOwnAuthority() || !FilesOfFlags().tls_client_ca.empty();
}

// Returns what is wrong with the flags of TLS, or "".
std::string TlsProblem() {
  const std::string tls = absl::GetFlag(FLAGS_tls);
  if (tls.empty()) return "";
  if (tls != "auto") {
    return absl::StrCat("--tls is \"", tls, "\"; allowed: auto");
  }
  if (!absl::GetFlag(FLAGS_follow).empty()) {
    return "--tls auto and --follow do not go together: a follower has a "
           "certificate of the coordinator's authority (--follow_tls)";
  }
  const ServerTlsFiles files = FilesOfFlags();
  if (!absl::StrCat(files.tls_cert, files.tls_key, files.tls_client_ca)
           .empty()) {
    return "--tls auto makes its own files: leave --tls_cert, --tls_key and "
           "--tls_client_ca out";
  }
  if (absl::GetFlag(FLAGS_certificate_life) < kShortestLife) {
    return absl::StrCat("--certificate_life must be ",
                        absl::FormatDuration(kShortestLife), " or more");
  }
  return "";
}

// Returns null if the coordinator has no authority of its own.
absl::StatusOr<std::unique_ptr<Trust>> OpenTrust(const v1::RunConfig& config,
                                                 Engine* engine,
                                                 const Clock& now) {
  if (!HasOwnAuthority()) return nullptr;
  return Trust::Open(
      {.folder = absl::StrCat(absl::GetFlag(FLAGS_state_dir), "/tls"),
       .run = config.name(),
       .certificate_life = absl::GetFlag(FLAGS_certificate_life),
       .now = now,
       .record = [engine](const CoordinatorEvent& event) {
         engine->Record(event);
       }});
}

std::function<absl::Status(const ClientCertificate&)> CheckOf(Trust* trust) {
  if (trust == nullptr) return nullptr;
  return [trust](const ClientCertificate& certificate) {
    return trust->Check(certificate.serial);
  };
}

// Says how operators and islands get in.
void LogHowToJoin(int port) {
  const std::string state_dir = absl::GetFlag(FLAGS_state_dir);
  LOG(INFO) << "TLS with an authority of its own; operators on this machine "
               "use --coordinator 127.0.0.1:"
            << port << " --tls " << state_dir << "/tls/operator";
  LOG(INFO) << "to let an island in: causeway token create --island NAME "
               "--coordinator 127.0.0.1:"
            << port << " --tls " << state_dir << "/tls/operator";
}

// Returns null if no metrics were asked for.
absl::StatusOr<std::unique_ptr<HttpServer>> ServeMetrics(
    const StatusSource& status, const Clock& now) {
  return StartMetricsServer(
      absl::GetFlag(FLAGS_metrics_listen), now, [] { return absl::OkStatus(); },
      [&status, now](MetricFamilies& families) {
        AddStatus(status.GetRun(), status.ListIslands(true),
                  status.engine->ListFragments(), now(), families);
      });
}

// Returns null if no page was asked for.
absl::StatusOr<std::unique_ptr<HttpServer>> ServePage(
    const StatusSource& status, const Clock& now) {
  const std::string address = absl::GetFlag(FLAGS_http_listen);
  if (address.empty()) return nullptr;
  std::vector<std::string> hosts = absl::GetFlag(FLAGS_http_hosts);
  for (std::string& host : hosts) absl::AsciiStrToLower(&host);
  ASSIGN_OR_RETURN(std::unique_ptr<HttpServer> server,
                   HttpServer::Start({.address = address,
                                      .ready = [] { return absl::OkStatus(); },
                                      .handlers = PageHandlers(status, now),
                                      .now = now,
                                      .hosts = std::move(hosts)}));
  LOG(INFO) << "the run's page is http://" << HostOf(address) << ":"
            << server->port() << "/";
  LOG_IF(WARNING, !IsLoopback(address))
      << "whoever reaches --http_listen " << address << " can see the run";
  return server;
}

// Returns the address to listen on.
//   INVALID_ARGUMENT  --listen is no address, or not a safe one.
absl::StatusOr<std::string> ListenAddress() {
  std::string address = absl::GetFlag(FLAGS_listen);
  if (address.empty()) {
    return ClientsShowCertificates() ? "0.0.0.0:7070" : "127.0.0.1:7070";
  }
  if (ClientsShowCertificates() || absl::GetFlag(FLAGS_insecure) ||
      IsLoopback(address)) {
    return address;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "whoever reaches --listen ", address,
      " could change and read the run; use --tls auto, or --tls_cert, "
      "--tls_key and --tls_client_ca, or, where everybody on the network is "
      "trusted, --insecure"));
}

absl::Status WritePortFile(int port) {
  const std::string port_file = absl::GetFlag(FLAGS_port_file);
  if (port_file.empty()) return absl::OkStatus();
  const std::string text = absl::StrCat(port, "\n");
  return WriteFileAtomically(port_file, {absl::string_view(text)});
}

// Returns the credentials for calls to the coordinator of --follow.
absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> LeaderCredentials(
    absl::Time now) {
  const std::string authorities = absl::GetFlag(FLAGS_follow_tls_ca);
  if (authorities.empty()) {
    return MakeChannelCredentials({.tls = absl::GetFlag(FLAGS_follow_tls)},
                                  now);
  }
  return MakeChannelCredentials({.tls_ca = authorities,
                                 .tls_cert = absl::GetFlag(FLAGS_tls_cert),
                                 .tls_key = absl::GetFlag(FLAGS_tls_key)},
                                now);
}

// `replaced` is the address of the coordinator that this one has taken the run
// over from, or empty.
absl::Status Run(const std::string& address, const v1::RunConfig& config,
                 const std::string& replaced = "") {
  const Clock now = SteadyWallClock();
  std::shared_ptr<grpc::ServerCredentials> credentials;
  if (!HasOwnAuthority()) {
    // Bad files end the program before the state is touched.
    ASSIGN_OR_RETURN(credentials, MakeServerCredentials(FilesOfFlags(), now()));
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine,
                   Engine::Start({.state_dir = absl::GetFlag(FLAGS_state_dir),
                                  .config = config,
                                  .random = std::random_device{}(),
                                  .now = now,
                                  .merge_threads = MergeThreads(),
                                  .initial_parameters = absl::GetFlag(
                                      FLAGS_initial_parameters)}));
  ASSIGN_OR_RETURN(const std::unique_ptr<Trust> trust,
                   OpenTrust(config, engine.get(), now));
  if (trust != nullptr) {
    ASSIGN_OR_RETURN(credentials,
                     MakeServerCredentials(trust->server_files(), now()));
  }
  CertificateExpiry certificate(trust != nullptr
                                    ? trust->server_files().tls_cert
                                    : FilesOfFlags().tls_cert,
                                now);
  ASSIGN_OR_RETURN(
      const std::unique_ptr<CoordinatorServer> server,
      CoordinatorServer::Start(
          engine.get(),
          {.address = address,
           .now = now,
           .credentials = credentials,
           .client_certificates = ClientsShowCertificates(),
           .check_certificate = CheckOf(trust.get()),
           .certificate = &certificate,
           .trust = trust.get(),
           .max_connections = absl::GetFlag(FLAGS_max_connections)}));
  ASSIGN_OR_RETURN(const std::unique_ptr<HttpServer> metrics,
                   ServeMetrics(server->status(), now));
  ASSIGN_OR_RETURN(const std::unique_ptr<HttpServer> page,
                   ServePage(server->status(), now));
  std::optional<ReplacementNotice> notice;
  if (!replaced.empty()) {
    ASSIGN_OR_RETURN(auto leader_credentials, LeaderCredentials(now()));
    notice.emplace(replaced, std::move(leader_credentials), engine->run_id(),
                   engine->followed().epoch);
  }
  RETURN_IF_ERROR(WritePortFile(server->port()));
  LOG(INFO) << "run " << engine->run_id() << " on port " << server->port()
            << ", waiting for islands";
  if (trust != nullptr) LogHowToJoin(server->port());
  ServiceManager manager(now);
  manager.Ready();

  absl::Time finished_since = absl::InfiniteFuture();
  int signal = 0;
  while ((signal = AwaitTerminationSignal(absl::Milliseconds(200))) == 0) {
    // The answer needs the engine's lock: an engine that hangs feeds no
    // watchdog.
    manager.SetStatus(absl::StrCat("port ", server->port(), ", run ",
                                   v1::RunState_Name(engine->run_state())));
    manager.Alive();
    if (trust != nullptr) trust->Tend();
    if (absl::GetFlag(FLAGS_exit_when_finished) &&
        FinishedAndAlone(*engine, now(), finished_since)) {
      break;
    }
  }
  LOG(INFO) << (signal == 0 ? "the run is finished" : "signal received")
            << "; ending";
  manager.Stopping();
  server->Shutdown(absl::Seconds(2));
  return absl::OkStatus();
}

// Returns the follower's name.
std::string FollowerName() {
  const std::string given = absl::GetFlag(FLAGS_follower_name);
  if (!given.empty()) return given;
  char host[64] = {};
  gethostname(host, sizeof(host) - 1);
  std::string name = absl::AsciiStrToLower(host);
  for (char& c : name) {
    if (!absl::ascii_isalnum(c)) c = '-';
  }
  return name;
}

// Serves a follower until it is promoted, and returns the address and the
// configuration to go on with as the run's coordinator. Returns nothing if a
// signal came.
struct TakenOver {
  std::string address;
  v1::RunConfig config;
};
absl::StatusOr<std::optional<TakenOver>> Follow(const std::string& address) {
  const Clock now = SteadyWallClock();
  ASSIGN_OR_RETURN(const auto leader_credentials, LeaderCredentials(now()));
  ASSIGN_OR_RETURN(auto credentials,
                   MakeServerCredentials(FilesOfFlags(), now()));
  ASSIGN_OR_RETURN(const std::unique_ptr<Follower> follower,
                   Follower::Start({.leader = absl::GetFlag(FLAGS_follow),
                                    .credentials = leader_credentials,
                                    .state_dir = absl::GetFlag(FLAGS_state_dir),
                                    .name = FollowerName(),
                                    .now = now,
                                    .seed = std::random_device{}(),
                                    .merge_threads = MergeThreads()}));
  CertificateExpiry certificate(FilesOfFlags().tls_cert, now);
  std::optional<CertificateRenewer> renewer;
  if (const std::string folder = absl::GetFlag(FLAGS_follow_tls);
      !folder.empty()) {
    renewer.emplace(absl::GetFlag(FLAGS_follow), folder, now,
                    std::random_device{}());
  }
  std::unique_ptr<CoordinatorServer> server;
  ServiceManager manager(now);
  while (AwaitTerminationSignal(absl::Milliseconds(100)) == 0) {
    const Follower::View view = follower->view();
    RETURN_IF_ERROR(view.ended);
    if (view.is_promoted) {
      const int port = server->port();
      server->Shutdown(absl::Seconds(2));
      LOG(INFO) << "taking over run " << view.run_id << ", epoch "
                << view.epoch;
      return TakenOver{absl::StrCat(HostOf(address), ":", port), view.config};
    }
    if (server == nullptr && !view.run_id.empty()) {
      ASSIGN_OR_RETURN(
          server,
          CoordinatorServer::StartFollower(
              follower.get(),
              {.address = address,
               .now = now,
               .credentials = credentials,
               .client_certificates = ClientsShowCertificates(),
               .certificate = &certificate,
               .max_connections = absl::GetFlag(FLAGS_max_connections)}));
      RETURN_IF_ERROR(WritePortFile(server->port()));
      manager.Ready();
    }
    manager.SetStatus(
        absl::StrCat(view.is_connected ? "following " : "waiting for ",
                     absl::GetFlag(FLAGS_follow), ", run ", view.run_id, ", ",
                     view.changes, " of ", view.leader_changes, " changes"));
    manager.Alive();
  }
  LOG(INFO) << "signal received; ending";
  manager.Stopping();
  if (server != nullptr) server->Shutdown(absl::Seconds(2));
  return std::optional<TakenOver>();
}

// Returns whom this state directory took its run over from; nothing if it did
// not. With --promote, takes it over.
absl::StatusOr<std::optional<LeaderRecord>> FindTakenOver() {
  ASSIGN_OR_RETURN(const std::unique_ptr<StateDirectory> state,
                   StateDirectory::Open(absl::GetFlag(FLAGS_state_dir), {}));
  ASSIGN_OR_RETURN(const LeaderRecord leader, state->log().LoadLeader());
  if (leader.address.empty()) return std::nullopt;
  if (leader.is_followed) {
    if (!absl::GetFlag(FLAGS_promote)) return std::nullopt;
    ASSIGN_OR_RETURN(const uint64_t epoch, state->log().TakeOver());
    LOG(INFO) << "taking over from " << leader.address << ", epoch " << epoch;
  }
  return leader;
}

// Runs with --follow or --promote.
absl::Status RunCopy(const std::string& address) {
  const absl::StatusOr<std::optional<LeaderRecord>> before = FindTakenOver();
  if (before.ok() && before->has_value()) {
    return Run(address, (*before)->config, (*before)->address);
  }
  if (absl::GetFlag(FLAGS_follow).empty()) {
    RETURN_IF_ERROR(before.status());
    return absl::FailedPreconditionError(
        absl::StrCat("--promote: ", absl::GetFlag(FLAGS_state_dir),
                     " has no copy of another coordinator's run"));
  }
  ASSIGN_OR_RETURN(const std::optional<TakenOver> taken_over, Follow(address));
  if (!taken_over.has_value()) return absl::OkStatus();
  return Run(taken_over->address, taken_over->config,
             absl::GetFlag(FLAGS_follow));
}

}  // namespace
}  // namespace causeway

int main(int argc, char** argv) {
  constexpr char kProgram[] = "causeway-coordinator";
  // systemd starts the service again after other failures.
  constexpr int kWrongUse = 2;
  const std::vector<std::string> rest = causeway::StartDaemon(
      argc, argv,
      "Holds one training run: merges what islands contribute and serves the "
      "result.\n\n"
      "  causeway-coordinator --config run.textproto --state_dir DIR --tls "
      "auto\n"
      "  causeway-coordinator --follow HOST:PORT --state_dir DIR",
      "server/main.cc");
  // Protobuf would log each request with a text that is not UTF-8.
  google::protobuf::SetLogHandler(nullptr);
  if (!rest.empty()) {
    return causeway::UsageError(
        kProgram, absl::StrCat("unknown argument \"", rest[0], "\""));
  }
  const bool has_copy =
      !absl::GetFlag(FLAGS_follow).empty() || absl::GetFlag(FLAGS_promote);
  if ((absl::GetFlag(FLAGS_config).empty() && !has_copy) ||
      absl::GetFlag(FLAGS_state_dir).empty()) {
    return causeway::UsageError(kProgram,
                                "--config and --state_dir are needed");
  }
  const std::string problem = causeway::TlsProblem();
  if (!problem.empty()) return causeway::UsageError(kProgram, problem);
  const absl::StatusOr<std::string> address = causeway::ListenAddress();
  if (!address.ok()) {
    return causeway::UsageError(kProgram, address.status().message());
  }
  if (has_copy) {
    return causeway::ExitCode(kProgram, causeway::RunCopy(*address));
  }
  const absl::StatusOr<causeway::v1::RunConfig> config =
      causeway::LoadRunConfig(absl::GetFlag(FLAGS_config));
  if (!config.ok()) {
    causeway::ExitCode(kProgram, config.status());
    return kWrongUse;
  }
  return causeway::ExitCode(kProgram, causeway::Run(*address, *config));
}
