// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/lead.h"

#include <unistd.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "common/http/http_server.h"
#include "common/metrics/metric_families.h"
#include "common/metrics/metrics_server.h"
#include "common/os/daemon.h"
#include "common/os/file.h"
#include "common/os/service_manager.h"
#include "common/status_macros.h"
#include "common/transport/certificate_expiry.h"
#include "common/transport/credentials.h"
#include "common/transport/grpc_time.h"
#include "common/transport/keepalive.h"
#include "common/transport/listening_sockets.h"
#include "common/transport/socket_address.h"
#include "glog/logging.h"
#include "grpcpp/grpcpp.h"
#include "proto/replication.grpc.pb.h"
#include "proto/replication.pb.h"
#include "server/edge/access.h"
#include "server/edge/server.h"
#include "server/election/electorate.h"
#include "server/engine.h"
#include "server/page/page_handlers.h"
#include "server/replication/copy_stream.h"
#include "server/replication/log_feed.h"
#include "server/rules/coordinator.h"
#include "server/status_metrics.h"
#include "server/trust/revoked.h"
#include "server/trust/trust.h"

namespace causeway {
namespace {

// The time for which islands may fetch the last update before the process ends.
constexpr absl::Duration kFarewell = absl::Seconds(30);
// The time that calls under way get to end.
constexpr absl::Duration kCallsFarewell = absl::Seconds(2);

// Repeatedly tells a replaced coordinator, which may come back at any time,
// that it was replaced, so that it stands down.
class ReplacementNotice {
 public:
  // Starts telling the coordinator at `address` that `source` replaces it.
  ReplacementNotice(const std::string& address,
                    std::shared_ptr<grpc::ChannelCredentials> credentials,
                    const FollowedSource& source)
      : address_(address), credentials_(std::move(credentials)) {
    v1::FollowRequest::Hello& hello = *request_.mutable_hello();
    hello.set_name("successor");
    hello.set_run_id(source.run_id);
    hello.set_epoch(source.epoch);
    thread_ = std::thread([this] { Loop(); });
  }

  ~ReplacementNotice() {
    stop_.Notify();
    thread_.join();
  }

 private:
  static constexpr absl::Duration kPause = absl::Seconds(2);
  static constexpr absl::Duration kTimeout = absl::Seconds(2);

  void Loop() {
    do {
      const grpc::Status told = Tell();
      VLOG(1) << "the previous coordinator answers: " << told.error_message();
    } while (!stop_.WaitForNotificationWithTimeout(kPause));
  }

  grpc::Status Tell() {
    if (channel_ == nullptr || channel_->GetState(/*try_to_connect=*/false) ==
                                   GRPC_CHANNEL_TRANSIENT_FAILURE) {
      // A new channel looks the name up at once. After look-ups that have
      // failed, gRPC pauses for up to two minutes.
      channel_ = grpc::CreateCustomChannel(address_, credentials_,
                                           LastingChannelArguments());
    }
    grpc::ClientContext context;
    context.set_deadline(FromNow(kTimeout));
    const auto stream = v1::Replication::NewStub(channel_)->Follow(&context);
    v1::FollowResponse response;
    if (stream->Write(request_)) stream->Read(&response);
    // A coordinator that sends has not understood the notice.
    context.TryCancel();
    return stream->Finish();
  }

  const std::string address_;
  const std::shared_ptr<grpc::ChannelCredentials> credentials_;
  std::shared_ptr<grpc::Channel> channel_;
  v1::FollowRequest request_;
  absl::Notification stop_;
  std::thread thread_;
};

bool FinishedAndAlone(Engine& engine, absl::Time now, absl::Time& since) {
  if (engine.run_state() != v1::FINISHED) return false;
  if (since == absl::InfiniteFuture()) since = now;
  return engine.ListIslands(false).islands_size() == 0 ||
         now - since > kFarewell;
}

// Returns null if the coordinator has no authority of its own. What the leaders
// that were followed had revoked is `kept`.
absl::StatusOr<std::unique_ptr<Trust>> OpenTrust(
    const ServeOptions& options, const std::string& run,
    const v1::RevokedCertificates& kept, Engine* engine) {
  const std::string folder = absl::StrCat(options.state_dir, "/tls");
  if (!options.has_own_authority) {
    LOG_IF(WARNING,
           options.files.tls_cert.empty() && access(folder.c_str(), F_OK) == 0)
        << folder
        << " has the authority of --tls auto, but this coordinator "
           "was started without that flag: it speaks plain text, and refuses "
           "islands and operators that use TLS";
    return nullptr;
  }
  return Trust::Open(
      {.folder = folder,
       .run = run,
       .certificate_life = options.certificate_life,
       .now = options.wall_clock,
       .record =
           [engine](const CoordinatorEvent& event) { engine->Record(event); },
       .revoked =
           [feed = engine->followed().feed](v1::RevokedCertificates revoked) {
             feed->SetRevoked(std::move(revoked));
           },
       .kept = kept});
}

using CertificateCheck = std::function<absl::Status(const ClientCertificate&)>;

// Returns null if no certificate is known to be revoked. `trust` may be null;
// then what the leaders that were followed had revoked, `kept`, stays so, also
// for this one's followers.
CertificateCheck CheckOf(const Trust* trust,
                         const v1::RevokedCertificates& kept, LogFeed& feed) {
  if (trust != nullptr) {
    return [trust](const ClientCertificate& certificate) {
      return trust->Check(certificate.serial);
    };
  }
  if (kept.ids().empty()) return nullptr;
  feed.SetRevoked(kept);
  return [kept](const ClientCertificate& certificate) {
    return CheckNotRevoked(kept, certificate.serial);
  };
}

void LogHowToJoin(const std::string& state_dir, int port) {
  LOG(INFO) << "TLS with an authority of its own; operators on this machine "
               "use --coordinator 127.0.0.1:"
            << port << " --tls " << state_dir << "/tls/operator";
  LOG(INFO) << "to let an island in: causeway token create --island NAME "
               "--coordinator 127.0.0.1:"
            << port << " --tls " << state_dir << "/tls/operator";
}

// Returns null if no metrics were asked for.
absl::StatusOr<std::unique_ptr<HttpServer>> ServeMetrics(
    const ServeOptions& options, const CoordinatorServer& server) {
  return StartMetricsServer(
      options.metrics_listen, options.now,
      [&server] {
        return server.is_open() ? absl::OkStatus()
                                : absl::UnavailableError(
                                      "not open to islands: followers lack "
                                      "changes that this coordinator's log had "
                                      "at its start, or another coordinator "
                                      "leads the run");
      },
      [&status = server.status(), now = options.now,
       add = options.add_metrics](MetricFamilies& families) {
        const v1::RunStatus run = status.GetRun();
        AddStatus(run, status.ListIslands(true), status.engine->ListFragments(),
                  now(), families);
        AddLeads(run.config().name(), status.engine->CheckInOffice().ok(),
                 families);
        if (add != nullptr) add(families);
      });
}

// Asks etcd for the electorate's change, and blocks until etcd answers.
void Tend(Electorate& electorate, Election& election) {
  const std::optional<v1::Office> next = electorate.Next(election.office());
  if (!next.has_value()) return;
  const absl::Status changed = election.Change(*next);
  LOG_IF_EVERY_N(WARNING, !changed.ok(), 20)
      << "cannot record in etcd which followers are in sync: " << changed;
  if (changed.ok()) electorate.NoteMade();
}

// Tells the engine what is wrong with etcd, and whether it was replaced.
void HeedElection(const Election& election, Engine& engine) {
  engine.NoteEtcd(election.Problem());
  const uint64_t epoch = election.ReplacedBy();
  if (epoch == 0) return;
  const absl::Status stood_down = engine.StandDown(epoch);
  LOG_IF(WARNING, !stood_down.ok()) << stood_down;
}

// Describes the state of a run whose coordinator has just started. A running
// one waits for its islands to come back.
std::string StateAtStart(v1::RunState state) {
  if (state == v1::RUNNING) state = v1::WAITING_FOR_ISLANDS;
  return absl::AsciiStrToLower(
      absl::StrReplaceAll(v1::RunState_Name(state), {{"_", " "}}));
}

// Does the recurring work of a leading coordinator until it ends. `trust` may
// be null; `election` and `electorate` are both null or both there.
LeadEnd ServeUntilEnd(const ServeOptions& options, Engine& engine, int port,
                      Trust* trust, Election* election,
                      Electorate* electorate) {
  ServiceManager& manager = *options.manager;
  const ServiceManager::Phase serving(&manager, /*is_busy=*/false);
  manager.Ready();

  LeadEnd end = LeadEnd::kStopped;
  absl::Time finished_since = absl::InfiniteFuture();
  int signal = 0;
  while ((signal = AwaitTerminationSignal(absl::Milliseconds(200))) == 0) {
    // run_state() takes the engine's lock, so an engine that hangs shows no
    // life to the watchdog and the election.
    manager.SetStatus(absl::StrCat("port ", port, ", run ",
                                   v1::RunState_Name(engine.run_state())));
    manager.Alive();
    if (election != nullptr) election->Alive();
    if (trust != nullptr) trust->Tend();
    if (election != nullptr) HeedElection(*election, engine);
    if (options.end_when_replaced && !engine.CheckInOffice().ok()) {
      end = LeadEnd::kReplaced;
      break;
    }
    if (electorate != nullptr) Tend(*electorate, *election);
    if (options.exit_when_finished &&
        FinishedAndAlone(engine, options.now(), finished_since)) {
      break;
    }
  }
  LOG(INFO) << (end == LeadEnd::kReplaced ? "another coordinator leads the run"
                : signal == 0             ? "the run is finished"
                                          : "signal received")
            << "; ending";
  // A replaced coordinator continues in this process as a follower, which the
  // service manager would kill after Stopping().
  if (end == LeadEnd::kStopped) manager.Stopping();
  return end;
}

// Ends all calls, and resigns. A call that copies the log may take minutes to
// end, and the next leader does not wait for it. That loses nothing, because
// the cancelled calls bring no acknowledgements, without which no version that
// the next leader lacks is published (server/election/office.h).
void EndOffice(CoordinatorServer& server, Election* election) {
  absl::Notification ended;
  std::thread ending([&] {
    server.Shutdown(kCallsFarewell);
    ended.Notify();
  });
  ended.WaitForNotificationWithTimeout(2 * kCallsFarewell);
  if (election != nullptr) election->Resign();
  ending.join();
}

}  // namespace

absl::Status CheckAddresses(const ServeOptions& options) {
  std::vector<ListeningSockets> sockets;
  for (const auto& [flag, address] :
       {std::pair("--listen", options.address),
        std::pair("--metrics_listen", options.metrics_listen),
        std::pair("--http_listen", options.http_listen)}) {
    if (address.empty()) continue;
    absl::StatusOr<ListeningSockets> opened = ListeningSockets::Open(address);
    if (!opened.ok()) {
      return absl::Status(opened.status().code(),
                          absl::StrCat(flag, ": ", opened.status().message()));
    }
    sockets.push_back(*std::move(opened));
  }
  return absl::OkStatus();
}

absl::Status WritePortFile(const ServeOptions& options, int port) {
  if (options.port_file.empty()) return absl::OkStatus();
  const std::string text = absl::StrCat(port, "\n");
  return WriteFileAtomically(options.port_file, {absl::string_view(text)});
}

absl::StatusOr<std::unique_ptr<HttpServer>> ServePage(
    const ServeOptions& options, const PageSource& source) {
  const std::string& address = options.http_listen;
  if (address.empty()) return nullptr;
  std::vector<std::string> hosts = options.http_hosts;
  for (std::string& host : hosts) absl::AsciiStrToLower(&host);
  ASSIGN_OR_RETURN(
      std::unique_ptr<HttpServer> server,
      HttpServer::Start({.address = address,
                         .ready = [] { return absl::OkStatus(); },
                         .handlers = PageHandlers(source, options.now),
                         .now = options.now,
                         .hosts = std::move(hosts),
                         .threads = kPageThreads}));
  LOG(INFO) << "the run's page is http://" << HostOf(address) << ":"
            << server->port() << "/";
  LOG_IF(WARNING, !IsLoopback(address))
      << "anyone who can reach --http_listen " << address << " can see the run";
  return server;
}

absl::StatusOr<LeadEnd> Lead(const ServeOptions& options,
                             const v1::RunConfig& config,
                             const std::string& replaced, Election* election,
                             OpenedRun opened) {
  const Clock& now = options.now;
  RETURN_IF_ERROR(CheckAddresses(options));
  std::shared_ptr<grpc::ServerCredentials> credentials;
  if (!options.has_own_authority) {
    // Check the files before the state is touched.
    ASSIGN_OR_RETURN(credentials, MakeServerCredentials(options.files,
                                                        options.wall_clock()));
  }
  ASSIGN_OR_RETURN(
      const std::unique_ptr<Engine> engine,
      Engine::Start({.state_dir = options.state_dir,
                     .config = config,
                     .random = options.random(),
                     .now = now,
                     .merge_threads = options.merge_threads,
                     .evictable_state = options.evictable_state,
                     .drain_slow_after = options.drain_slow_after,
                     .initial_parameters = options.initial_parameters,
                     .is_elected = election != nullptr},
                    std::move(opened)));
  std::optional<Electorate> electorate;
  if (election != nullptr) {
    electorate.emplace(election->office(), options.name, engine->run_id(),
                       engine->followed().feed);
  }
  ASSIGN_OR_RETURN(const v1::RevokedCertificates kept,
                   ReadRevoked(options.state_dir));
  ASSIGN_OR_RETURN(const std::unique_ptr<Trust> trust,
                   OpenTrust(options, config.name(), kept, engine.get()));
  if (trust != nullptr) {
    ASSIGN_OR_RETURN(credentials, MakeServerCredentials(trust->server_files(),
                                                        trust->Now()));
  }
  CertificateCheck check_certificate =
      CheckOf(trust.get(), kept, *engine->followed().feed);
  CertificateExpiry certificate(trust != nullptr
                                    ? trust->server_files().tls_cert
                                    : options.files.tls_cert,
                                options.wall_clock);
  CertificateWatch watch(&certificate);
  ASSIGN_OR_RETURN(
      const std::unique_ptr<CoordinatorServer> server,
      CoordinatorServer::Start(
          engine.get(),
          {.address = options.address,
           .now = now,
           .wall_clock = options.wall_clock,
           .region = options.region,
           .credentials = credentials,
           .client_certificates = options.ClientsShowCertificates(),
           .check_certificate = std::move(check_certificate),
           .certificate = &certificate,
           .trust = trust.get(),
           .max_connections = options.max_connections}));
  ASSIGN_OR_RETURN(const std::unique_ptr<HttpServer> metrics,
                   ServeMetrics(options, *server));
  ASSIGN_OR_RETURN(const std::unique_ptr<HttpServer> page,
                   ServePage(options, PageOf(server->status())));
  std::optional<ReplacementNotice> notice;
  if (!replaced.empty()) {
    auto peer_credentials =
        MakeChannelCredentials(options.peer_files, options.wall_clock());
    if (peer_credentials.ok()) {
      notice.emplace(replaced, *std::move(peer_credentials),
                     engine->followed());
    } else {
      // The certificate may have expired since the takeover.
      LOG(WARNING) << "cannot tell the coordinator at " << replaced
                   << " that it was replaced: " << peer_credentials.status();
    }
  }
  RETURN_IF_ERROR(WritePortFile(options, server->port()));
  LOG(INFO) << "run " << engine->run_id() << " on port " << server->port()
            << ", " << StateAtStart(engine->run_state());
  if (trust != nullptr) LogHowToJoin(options.state_dir, server->port());
  const LeadEnd end =
      ServeUntilEnd(options, *engine, server->port(), trust.get(), election,
                    electorate.has_value() ? &*electorate : nullptr);
  // The next leader does not wait for the engine's last snapshots either.
  EndOffice(*server, election);
  return end;
}

}  // namespace causeway
