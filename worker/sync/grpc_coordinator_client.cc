// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/sync/grpc_coordinator_client.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/status_macros.h"
#include "common/transport/chunk_message.h"
#include "common/transport/coordinator_target.h"
#include "common/transport/field_limits.h"
#include "common/transport/grpc_status.h"
#include "common/transport/grpc_time.h"
#include "common/transport/reachability.h"
#include "common/transport/tcp_connections.h"
#include "glog/logging.h"
#include "grpcpp/grpcpp.h"
#include "proto/coordinator.grpc.pb.h"
#include "worker/sync/bulk_lanes.h"
#include "worker/sync/bulk_transfers.h"
#include "worker/sync/call_group.h"
#include "worker/sync/leader_watch.h"

namespace causeway {
namespace {

// The time that a session waits for its connection before it fails with the
// reason.
constexpr absl::Duration kConnectWait = absl::Seconds(2);

// The least time between attempts to resolve the names of coordinators.
constexpr absl::Duration kResolvePause = absl::Seconds(10);

// The time for which TCP's figures on the connections are reported again,
// because asking for them takes time for each open file of the process.
constexpr absl::Duration kFiguresAge = absl::Seconds(10);

// Waits a moment for the channel to connect, however many tries that takes.
void AwaitConnection(grpc::Channel& channel) {
  channel.WaitForConnected(FromNow(kConnectWait));
}

// The coordinator refuses requests with texts that are too long.
template <typename Request>
Request WithCutTexts(Request request) {
  CutTexts(request);
  return request;
}

class GrpcControlStream : public ControlStream {
 public:
  // Calls `answered` with the coordinator's address when it has answered.
  GrpcControlStream(std::shared_ptr<grpc::Channel> channel, CallGroup* calls,
                    std::function<void(std::string)> answered)
      : stub_(std::move(channel)),
        lane_(calls, absl::InfiniteDuration(), stub_,
              absl::StrCat("/", v1::Coordinator::service_full_name(),
                           "/Session")),
        answered_(std::move(answered)) {}

  bool Write(const v1::SessionRequest& request) override {
    return lane_.stream().Write(ToByteBuffer(WithCutTexts(request)));
  }
  bool Read(v1::SessionResponse* response) override {
    grpc::ByteBuffer message;
    if (!lane_.stream().Read(&message)) return false;
    malformed_ = ParseByteBuffer(message, *response);
    if (!malformed_.ok()) {
      Cancel();
      return false;
    }
    if (answered_ != nullptr) {
      answered_(PeerAddress(lane_.context().peer()));
      answered_ = nullptr;
    }
    return true;
  }
  absl::Status Finish() override {
    const absl::Status status = FromGrpcStatus(lane_.stream().Finish());
    return malformed_.ok() ? status : malformed_;
  }
  void Cancel() override { lane_.context().TryCancel(); }

 private:
  grpc::GenericStub stub_;
  BulkLane lane_;
  std::function<void(std::string)> answered_;
  // The error of a malformed message, which ended the stream.
  absl::Status malformed_;
};

class GrpcCoordinatorClient : public CoordinatorClient {
 public:
  explicit GrpcCoordinatorClient(const GrpcCoordinatorClientOptions& options)
      : GrpcCoordinatorClient(options, CoordinatorTarget(options.address)) {}

  absl::StatusOr<v1::JoinResponse> Join(
      const v1::JoinRequest& request) override {
    bulk_.Connect();
    AwaitTry(*ControlChannel());
    FindCoordinators();
    const auto channel = ControlChannel();
    GroupedCall call(&calls_, CallTimeout(options_, 0));
    v1::JoinResponse response;
    const grpc::Status status = v1::Coordinator::NewStub(channel)->Join(
        &call.context(), WithCutTexts(request), &response);
    // An island that was a member keeps trying, because it has training to
    // contribute.
    RETURN_IF_ERROR(request.expected_run_id().empty()
                        ? ExplainCall(options_.address, options_.tls, status)
                        : CallStatus(CoordinatorName(options_), status));
    NoteCoordinator(PeerAddress(call.context().peer()));
    return response;
  }

  std::unique_ptr<ControlStream> OpenSession() override {
    AwaitConnection(*ControlChannel());
    FindCoordinators();
    const auto channel = ControlChannel();
    return std::make_unique<GrpcControlStream>(
        channel, &calls_,
        [this](std::string peer) { NoteCoordinator(std::move(peer)); });
  }

  absl::StatusOr<v1::ContributeResponse> Contribute(
      v1::ContributionHeader header, StreamedEncoding& encoding,
      absl::FunctionRef<void()> sent) override {
    const absl::Duration least = Connections().least_round_trip;
    return bulk_.Contribute(
        std::move(header), encoding,
        least < absl::InfiniteDuration() ? least : absl::ZeroDuration(), sent);
  }

  std::unique_ptr<UpdateStream> FetchUpdate(
      const v1::FetchUpdateRequest& request, uint64_t max_bytes,
      const UpdateDownload& download) override {
    return bulk_.FetchUpdate(request, max_bytes, download);
  }

  absl::Status FetchParameters(const v1::FetchParametersRequest& request,
                               uint64_t max_bytes,
                               ParametersDownload& download) override {
    return bulk_.FetchParameters(request, max_bytes, download);
  }

  absl::Status Leave(const v1::LeaveRequest& request) override {
    grpc::ClientContext context;
    context.set_deadline(FromNow(absl::Seconds(5)));
    v1::LeaveResponse response;
    return CallStatus(CoordinatorName(options_),
                      v1::Coordinator::NewStub(ControlChannel())
                          ->Leave(&context, WithCutTexts(request), &response));
  }

  void Shutdown() override { calls_.Cancel(); }

  uint64_t bytes_up() const override { return bulk_.bytes_up(); }
  uint64_t bytes_down() const override { return bulk_.bytes_down(); }

  void ReportLinks(v1::IslandProgress& progress) const override {
    const OwnConnections connections = Connections();
    *progress.mutable_uplink() = bulk_.UplinkUse();
    progress.mutable_uplink()->set_tcp_bytes_retransmitted(
        connections.retransmitted);
    *progress.mutable_downlink() = bulk_.DownlinkUse();
    if (connections.round_trip < absl::InfiniteDuration()) {
      progress.set_round_trip_seconds(
          absl::ToDoubleSeconds(connections.round_trip));
    }
  }

 private:
  GrpcCoordinatorClient(const GrpcCoordinatorClientOptions& options,
                        CoordinatorTarget target)
      : options_(options),
        bulk_(options, NewChannels(options, target, options.bulk_connections),
              &calls_),
        control_channel_(NewChannels(options, target, 1).front()),
        target_(std::move(target)) {
    Watch();
  }

  // Looks for another coordinator that leads, if several are known.
  void Watch() {
    watch_.reset();
    auto addresses =
        Target().ConnectEach(options_.credentials, ChannelArgumentsOfIsland());
    if (addresses.empty()) return;
    watch_.emplace(std::move(addresses),
                   [this](const std::string& address, bool beside_another) {
                     if (beside_another) GoOver(address);
                   });
  }

  CoordinatorTarget Target() const {
    absl::MutexLock lock(&mu_);
    return target_;
  }

  // Resolves the names of coordinators anew while none of them answers. Called
  // by the thread that joins and opens sessions.
  void FindCoordinators() {
    if (ControlChannel()->GetState(/*try_to_connect=*/false) ==
            GRPC_CHANNEL_READY ||
        options_.now() < resolve_at_) {
      return;
    }
    const CoordinatorTarget before = Target();
    const CoordinatorTarget found = before.Again();
    resolve_at_ = options_.now() + kResolvePause;
    if (found.uri() == before.uri()) {
      if (!found.IsName()) return;
      // New channels look the name up at once; old ones pause for up to two
      // minutes after failed look-ups. Transfers under way continue.
      ReplaceChannels();
      AwaitConnection(*ControlChannel());
      return;
    }
    LOG(WARNING) << "the coordinators at " << options_.address
                 << " have other addresses now: " << found.uri();
    {
      absl::MutexLock lock(&mu_);
      target_ = found;
    }
    ConnectAnew();
    Watch();
    AwaitConnection(*ControlChannel());
  }

  std::shared_ptr<grpc::Channel> ControlChannel() const {
    absl::MutexLock lock(&mu_);
    return control_channel_;
  }

  // Leaves the previous coordinator, which does not answer, for the one at
  // `address`: new channels connect only to coordinators that answer.
  void GoOver(const std::string& address) {
    LOG(WARNING) << "the coordinator at " << address
                 << " leads the run now; leaving the previous one";
    ConnectAnew();
  }

  void ConnectAnew() {
    ReplaceChannels();
    calls_.CancelAll();
  }

  void ReplaceChannels() {
    const CoordinatorTarget target = Target();
    auto control = NewChannels(options_, target, 1).front();
    {
      absl::MutexLock lock(&mu_);
      control_channel_.swap(control);
    }
    bulk_.Replace(NewChannels(options_, target, options_.bulk_connections));
  }

  void NoteCoordinator(std::string peer) {
    absl::MutexLock lock(&mu_);
    coordinator_ = std::move(peer);
    figures_until_ = absl::InfinitePast();
  }

  // TCP's figures on the connections to the coordinator.
  struct OwnConnections {
    uint64_t retransmitted = 0;
    // The smallest round trips.
    absl::Duration round_trip = absl::InfiniteDuration();
    absl::Duration least_round_trip = absl::InfiniteDuration();
  };

  OwnConnections Connections() const {
    const absl::Time now = options_.now();
    std::string coordinator;
    {
      absl::MutexLock lock(&mu_);
      if (now < figures_until_) return figures_;
      coordinator = coordinator_;
    }
    OwnConnections own;
    for (const TcpConnection& connection : OpenTcpConnections()) {
      if (connection.peer != coordinator) continue;
      own.retransmitted += connection.bytes_retransmitted;
      own.round_trip = std::min(own.round_trip, connection.round_trip);
      own.least_round_trip =
          std::min(own.least_round_trip, connection.least_round_trip);
    }
    absl::MutexLock lock(&mu_);
    if (own.round_trip < absl::InfiniteDuration() &&
        coordinator == coordinator_) {
      figures_ = own;
      figures_until_ = now + kFiguresAge;
    }
    return own;
  }

  const GrpcCoordinatorClientOptions options_;
  CallGroup calls_;
  BulkTransfers bulk_;

  mutable absl::Mutex mu_;
  std::shared_ptr<grpc::Channel> control_channel_ ABSL_GUARDED_BY(mu_);
  CoordinatorTarget target_ ABSL_GUARDED_BY(mu_);
  // The address at the other end of the connections; empty before the join.
  std::string coordinator_ ABSL_GUARDED_BY(mu_);
  // The figures on these connections, reported until figures_until_.
  mutable OwnConnections figures_ ABSL_GUARDED_BY(mu_);
  mutable absl::Time figures_until_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();

  // The earliest time to resolve names again.
  absl::Time resolve_at_ = absl::InfinitePast();
  // Destroyed first, because it uses everything else.
  std::optional<LeaderWatch> watch_;
};

}  // namespace

std::unique_ptr<CoordinatorClient> NewGrpcCoordinatorClient(
    const GrpcCoordinatorClientOptions& options) {
  return std::make_unique<GrpcCoordinatorClient>(options);
}

}  // namespace causeway
