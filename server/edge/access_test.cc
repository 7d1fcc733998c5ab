// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Tests which callers may call which methods, over real connections with real
// certificates. A gRPC client learns only from its first call that TLS 1.3
// refused it, so the tests make calls.
#include "server/edge/access.h"

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "common/os/file.h"
#include "common/testing/status_matchers.h"
#include "common/transport/credentials.h"
#include "common/transport/grpc_status.h"
#include "common/transport/testing/certificates.h"
#include "gmock/gmock.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "proto/control.grpc.pb.h"
#include "proto/coordinator.grpc.pb.h"
#include "proto/status.grpc.pb.h"
#include "server/edge/testing/served_engine.h"

namespace causeway {
namespace {

using absl::StatusCode;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::MessageFactory;
using google::protobuf::ServiceDescriptor;
using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;

// A method and a serialized request.
struct Cell {
  std::string service;
  std::string method;
  std::string request;
};

// Names the island wherever `message` or its identity names one.
void NameIsland(const std::string& island, Message& message) {
  const auto& reflection = *message.GetReflection();
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor& field = *message.GetDescriptor()->field(i);
    if (field.name() == "island_id") {
      reflection.SetString(&message, &field, island);
    } else if (field.name() == "identity" || field.name() == "header") {
      NameIsland(island, *reflection.MutableMessage(&message, &field));
    } else if (field.name() == "recorded_only") {
      reflection.SetBool(&message, &field, true);
    }
  }
}

// Returns all methods, with requests that name this island.
std::vector<Cell> Cells(const std::string& island) {
  std::vector<Cell> cells;
  for (const ServiceDescriptor* const described :
       {v1::JoinRequest::descriptor()->file()->service(0),
        v1::GetRunRequest::descriptor()->file()->service(0),
        v1::PauseRunRequest::descriptor()->file()->service(0)}) {
    const ServiceDescriptor& service = *described;
    for (int i = 0; i < service.method_count(); ++i) {
      const std::unique_ptr<Message> request(
          MessageFactory::generated_factory()
              ->GetPrototype(service.method(i)->input_type())
              ->New());
      NameIsland(island, *request);
      cells.push_back({service.name(),
                       absl::StrCat("/", service.full_name(), "/",
                                    service.method(i)->name()),
                       request->SerializeAsString()});
    }
  }
  v1::ContributeRequest lane;
  lane.mutable_lane()->mutable_identity()->set_island_id(island);
  cells.push_back({"Coordinator", "/causeway.v1.Coordinator/Contribute",
                   lane.SerializeAsString()});
  return cells;
}

// Sends one request, and reads answers to the end.
class OneRequest
    : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  explicit OneRequest(const std::string& request) : slice_(request) {}

  absl::Status Run() {
    StartWriteLast(&sent_, {});
    StartRead(&received_);
    StartCall();
    done_.WaitForNotification();
    return FromGrpcStatus(end_);
  }

 private:
  void OnReadDone(bool ok) override {
    if (ok) StartRead(&received_);
  }
  void OnDone(const grpc::Status& end) override {
    end_ = end;
    done_.Notify();
  }

  const grpc::Slice slice_;
  const grpc::ByteBuffer sent_{&slice_, 1};
  grpc::ByteBuffer received_;
  grpc::Status end_;
  absl::Notification done_;
};

class AccessTest : public testing::Test {
 protected:
  using Channel = std::shared_ptr<grpc::Channel>;

  void SetUp() override { ASSERT_OK(driver_.Start(TestRunConfig())); }
  void TearDown() override { driver_.StopServing(); }

  // Starts a coordinator that asks for clients' certificates. If they are
  // `required`, it closes connections without one.
  void Start(bool required = true, int max_connections = 0) {
    const TestIdentity identity = authority_.Sign(kHost, valid_);
    std::shared_ptr<grpc::ServerCredentials> credentials;
    if (required) {
      ASSERT_OK_AND_ASSIGN(
          credentials,
          MakeServerCredentials({.tls_cert = identity.certificate,
                                 .tls_key = identity.key,
                                 .tls_client_ca = authority_.certificate()},
                                start_));
    } else {
      grpc::SslServerCredentialsOptions options(
          GRPC_SSL_REQUEST_CLIENT_CERTIFICATE_AND_VERIFY);
      options.pem_root_certs = *ReadFile(authority_.certificate());
      options.pem_key_cert_pairs.push_back(
          {*ReadFile(identity.key), *ReadFile(identity.certificate)});
      credentials = grpc::SslServerCredentials(options);
    }
    const auto now = [this] {
      return absl::Now() + absl::Seconds(ahead_.load());
    };
    ASSERT_OK(driver_.Serve({.now = now,
                             .wall_clock = now,
                             .credentials = credentials,
                             .client_certificates = true,
                             .check_certificate =
                                 [this](const ClientCertificate& certificate) {
                                   absl::MutexLock lock(&mu_);
                                   seen_ = certificate;
                                   return revoked_ ? absl::UnauthenticatedError(
                                                         "revoked")
                                                   : absl::OkStatus();
                                 },
                             .max_connections = max_connections}));
  }

  static std::string Path(const std::string& name) {
    return absl::StrCat(testing::TempDir(), "/", name);
  }
  static std::string Uri(Role role, const std::string& name,
                         const std::string& run = "test") {
    return FormatUri({role, run, name});
  }

  // Returns a connection with a certificate for these names, or without one if
  // `names` is empty.
  Channel Connect(const std::string& names) {
    if (names.empty()) return Connect(TestIdentity());
    return Connect(authority_.Sign(names, valid_));
  }
  Channel Connect(const TestIdentity& identity) {
    const auto credentials =
        MakeChannelCredentials({.tls_ca = authority_.certificate(),
                                .tls_cert = identity.certificate,
                                .tls_key = identity.key},
                               identity_made_);
    EXPECT_OK(credentials);
    grpc::ChannelArguments arguments;
    arguments.SetSslTargetNameOverride(kHost);
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    return grpc::CreateCustomChannel(driver_.address(), *credentials,
                                     arguments);
  }

  // Sends one request and returns how the call ends.
  static absl::Status Call(const Channel& channel, const std::string& method,
                           const std::string& request = "") {
    grpc::GenericStub stub(channel);
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(20)));
    OneRequest call(request);
    stub.PrepareBidiStreamingCall(&context, method, {}, &call);
    return call.Run();
  }

  // Returns the texts of the run's events of this kind.
  std::vector<std::string> Texts(const std::string& kind) {
    std::vector<std::string> texts;
    const auto events = driver_.engine().log().EventsAfter(0, 1000);
    EXPECT_OK(events);
    for (const v1::Event& event : *events) {
      if (event.kind() == kind) texts.push_back(event.text());
    }
    return texts;
  }

  static constexpr char kHost[] = "coordinator.example";
  static constexpr char kPause[] = "/causeway.v1.Control/PauseRun";
  const absl::Time start_ = absl::Now();
  const Validity valid_ = {start_ - absl::Hours(1), start_ + absl::Hours(1)};
  // The time at which clients check their certificates.
  absl::Time identity_made_ = start_;
  TestAuthority authority_{Path("authority"), valid_};
  ServedEngine driver_;
  // The seconds that the coordinator's clock is ahead.
  std::atomic<int64_t> ahead_ = 0;
  absl::Mutex mu_;
  ClientCertificate seen_ ABSL_GUARDED_BY(mu_);
  bool revoked_ ABSL_GUARDED_BY(mu_) = false;
};

// The results of one caller's calls.
struct Row {
  std::string names;
  StatusCode coordinator;
  StatusCode status;
  StatusCode control;
};

// Stands for every code of an admitted call.
constexpr StatusCode kServed = StatusCode::kOk;
constexpr StatusCode kDenied = StatusCode::kPermissionDenied;
constexpr StatusCode kUnknown = StatusCode::kUnauthenticated;
constexpr StatusCode kCutOff = StatusCode::kUnavailable;

void ExpectRow(const Row& row, const std::shared_ptr<grpc::Channel>& channel,
               absl::Status (*call)(const std::shared_ptr<grpc::Channel>&,
                                    const std::string&, const std::string&)) {
  for (const Cell& cell : Cells("a")) {
    const StatusCode expected = cell.service == "Coordinator" ? row.coordinator
                                : cell.service == "Control"   ? row.control
                                                              : row.status;
    const absl::Status status = call(channel, cell.method, cell.request);
    const bool refused =
        status.code() == kDenied || status.code() == kUnknown ||
        status.code() == kCutOff || status.code() == StatusCode::kUnimplemented;
    EXPECT_EQ(refused ? status.code() : kServed, expected)
        << row.names << " calls " << cell.method << ": " << status;
  }
}

TEST_F(AccessTest, EveryCellOfTheTable) {
  Start();
  const std::string island = Uri(Role::kIsland, "a");
  for (const Row& row : std::vector<Row>{
           {island, kServed, kServed, kDenied},
           {"a.island.test.causeway", kServed, kServed, kDenied},
           {"host.example,a.island.test.causeway," + island, kServed, kServed,
            kDenied},
           {Uri(Role::kIsland, "b"), kDenied, kServed, kDenied},
           {"b.island.test.causeway", kDenied, kServed, kDenied},
           {Uri(Role::kOperator, "a"), kDenied, kServed, kServed},
           {"a.operator.test.causeway", kDenied, kServed, kServed},
           {Uri(Role::kViewer, "a"), kDenied, kServed, kDenied},
           {"a.viewer.test.causeway", kDenied, kServed, kDenied},
           {Uri(Role::kCoordinator, "a"), kDenied, kDenied, kDenied},
           {"coordinator.test.causeway", kDenied, kDenied, kDenied},
           {Uri(Role::kIsland, "a", "other"), kDenied, kDenied, kDenied},
           {Uri(Role::kOperator, "a", "other"), kDenied, kDenied, kDenied},
           {"island-a", kUnknown, kUnknown, kUnknown},
           {island + ",b.island.test.causeway", kUnknown, kUnknown, kUnknown},
           {island + ",a.root.test.causeway", kUnknown, kUnknown, kUnknown},
           {"", kCutOff, kCutOff, kCutOff}}) {
    ExpectRow(row, Connect(row.names), &AccessTest::Call);
  }
}

TEST_F(AccessTest, CertificatesThatTlsRefuses) {
  Start();
  TestAuthority foreign(Path("foreign"), valid_);
  ExpectRow({"foreign", kCutOff, kCutOff, kCutOff},
            Connect(foreign.Sign(Uri(Role::kIsland, "a"), valid_)),
            &AccessTest::Call);
  identity_made_ = start_ - absl::Minutes(30);
  ExpectRow({"expired", kCutOff, kCutOff, kCutOff},
            Connect(authority_.Sign(
                Uri(Role::kIsland, "a"),
                {start_ - absl::Hours(1), start_ - absl::Minutes(1)})),
            &AccessTest::Call);
  EXPECT_EQ(driver_.engine().ListIslands(true).islands_size(), 0);
}

TEST_F(AccessTest, NothingIsServedToARevokedOrExpiredCertificate) {
  Start();
  const Channel island = Connect(Uri(Role::kIsland, "a"));
  const Channel anna = Connect(Uri(Role::kOperator, "anna"));
  for (const Channel& channel : {island, anna}) {
    EXPECT_OK(Call(channel, "/causeway.v1.Status/GetRun"));
  }
  {
    absl::MutexLock lock(&mu_);
    revoked_ = true;
  }
  ExpectRow({"revoked", kUnknown, kUnknown, kDenied}, island,
            &AccessTest::Call);
  ExpectRow({"revoked", kDenied, kUnknown, kUnknown}, anna, &AccessTest::Call);
  ahead_ = 3700;
  for (const Cell& cell : Cells("a")) {
    if (cell.service == "Control") continue;
    EXPECT_THAT(Call(island, cell.method, cell.request), IsUnavailable())
        << cell.method;
  }
  // The peer may have renewed it, and connect again.
  EXPECT_THAT(Texts("call_refused"), Not(Contains(HasSubstr("expired"))));
}

TEST_F(AccessTest, WithoutACertificateNothingIsServedButHealth) {
  Start(/*required=*/false);
  const Channel channel = Connect("");
  ExpectRow({"none", kUnknown, kUnknown, kUnknown}, channel, &AccessTest::Call);
  EXPECT_THAT(Call(channel, kPause), IsUnauthenticated("shows no certificate"));
  EXPECT_OK(Call(channel, "/grpc.health.v1.Health/Check"));
  ExpectRow({"with", kServed, kServed, kDenied},
            Connect(Uri(Role::kIsland, "a")), &AccessTest::Call);
}

TEST_F(AccessTest, ReflectionIsForPlainTextOnly) {
  constexpr char kReflection[] =
      "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo";
  Start();
  EXPECT_THAT(Call(Connect(Uri(Role::kOperator, "a")), kReflection),
              IsUnimplemented());
}

TEST_F(AccessTest, RefusalsSayWhoAndWhatAndWhichRolesMay) {
  Start();
  EXPECT_THAT(Call(Connect(Uri(Role::kViewer, "page")), kPause),
              IsPermissionDenied("viewer page", "Control/PauseRun",
                                 "roles of run test: operator"));
  v1::JoinRequest join;
  join.set_island_id("a\x1b");
  EXPECT_THAT(
      Call(Connect(Uri(Role::kIsland, "b")), "/causeway.v1.Coordinator/Join",
           join.SerializeAsString()),
      IsPermissionDenied("island b may not call "
                         "/causeway.v1.Coordinator/Join for "
                         "\"a\\x1b\": use the name of its certificate"));
  EXPECT_THAT(Call(Connect("island-a"), kPause),
              IsUnauthenticated("its names are [island-a]"));
}

TEST_F(AccessTest, RefusalsAreEventsAndCannotFloodTheLog) {
  Start();
  const Channel viewer = Connect(Uri(Role::kViewer, "page"));
  const Channel island = Connect(Uri(Role::kIsland, "b"));
  const Channel unknown = Connect("x.example");
  const Channel another = Connect("y.example");
  for (int i = 0; i < 20; ++i) {
    for (const Channel& channel : {viewer, island, unknown, another}) {
      EXPECT_FALSE(Call(channel, kPause).ok());
    }
  }
  EXPECT_THAT(Texts("call_refused"), SizeIs(3));
  EXPECT_THAT(Texts("call_refused"),
              AllOf(Contains(HasSubstr("from viewer page is refused")),
                    Contains(HasSubstr("from island b is refused")),
                    Contains(HasSubstr("from 127.0.0.1:"))));
  ahead_ = 61;
  EXPECT_FALSE(Call(viewer, kPause).ok());
  EXPECT_THAT(Texts("call_refused"), SizeIs(4));
  EXPECT_THAT(Texts("call_refused").back(),
              HasSubstr("so were 19 calls before it"));
  EXPECT_FALSE(Call(viewer, kPause).ok());
  ahead_ = 122;
  EXPECT_FALSE(Call(viewer, kPause).ok());
  EXPECT_THAT(Texts("call_refused").back(),
              HasSubstr("so was 1 call before it"));
}

TEST_F(AccessTest, OperatorsActionsNameTheOperator) {
  Start();
  ASSERT_OK(driver_.Join("a"));
  const Channel anna = Connect(Uri(Role::kOperator, "anna"));
  v1::PauseRunRequest pause;
  pause.set_reason("lunch");
  EXPECT_OK(Call(anna, kPause, pause.SerializeAsString()));
  EXPECT_THAT(Texts("run_paused"),
              Contains("the run is paused: lunch (by operator anna)"));
  EXPECT_OK(Call(anna, "/causeway.v1.Control/ResumeRun"));
  EXPECT_THAT(Texts("run_resumed"), Contains(HasSubstr("(by operator anna)")));
  v1::EvictIslandRequest evict;
  evict.set_island_id("a");
  EXPECT_OK(Call(anna, "/causeway.v1.Control/DrainIsland",
                 evict.SerializeAsString()));
  EXPECT_THAT(Texts("island_draining"),
              Contains(HasSubstr("(by operator anna)")));
  EXPECT_OK(Call(anna, "/causeway.v1.Control/EvictIsland",
                 evict.SerializeAsString()));
  EXPECT_THAT(Texts("island_evicted"),
              Contains(HasSubstr("(by operator anna)")));
}

TEST_F(AccessTest, OnlyOperatorsAcceptData) {
  constexpr char kAccept[] = "/causeway.v1.Control/AcceptData";
  Start();
  ASSERT_OK_AND_ASSIGN(const v1::IslandIdentity island, driver_.Join("a"));
  v1::AcceptDataRequest accept;
  accept.set_island_id("a");
  const std::string request = accept.SerializeAsString();
  for (const Role role : {Role::kIsland, Role::kViewer}) {
    EXPECT_THAT(Call(Connect(Uri(role, "a")), kAccept, request),
                IsPermissionDenied("roles of run test: operator"));
  }
  const Channel anna = Connect(Uri(Role::kOperator, "anna"));
  EXPECT_THAT(Call(anna, kAccept, request),
              IsFailedPrecondition("has not opened its data yet"));
  v1::SessionRequest heartbeat;
  *heartbeat.mutable_identity() = island;
  heartbeat.mutable_progress()->set_data_digest("data of the run!");
  ASSERT_OK(driver_.engine().Heartbeat(heartbeat));
  EXPECT_OK(Call(anna, kAccept, request));
  EXPECT_THAT(Texts("data_accepted"),
              Contains(HasSubstr("(by operator anna)")));
}

TEST_F(AccessTest, PeersAreKnownByTheirCertificates) {
  Start();
  EXPECT_OK(
      Call(Connect(Uri(Role::kViewer, "page")), "/causeway.v1.Status/GetRun"));
  for (int i = 0; i < 2; ++i) {
    EXPECT_FALSE(Call(Connect("x.example"), kPause).ok());
  }
  const auto stub = v1::Control::NewStub(Connect(Uri(Role::kOperator, "anna")));
  grpc::ClientContext context;
  v1::ListPeersResponse response;
  ASSERT_OK(FromGrpcStatus(stub->ListPeers(&context, {}, &response)));
  std::map<std::string, v1::PeerUse> peers;
  for (const auto& peer : response.peers()) peers[peer.peer()] = peer;
  EXPECT_EQ(peers.size(), 3);
  EXPECT_EQ(peers["operator anna"].calls(), 1);
  EXPECT_EQ(peers["operator anna"].connections(), 1);
  EXPECT_EQ(peers["viewer page"].calls_begun(), 1);
  EXPECT_EQ(peers["viewer page"].refused(), 0);
  EXPECT_EQ(peers["127.0.0.1"].calls_begun(), 2);
  EXPECT_EQ(peers["127.0.0.1"].refused(), 2);
}

TEST_F(AccessTest, UnderLoadAnOperatorIsServedAndAViewerIsNot) {
  // Six connections of eight from this address are in use.
  Start(/*required=*/true, /*max_connections=*/16);
  constexpr char kGetRun[] = "/causeway.v1.Status/GetRun";
  const Channel viewer = Connect(Uri(Role::kViewer, "page"));
  EXPECT_OK(Call(viewer, kGetRun));
  std::vector<Channel> others;
  for (int i = 0; i < 5; ++i) {
    others.push_back(Connect(Uri(Role::kIsland, absl::StrCat("i", i))));
    EXPECT_OK(Call(others.back(), kGetRun));
  }
  EXPECT_TRUE(driver_.Await([&] { return !Call(viewer, kGetRun).ok(); }));
  EXPECT_THAT(Call(viewer, kGetRun), IsResourceExhausted());
  EXPECT_OK(Call(Connect(Uri(Role::kOperator, "anna")), kGetRun));
}

// Long-lived streams are checked with each message.
class SessionAccessTest : public AccessTest {
 protected:
  void SetUp() override {
    AccessTest::SetUp();
    Start();
    island_ = Connect(Uri(Role::kIsland, "a"));
    ASSERT_OK_AND_ASSIGN(const v1::IslandIdentity identity, driver_.Join("a"));
    *heartbeat_.mutable_identity() = identity;
    context_.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(20)));
    stub_ = v1::Coordinator::NewStub(island_);
    session_ = stub_->Session(&context_);
    ASSERT_TRUE(Beat());
  }

  // Returns whether a heartbeat is answered.
  bool Beat() {
    v1::SessionResponse view;
    session_->Write(heartbeat_);
    return session_->Read(&view);
  }
  absl::Status End() { return FromGrpcStatus(session_->Finish()); }

  Channel island_;
  v1::SessionRequest heartbeat_;
  grpc::ClientContext context_;
  std::unique_ptr<v1::Coordinator::Stub> stub_;
  std::unique_ptr<
      grpc::ClientReaderWriter<v1::SessionRequest, v1::SessionResponse>>
      session_;
};

TEST_F(SessionAccessTest, OthersCannotEndIt) {
  for (const std::string& other :
       {Uri(Role::kIsland, "b"), Uri(Role::kOperator, "a")}) {
    const Channel channel = Connect(other);
    v1::LeaveRequest leave;
    *leave.mutable_identity() = heartbeat_.identity();
    EXPECT_THAT(Call(channel, "/causeway.v1.Coordinator/Leave",
                     leave.SerializeAsString()),
                IsPermissionDenied());
    v1::JoinRequest join;
    join.set_island_id("a");
    join.set_instance_id(666);
    EXPECT_THAT(Call(channel, "/causeway.v1.Coordinator/Join",
                     join.SerializeAsString()),
                IsPermissionDenied());
  }
  EXPECT_TRUE(Beat());
  const v1::ListIslandsResponse islands = driver_.engine().ListIslands(true);
  ASSERT_EQ(islands.islands_size(), 1);
  EXPECT_EQ(islands.islands(0).state(), v1::IslandStatus::LIVE);
  EXPECT_EQ(islands.islands(0).incarnation(), 1);
}

TEST_F(SessionAccessTest, AHeartbeatForAnotherIslandEndsIt) {
  heartbeat_.mutable_identity()->set_island_id("b");
  while (Beat()) {
  }
  EXPECT_THAT(End(), IsPermissionDenied());
}

TEST_F(SessionAccessTest, ACertificateThatExpiresEndsIt) {
  ahead_ = 3500;
  EXPECT_TRUE(Beat());
  ahead_ = 3700;
  while (Beat()) {
  }
  EXPECT_THAT(End(), IsUnavailable("island a expired at"));
}

TEST_F(SessionAccessTest, ACertificateThatIsRevokedEndsIt) {
  {
    absl::MutexLock lock(&mu_);
    EXPECT_EQ(seen_.expires,
              absl::FromUnixSeconds(absl::ToUnixSeconds(valid_.until)));
    EXPECT_THAT(seen_.serial, testing::MatchesRegex("([0-9a-f][0-9a-f])+"));
    revoked_ = true;
  }
  while (Beat()) {
  }
  EXPECT_THAT(End(), StatusIs(kUnknown, "revoked"));
  EXPECT_THAT(Call(island_, "/causeway.v1.Status/GetRun"),
              StatusIs(kUnknown, "revoked"));
}

TEST_F(SessionAccessTest, ARevokedViewerSeesNoMoreEvents) {
  const auto stub = v1::Status::NewStub(Connect(Uri(Role::kViewer, "page")));
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(20)));
  const auto stream = stub->WatchEvents(&context, {});
  v1::Event event;
  while (event.kind() != "island_joined") ASSERT_TRUE(stream->Read(&event));
  {
    absl::MutexLock lock(&mu_);
    revoked_ = true;
  }
  for (int i = 0; i < 3; ++i) {
    ASSERT_OK(driver_.engine().Pause({}));
    ASSERT_OK(driver_.engine().Resume());
  }
  int more = 0;
  while (stream->Read(&event)) ++more;
  EXPECT_LE(more, 2);
  EXPECT_THAT(FromGrpcStatus(stream->Finish()), StatusIs(kUnknown, "revoked"));
}

}  // namespace
}  // namespace causeway
