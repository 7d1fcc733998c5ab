// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/transport/coordinator_target.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"
#include "common/testing/grpc_server.h"
#include "common/testing/status_matchers.h"
#include "common/transport/credentials.h"
#include "common/transport/grpc_time.h"
#include "common/transport/reachability.h"
#include "common/transport/testing/certificates.h"
#include "glog/logging.h"
#include "gmock/gmock.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "proto/coordinator.grpc.pb.h"
#include "proto/status.grpc.pb.h"

namespace causeway {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

constexpr absl::Duration kPatience = absl::Seconds(20);

// A coordinator that answers with its name.
class NamedCoordinator : public v1::Status::Service {
 public:
  NamedCoordinator(std::string name, bool leads,
                   const std::string& host = "127.0.0.1",
                   std::shared_ptr<grpc::ServerCredentials> credentials =
                       grpc::InsecureServerCredentials())
      : name_(std::move(name)),
        server_({.services = {this},
                 .host = host,
                 .credentials = std::move(credentials),
                 .has_health = true}) {
    SetLeads(leads);
  }
  ~NamedCoordinator() override { Stop(); }

  grpc::Status GetRun(grpc::ServerContext*, const v1::GetRunRequest*,
                      v1::RunStatus* status) override {
    status->set_run_id(name_);
    return grpc::Status::OK;
  }

  void SetLeads(bool leads) {
    server_.SetServing(v1::Coordinator::service_full_name(), leads);
  }
  // Ends calls under way at once, like a killed process.
  void Stop() { server_.Kill(); }

  const std::string& address() const { return server_.address(); }

 private:
  const std::string name_;
  LocalGrpcServer server_;
};

// A name server that knows one IPv4 address for all names.
class NameServer {
 public:
  explicit NameServer(const char* known)
      : socket_(socket(AF_INET, SOCK_DGRAM, 0)) {
    SetKnown(known);
    address_.sin_family = AF_INET;
    address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address_);
    CHECK_EQ(bind(socket_, Address(&address_), size), 0);
    CHECK_EQ(getsockname(socket_, Address(&address_), &size), 0);
    thread_ = std::thread([this] { Serve(); });
  }
  ~NameServer() {
    // An empty message ends the thread.
    sendto(socket_, "", 0, 0, Address(&address_), sizeof(address_));
    thread_.join();
    close(socket_);
  }

  int port() const { return ntohs(address_.sin_port); }
  void SetKnown(const char* known) { known_ = inet_addr(known); }

 private:
  static sockaddr* Address(sockaddr_in* address) {
    return reinterpret_cast<sockaddr*>(address);
  }

  void Serve() {
    char question[512];
    sockaddr_in from = {};
    socklen_t size = sizeof(from);
    while (recvfrom(socket_, question, sizeof(question), 0, Address(&from),
                    &size) > 0) {
      // A header, the name in labels, its type and its class.
      size_t end = 12;
      while (question[end] != 0) end += question[end] + 1;
      end += 5;
      std::string answer(question, end);
      const bool is_ipv4 = answer[end - 3] == 1;
      answer.replace(2, 2, "\x81\x80");
      answer.replace(6, 6, std::string{0, is_ipv4, 0, 0, 0, 0});
      if (is_ipv4) {
        const uint32_t known = known_;
        answer += std::string("\xc0\x0c\0\1\0\1\0\0\0\0\0\4", 12);
        answer.append(reinterpret_cast<const char*>(&known), sizeof(known));
      }
      sendto(socket_, answer.data(), answer.size(), 0, Address(&from), size);
    }
  }

  const int socket_;
  sockaddr_in address_ = {};
  std::atomic<uint32_t> known_ = 0;
  std::thread thread_;
};

class CoordinatorTargetTest : public testing::Test {
 protected:
  // Returns the name of the coordinator that answers a call.
  absl::StatusOr<std::string> Ask() {
    grpc::ClientContext context;
    context.set_deadline(FromNow(kPatience));
    v1::RunStatus status;
    RETURN_IF_ERROR(ExplainCall(
        addresses_, /*tls=*/false,
        v1::Status::NewStub(channel_)->GetRun(&context, {}, &status)));
    return status.run_id();
  }
  // Asks until the answer comes from `name`, because gRPC does not notice
  // changes at once.
  bool AwaitAnswerOf(const std::string& name) {
    const absl::Time end = absl::Now() + kPatience;
    while (absl::Now() < end) {
      const absl::StatusOr<std::string> answer = Ask();
      if (answer.ok() && *answer == name) return true;
    }
    return false;
  }
  void Connect(const std::string& addresses,
               const std::shared_ptr<grpc::ChannelCredentials>& credentials =
                   grpc::InsecureChannelCredentials()) {
    addresses_ = addresses;
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    channel_ = CoordinatorTarget(addresses).Connect(credentials, arguments);
  }

  std::string addresses_;
  std::shared_ptr<grpc::Channel> channel_;
};

TEST(CoordinatorAddressesTest, SaysWhatIsWrongWithAList) {
  for (const char* const good :
       {"a:7070", "a:7070,b:7070", "a:1,a:2", "[::1]:7070,10.0.0.1:7070",
        "unix:/run/a", "dns:///a"}) {
    EXPECT_OK(CheckCoordinators(good)) << good;
  }
  const std::vector<std::pair<std::string, std::string>> wrong = {
      {"a", "\"a\" is not host:port"},
      {"a:7070 ", "is not host:port"},
      {"https://a:7070", "leave https:// out"},
      {"HTTP://a:7070", "leave http:// out"},
      {"a:7070,", "\"\", which is not host:port"},
      {",a:7070", "\"\", which is not host:port"},
      {"a:7070,b", "\"b\", which is not host:port"},
      {"a:7070, b:7070", "without spaces"},
      {"a:7070,b:0", "\"b:0\""},
      {"a:7070,:7070", "\":7070\""},
      {"a:7070,b:70707", "\"b:70707\""},
      {"a:7070,b:7070,a:7070", "a:7070 twice"},
      {"a:1,a:2,a:3,a:4,a:5,a:6,a:7,a:8,a:9", "up to 8"},
  };
  for (const auto& [text, problem] : wrong) {
    EXPECT_THAT(CheckCoordinators(text), IsInvalidArgument(problem)) << text;
  }
}

TEST(CoordinatorAddressesTest, FamiliesCanBeMixed) {
  EXPECT_EQ(CoordinatorTarget("unix:/run/a").uri(), "unix:/run/a");
  EXPECT_EQ(CoordinatorTarget("10.0.0.1:1,10.0.0.2:2").uri(),
            "ipv4:10.0.0.1:1,10.0.0.2:2");
  EXPECT_EQ(CoordinatorTarget("[2001:db8::1]:1,10.0.0.2:2").uri(),
            "ipv6:%5B2001:db8::1%5D:1,%5B::ffff:10.0.0.2%5D:2");
}

TEST_F(CoordinatorTargetTest, ANameThatAnotherMachineHasTakenIsFoundSoon) {
  // Nothing listens there.
  NameServer names("127.0.0.2");
  NamedCoordinator a("a", /*leads=*/true);
  Connect(absl::StrReplaceAll(
      a.address(),
      {{"127.0.0.1", absl::StrCat("dns://127.0.0.1:", names.port(), "/run")}}));
  EXPECT_THAT(Ask(), IsUnavailable());
  names.SetKnown("127.0.0.1");
  EXPECT_TRUE(AwaitAnswerOf("a"));
}

TEST_F(CoordinatorTargetTest, CallsGoToTheOneThatLeads) {
  NamedCoordinator a("a", /*leads=*/true);
  NamedCoordinator b("b", /*leads=*/false);
  Connect(absl::StrCat(b.address(), ",", a.address()));
  for (int i = 0; i < 20; ++i) {
    EXPECT_THAT(Ask(), IsOkAndHolds(std::string("a")));
  }
  // The follower is promoted after the coordinator was lost.
  a.Stop();
  EXPECT_THAT(Ask(),
              IsUnavailable("no coordinator that leads the run answers at",
                            a.address(), b.address()));
  b.SetLeads(true);
  EXPECT_TRUE(AwaitAnswerOf("b"));
}

TEST_F(CoordinatorTargetTest, CallsLeaveOneThatStandsDown) {
  NamedCoordinator a("a", /*leads=*/true);
  NamedCoordinator b("b", /*leads=*/false);
  Connect(absl::StrCat(a.address(), ",", b.address()));
  EXPECT_THAT(Ask(), IsOkAndHolds(std::string("a")));
  a.SetLeads(false);
  b.SetLeads(true);
  ASSERT_TRUE(AwaitAnswerOf("b"));
  a.SetLeads(true);
  b.SetLeads(false);
  EXPECT_TRUE(AwaitAnswerOf("a"));
}

TEST_F(CoordinatorTargetTest, NoCoordinatorLeads) {
  NamedCoordinator a("a", /*leads=*/false);
  NamedCoordinator b("b", /*leads=*/false);
  Connect(absl::StrCat(a.address(), ",", b.address()));
  EXPECT_THAT(Ask(), IsUnavailable("only follows another"));
}

TEST(CoordinatorAddressesTest, AnAnswerIsExplained) {
  const std::pair<const char*, const char*> answers[] = {
      {"this coordinator follows the one at a:7070",
       "the coordinator at b:7070 answers, but does not lead the run"},
      {"this coordinator, of epoch 1, was replaced by one of epoch 2",
       "does not lead the run"},
      {"keepalive watchdog timeout", "its connection has fallen silent"},
      {"Failed to create security handshaker", "this side cannot begin TLS"},
      {"the coordinator cannot write its commit log: disk is full",
       "the coordinator at b:7070 answers, but its disk fails"},
      {"the commit was not written: outcome unknown",
       "say more, and this can be tried again"}};
  for (const auto& [answer, explanation] : answers) {
    EXPECT_THAT(
        ExplainCall("b:7070", /*tls=*/false,
                    grpc::Status(grpc::StatusCode::UNAVAILABLE, answer)),
        IsUnavailable(explanation, answer));
  }
  const auto explained = [](const std::string& addresses, const char* answer) {
    return std::string(
        ExplainCall(addresses, /*tls=*/false,
                    grpc::Status(grpc::StatusCode::UNAVAILABLE, answer))
            .message());
  };
  EXPECT_THAT(
      explained("a:1,b:2", "cannot write its commit log"),
      StartsWith("the coordinator at a:1 or b:2 answers, but its disk"));
  EXPECT_THAT(explained("a:1,b:2", "this coordinator follows"),
              StartsWith("no coordinator that leads the run answers at"));
  EXPECT_THAT(explained("a:1",
                        "this is in effect, but not yet recorded; the "
                        "coordinator cannot write its commit log"),
              Not(HasSubstr("tried again")));
}

// A later call may succeed after the file is replaced.
TEST_F(CoordinatorTargetTest, ACertificateThatHasExpiredIsNamed) {
  const absl::Time now = absl::Now();
  const Validity valid = {now - absl::Hours(9), now + absl::Hours(1)};
  const Validity past = {now - absl::Hours(9), now - absl::Hours(8)};
  TestAuthority authority(testing::TempDir() + "/expired", valid);
  const TestIdentity old = authority.Sign("localhost", past);
  // It was good when the server was started.
  ASSERT_OK_AND_ASSIGN(
      const auto server,
      MakeServerCredentials({.tls_cert = old.certificate, .tls_key = old.key},
                            past.until - absl::Minutes(1)));
  NamedCoordinator a("a", true, "127.0.0.1", server);
  ASSERT_OK_AND_ASSIGN(
      const auto credentials,
      MakeChannelCredentials({.tls_ca = authority.certificate()}, now));
  Connect(absl::StrReplaceAll(a.address(), {{"127.0.0.1", "localhost"}}),
          credentials);
  EXPECT_THAT(Ask(), IsUnavailable("the certificate that it shows has expired",
                                   "put a new one in its place there"));
}

// A single address is dialled whether it leads or not.
TEST_F(CoordinatorTargetTest, ASingleAddressIsAskedInAnyCase) {
  NamedCoordinator a("a", /*leads=*/false);
  Connect(a.address());
  EXPECT_THAT(Ask(), IsOkAndHolds(std::string("a")));
}

// gRPC takes a proxy from the environment. Nothing listens at this one.
TEST_F(CoordinatorTargetTest, AProxyIsNotAskedWithoutNeed) {
  setenv("http_proxy", "http://127.0.0.1:9", /*overwrite=*/1);
  NamedCoordinator a("a", /*leads=*/true);
  for (const std::string& addresses :
       {a.address(), absl::StrCat(a.address(), ",localhost:9")}) {
    Connect(addresses);
    EXPECT_THAT(Ask(), IsOkAndHolds(std::string("a"))) << addresses;
  }
  Connect("coordinator.example:7070");
  EXPECT_THAT(Ask(), IsUnavailable("the environment has http_proxy",
                                   "name the host in no_proxy"));
  unsetenv("http_proxy");
}

TEST_F(CoordinatorTargetTest, AHostThatIsNotKnownIsLeftOut) {
  NamedCoordinator a("a", /*leads=*/true);
  Connect(absl::StrCat("nowhere.invalid:7070,", a.address()));
  EXPECT_THAT(Ask(), IsOkAndHolds(std::string("a")));
}

TEST_F(CoordinatorTargetTest, ReachesBothFamiliesOfAddresses) {
  for (const bool ipv6_leads : {false, true}) {
    NamedCoordinator a("a", !ipv6_leads, "127.0.0.1");
    NamedCoordinator b("b", ipv6_leads, "[::1]");
    Connect(absl::StrCat(a.address(), ",", b.address()));
    EXPECT_THAT(Ask(), IsOkAndHolds(std::string(ipv6_leads ? "b" : "a")));
  }
}

// With an authority of the operator's own, the certificates of all name the
// host of the first address.
TEST_F(CoordinatorTargetTest, ACertificateNamesTheFirstHost) {
  const Validity validity = {absl::Now() - absl::Hours(1),
                             absl::Now() + absl::Hours(1)};
  TestAuthority authority(testing::TempDir() + "/authority", validity);
  const TestIdentity identity = authority.Sign("localhost", validity);
  ASSERT_OK_AND_ASSIGN(const auto server_credentials,
                       MakeServerCredentials({.tls_cert = identity.certificate,
                                              .tls_key = identity.key},
                                             absl::Now()));
  ASSERT_OK_AND_ASSIGN(
      const auto credentials,
      MakeChannelCredentials({.tls_ca = authority.certificate()}, absl::Now()));
  NamedCoordinator a("a", false, "127.0.0.1", server_credentials);
  NamedCoordinator b("b", true, "127.0.0.1", server_credentials);
  const std::string by_name =
      absl::StrReplaceAll(a.address(), {{"127.0.0.1", "localhost"}});
  Connect(absl::StrCat(by_name, ",", b.address()), credentials);
  EXPECT_THAT(Ask(), IsOkAndHolds(std::string("b")));
  Connect(absl::StrCat(b.address(), ",", by_name), credentials);
  EXPECT_THAT(Ask(), IsUnavailable("must name the host"));
}

TEST(CoordinatorTargetNameTest, IsAHostThatGrpcResolves) {
  EXPECT_TRUE(CoordinatorTarget("a.invalid:7070").IsName());
  EXPECT_TRUE(CoordinatorTarget("a.invalid:7070,b.invalid:7070").IsName())
      << "none is known";
  EXPECT_FALSE(CoordinatorTarget("127.0.0.1:7070").IsName());
  EXPECT_FALSE(CoordinatorTarget("[::1]:7070").IsName());
  EXPECT_FALSE(CoordinatorTarget("127.0.0.1:7070,b.invalid:7070").IsName());
  EXPECT_FALSE(CoordinatorTarget("unix:/run/causeway").IsName());
}

}  // namespace
}  // namespace causeway
