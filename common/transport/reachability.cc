// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/transport/reachability.h"

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/synchronization/mutex.h"
#include "common/clock.h"
#include "common/transport/credentials.h"
#include "common/transport/grpc_status.h"
#include "common/transport/grpc_time.h"
#include "common/transport/socket_address.h"
#include "common/transport/x509.h"
#include "grpcpp/grpcpp.h"

namespace causeway {
namespace {

constexpr absl::Duration kProbeTimeout = absl::Seconds(3);

// Returns a sentence about the proxy that gRPC takes from the environment, or
// nothing if there is none.
std::string ProxyHint() {
  // gRPC takes the first.
  for (const char* const name : {"grpc_proxy", "https_proxy", "http_proxy"}) {
    if (std::getenv(name) == nullptr) continue;
    return absl::StrCat(
        "; the environment has ", name,
        ", so connections go through that proxy: unset it, or name the host in "
        "no_proxy");
  }
  return "";
}

// Returns whether a connection with these credentials to one of the addresses
// succeeds.
bool Connects(const std::string& address,
              const std::shared_ptr<grpc::ChannelCredentials>& credentials) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, IsLoopback(address) ? 0 : 1);
  const std::shared_ptr<grpc::Channel> channel =
      grpc::CreateCustomChannel(address, credentials, arguments);
  grpc_connectivity_state state = channel->GetState(/*try_to_connect=*/true);
  const gpr_timespec deadline = FromNow(kProbeTimeout);
  while (state == GRPC_CHANNEL_IDLE || state == GRPC_CHANNEL_CONNECTING) {
    if (!channel->WaitForStateChange(state, deadline)) return false;
    state = channel->GetState(/*try_to_connect=*/true);
  }
  return state == GRPC_CHANNEL_READY;
}

bool Connects(const std::vector<std::string>& addresses,
              const std::shared_ptr<grpc::ChannelCredentials>& credentials) {
  return absl::c_any_of(addresses, [&](const std::string& address) {
    return Connects(address, credentials);
  });
}

// Returns the certificate that a server at one of the addresses shows, in PEM;
// empty if it speaks no TLS.
std::string ShownCertificate(const std::vector<std::string>& addresses) {
  struct Shown {
    absl::Mutex mu;
    std::string pem ABSL_GUARDED_BY(mu);
  };
  const auto shown = std::make_shared<Shown>();
  const auto credentials = CheckedCredentials([shown](const auto& request) {
    absl::MutexLock lock(&shown->mu);
    shown->pem =
        std::string(request.peer_cert().data(), request.peer_cert().size());
    return absl::OkStatus();
  });
  if (credentials.ok()) Connects(addresses, *credentials);
  absl::MutexLock lock(&shown->mu);
  return shown->pem;
}

// Returns what is wrong with the time of the certificate that the server shows;
// empty if nothing is.
std::string WrongTime(const std::vector<std::string>& addresses) {
  const auto shown = ParseCertificates(ShownCertificate(addresses));
  if (!shown.ok()) return "";
  return std::string(
      CheckTime(*shown->front(), "that it shows", WallClock()()).message());
}

struct Cause {
  std::string text;
  // If true, only another configuration helps.
  bool lasting = false;
  // If true, the coordinator that leads the run has answered.
  bool leads = false;
};

Cause FindCause(const std::vector<std::string>& addresses, bool tls,
                absl::string_view error) {
  const auto says = [&](absl::string_view text) {
    return absl::StrContains(error, text);
  };
  if (says("DNS resolution failed")) {
    return {
        "the host's name is not known here; check the address, and the "
        "name service of this machine"};
  }
  if (says("Connection refused")) {
    return {
        "nothing listens there; start the coordinator, or check host and "
        "port"};
  }
  if (says("security handshaker")) {
    return {
        "this side cannot begin TLS; its files of tls, tls_ca or tls_cert may "
        "have become unusable: with GRPC_VERBOSITY=ERROR in the environment, "
        "the log says more"};
  }
  if (says("certificate verify failed")) {
    const std::string wrong_time = WrongTime(addresses);
    if (!wrong_time.empty()) {
      return {absl::StrCat(wrong_time,
                           "; put a new one in its place there, which the "
                           "coordinator reads within seconds")};
    }
    return {
        "its certificate is of another authority than tls or tls_ca names; "
        "check that this is the coordinator of the run",
        /*lasting=*/true};
  }
  if (says("verification check failed")) {
    return {
        "its certificate is for another server; with tls it must be of the "
        "run's coordinator, with tls_ca it must name the host that is "
        "dialled",
        /*lasting=*/true};
  }
  if (says("backend unhealthy") || says("this coordinator follows") ||
      says("was replaced by one of epoch")) {
    return {
        "it answers, but does not lead the run; name the addresses of all the "
        "run's coordinators; if the one that leads is lost, the status of "
        "each other one says what it waits for, and without --etcd an operator "
        "promotes one"};
  }
  if (SaysDiskFails(error)) {
    return {.text = absl::StrCat(
                "it answers, but its disk fails; `causeway status` and its log "
                "say more",
                says("is in effect") ? "" : ", and this can be tried again"),
            .leads = true};
  }
  if (says("http1")) {
    return {
        "a server answers there, but it speaks HTTP/1; check the port: "
        "metrics and the status page have others"};
  }
  if (says("wrong version number")) {
    if (Connects(addresses, grpc::InsecureChannelCredentials())) {
      return {
          "it speaks plain text, and this side TLS; start it with --tls, "
          "or leave out tls and the join token here",
          /*lasting=*/true};
    }
    return {
        "a server answers there, but it speaks neither TLS nor gRPC; check "
        "the port"};
  }
  if (says("Failed parsing HTTP/2")) {
    return {
        "a server answers there, but it does not speak gRPC; check the "
        "port"};
  }
  if (says("keepalive watchdog timeout")) {
    return {
        "its connection has fallen silent; the machine may be down, or a NAT "
        "or firewall in between may have forgotten the connection"};
  }
  if (says("timed out") || says("Deadline Exceeded")) {
    return {
        "nothing answers in time; the machine may be down, a firewall may be "
        "in between, the server may be stuck, or the port may be another "
        "server's"};
  }
  if (says("Socket closed") || says("recvmsg") || says("reset by peer")) {
    if (tls) {
      return {
          "it closes the connection; it may be shutting down, or demand a "
          "certificate of its own authority: with tls, or tls_cert"};
    }
    if (!ShownCertificate(addresses).empty()) {
      return {
          "it speaks TLS, and this side plain text; name the folder of "
          "this side's certificate (tls), which a join token makes, or the "
          "authority (tls_ca)",
          /*lasting=*/true};
    }
    return {
        "it closes the connection; it may be shutting down, or not be a "
        "coordinator"};
  }
  return {"is it running, and is this its address?"};
}

}  // namespace

bool SaysDiskFails(absl::string_view error) {
  return absl::StrContains(error, "cannot write its commit log") ||
         absl::StrContains(error, "commit was not written");
}

absl::Status ExplainCall(const std::string& addresses, bool tls,
                         const grpc::Status& status) {
  const absl::Status plain = FromGrpcStatus(status);
  if (absl::IsUnimplemented(plain)) {
    return absl::UnimplementedError(
        absl::StrCat("the server at ", addresses,
                     " is not a coordinator, or has another version (",
                     plain.message(), "); check the address"));
  }
  if (!absl::IsUnavailable(plain) && !absl::IsDeadlineExceeded(plain)) {
    return plain;
  }
  const std::vector<std::string> all = absl::StrSplit(addresses, ',');
  const Cause cause = FindCause(all, tls, plain.message());
  absl::string_view problem = cause.text;
  if ((cause.leads || all.size() == 1) &&
      absl::ConsumePrefix(&problem, "it answers")) {
    return absl::Status(
        plain.code(),
        absl::StrCat("the coordinator at ", absl::StrJoin(all, " or "),
                     " answers", problem, " (", plain.message(), ")"));
  }
  if (all.size() > 1) {
    // gRPC reports the reason of only one address.
    return absl::Status(
        plain.code(),
        absl::StrCat("no coordinator that leads the run answers at ",
                     absl::StrJoin(all, " or "),
                     ": each is down, out of reach, or only follows another; "
                     "one of them: ",
                     cause.text, " (", plain.message(), ")"));
  }
  // Connections to this machine take no proxy.
  return absl::Status(
      cause.lasting ? absl::StatusCode::kUnauthenticated : plain.code(),
      absl::StrCat("no coordinator answers at ", addresses, ": ", cause.text,
                   IsLoopback(addresses) ? "" : ProxyHint(), " (",
                   plain.message(), ")"));
}

}  // namespace causeway
