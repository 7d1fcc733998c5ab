// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/wan/network_namespace.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <cstring>
#include <iostream>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/os/daemon.h"
#include "common/os/file.h"
#include "common/status_macros.h"
#include "glog/logging.h"

namespace causeway {
namespace {

// These files show the settings of the namespace of the thread that opens them.
constexpr char kInternetSettings[] = "/proc/sys/net/ipv4/";
// The smallest, default and largest size in bytes.
constexpr char kTcpBuffers[] = "4096 131072 67108864";
constexpr char kThisNamespace[] = "/proc/thread-self/ns/net";

absl::StatusOr<Descriptor> ThisNamespace() {
  Descriptor descriptor(open(kThisNamespace, O_RDONLY | O_CLOEXEC));
  if (!descriptor.ok()) return ErrnoStatus(errno, "open", kThisNamespace);
  return descriptor;
}

absl::Status WriteSetting(absl::string_view name, absl::string_view value) {
  const std::string path = absl::StrCat(kInternetSettings, name);
  const Descriptor file(open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (!file.ok() || write(file.get(), value.data(), value.size()) < 0) {
    return ErrnoStatus(errno, absl::StrCat("write \"", value, "\" to"), path);
  }
  return absl::OkStatus();
}

// Returns a request about the device `name`, for the ioctl calls of
// netdevice(7).
ifreq Request(const std::string& name) {
  CHECK_LT(name.size(), size_t{IFNAMSIZ}) << name;
  ifreq request = {};
  std::memcpy(request.ifr_name, name.data(), name.size());
  return request;
}

absl::Status Control(int descriptor, unsigned long operation, ifreq& request,
                     absl::string_view action) {
  if (ioctl(descriptor, operation, &request) == 0) return absl::OkStatus();
  return ErrnoStatus(errno, action, request.ifr_name);
}

absl::StatusOr<Descriptor> ControlSocket() {
  Descriptor socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket.ok()) return ErrnoStatus(errno, "make", "a socket");
  return socket;
}

absl::Status SetUp(const Descriptor& socket, const std::string& name) {
  ifreq request = Request(name);
  request.ifr_flags = IFF_UP | IFF_RUNNING;
  return Control(socket.get(), SIOCSIFFLAGS, request, "set up device");
}

}  // namespace

NetworkNamespace::Scope::~Scope() {
  if (!outside_.ok()) return;
  PCHECK(setns(outside_.get(), CLONE_NEWNET) == 0);
}

absl::StatusOr<NetworkNamespace> NetworkNamespace::Create() {
  ASSIGN_OR_RETURN(Descriptor outside, ThisNamespace());
  if (unshare(CLONE_NEWNET) != 0) {
    return ErrnoStatus(errno, "make", "a network namespace");
  }
  const Scope scope(std::move(outside));
  ASSIGN_OR_RETURN(Descriptor descriptor, ThisNamespace());
  ASSIGN_OR_RETURN(const Descriptor socket, ControlSocket());
  RETURN_IF_ERROR(SetUp(socket, "lo"));
  RETURN_IF_ERROR(WriteSetting("tcp_rmem", kTcpBuffers));
  RETURN_IF_ERROR(WriteSetting("tcp_wmem", kTcpBuffers));
  // docs/operations.md advises this for links.
  RETURN_IF_ERROR(WriteSetting("tcp_slow_start_after_idle", "0"));
  return NetworkNamespace(std::move(descriptor));
}

absl::StatusOr<NetworkNamespace::Scope> NetworkNamespace::Enter() const {
  ASSIGN_OR_RETURN(Descriptor outside, ThisNamespace());
  if (setns(descriptor_.get(), CLONE_NEWNET) != 0) {
    return ErrnoStatus(errno, "enter", "a network namespace");
  }
  return Scope(std::move(outside));
}

std::string NetworkNamespace::path() const {
  return absl::StrCat("/proc/", getpid(), "/fd/", descriptor_.get());
}

absl::Status SetCongestionControl(absl::string_view name) {
  if (WriteSetting("tcp_congestion_control", name).ok()) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      absl::StrCat("congestion control \"", name, "\" is not one of ",
                   kInternetSettings, "tcp_allowed_congestion_control"));
}

absl::StatusOr<std::string> CongestionControl() {
  ASSIGN_OR_RETURN(
      const std::string name,
      ReadFile(absl::StrCat(kInternetSettings, "tcp_congestion_control")));
  return std::string(absl::StripAsciiWhitespace(name));
}

absl::Status ForwardPackets() { return WriteSetting("ip_forward", "1"); }

absl::StatusOr<Descriptor> OpenTap(const std::string& name,
                                   const std::string& address, int mtu) {
  constexpr char kTun[] = "/dev/net/tun";
  Descriptor tap(open(kTun, O_RDWR | O_NONBLOCK | O_CLOEXEC));
  if (!tap.ok()) return ErrnoStatus(errno, "open", kTun);
  ifreq request = Request(name);
  request.ifr_flags = IFF_TAP | IFF_NO_PI;
  RETURN_IF_ERROR(Control(tap.get(), TUNSETIFF, request, "make TAP device"));

  ASSIGN_OR_RETURN(const Descriptor socket, ControlSocket());
  request = Request(name);
  request.ifr_mtu = mtu;
  RETURN_IF_ERROR(Control(socket.get(), SIOCSIFMTU, request, "set the MTU of"));
  sockaddr_in internet = {};
  internet.sin_family = AF_INET;
  if (inet_pton(AF_INET, address.c_str(), &internet.sin_addr) != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", address, "\" is not an IPv4 address"));
  }
  request = Request(name);
  std::memcpy(&request.ifr_addr, &internet, sizeof(internet));
  RETURN_IF_ERROR(
      Control(socket.get(), SIOCSIFADDR, request, "set the address of"));
  internet.sin_addr.s_addr = htonl(0xffffff00);
  std::memcpy(&request.ifr_netmask, &internet, sizeof(internet));
  RETURN_IF_ERROR(
      Control(socket.get(), SIOCSIFNETMASK, request, "set the netmask of"));
  RETURN_IF_ERROR(SetUp(socket, name));
  return tap;
}

absl::Status CheckPermitted() {
  const absl::Status status = []() -> absl::Status {
    ASSIGN_OR_RETURN(const NetworkNamespace inside, NetworkNamespace::Create());
    ASSIGN_OR_RETURN(const NetworkNamespace::Scope scope, inside.Enter());
    return OpenTap("probe", "10.77.0.1", 1500).status();
  }();
  // Containers have no /dev/net/tun.
  return absl::IsNotFound(status)
             ? absl::PermissionDeniedError(status.message())
             : status;
}

int RunIfPermitted(absl::string_view program,
                   absl::FunctionRef<absl::Status()> run) {
  const absl::Status permitted = CheckPermitted();
  if (absl::IsPermissionDenied(permitted)) {
    std::cerr << program << ": skipped: " << permitted.message()
              << " (this needs root, outside of most containers)\n";
    return 77;
  }
  return ExitCode(program, permitted.ok() ? run() : permitted);
}

}  // namespace causeway
