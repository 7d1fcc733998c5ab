// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/wan/link_check.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "common/os/file.h"
#include "common/status_macros.h"
#include "glog/logging.h"
#include "tests/wan/descriptor.h"

namespace causeway {
namespace {

constexpr int kTries = 8;
constexpr int kRoundTrips = 5;
constexpr absl::Duration kPatience = absl::Seconds(10);
// The sizes of the headers: Ethernet; and IPv4, TCP and its timestamps.
constexpr int kFrameHeader = 14;
constexpr int kSegmentHeaders = 20 + 20 + 12;

absl::Status SocketError(absl::string_view action) {
  // Sockets with a timeout fail with these when the time is over.
  if (errno == EAGAIN || errno == EINPROGRESS) {
    return absl::DeadlineExceededError(
        absl::StrCat("checking a link: nothing came through for ",
                     absl::FormatDuration(kPatience)));
  }
  return ErrnoStatus(errno, action, "a socket of the link check");
}

// Makes a socket. `buffer_bytes` bounds the bytes on their way to it: the
// kernel takes twice that and gives a little more than half of it to the
// window.
absl::StatusOr<Descriptor> NewSocket(int buffer_bytes) {
  Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const timeval patience = absl::ToTimeval(kPatience);
  const int one = 1;
  // Forcing exceeds the system's limit, but needs more privileges.
  const auto set_buffer = [&](int option) {
    return setsockopt(socket.get(), SOL_SOCKET, option, &buffer_bytes,
                      sizeof(buffer_bytes)) == 0;
  };
  if (!socket.ok() ||
      setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &patience,
                 sizeof(patience)) != 0 ||
      setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &patience,
                 sizeof(patience)) != 0 ||
      setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)) !=
          0 ||
      !(set_buffer(SO_RCVBUFFORCE) || set_buffer(SO_RCVBUF))) {
    return SocketError("make");
  }
  return socket;
}

// The two ends of a TCP connection over the link.
struct Connection {
  Descriptor island;
  Descriptor coordinator;
};

absl::Duration RoundTrip(const LinkSettings& settings) {
  return settings.up.delay + settings.down.delay;
}

// Returns the bytes that fit into the link and a quarter of its queue. With
// more, TCP overflows the queue while it starts, and recovers for many round
// trips.
int BufferBytes(const ShaperSettings& direction, absl::Duration round_trip) {
  constexpr double kMost = 512 << 20;
  return static_cast<int>(std::min(
      kMost, direction.bits_per_second / 8 * absl::ToDoubleSeconds(round_trip) +
                 static_cast<double>(direction.queue_bytes) / 4));
}

absl::StatusOr<Connection> Connect(const NetworkNamespace& island,
                                   const std::string& address,
                                   const LinkSettings& settings) {
  // Accepted sockets inherit the listener's options.
  ASSIGN_OR_RETURN(const Descriptor listener,
                   NewSocket(BufferBytes(settings.up, RoundTrip(settings))));
  sockaddr_in internet = {};
  internet.sin_family = AF_INET;
  inet_pton(AF_INET, address.c_str(), &internet.sin_addr);
  socklen_t size = sizeof(internet);
  auto* const generic = reinterpret_cast<sockaddr*>(&internet);
  if (bind(listener.get(), generic, size) != 0 ||
      listen(listener.get(), 1) != 0 ||
      getsockname(listener.get(), generic, &size) != 0) {
    return SocketError("listen on");
  }
  Connection connection;
  {
    // A socket stays in the namespace in which it was made.
    ASSIGN_OR_RETURN(const NetworkNamespace::Scope scope, island.Enter());
    ASSIGN_OR_RETURN(
        connection.island,
        NewSocket(BufferBytes(settings.down, RoundTrip(settings))));
  }
  if (connect(connection.island.get(), generic, size) != 0) {
    return SocketError("connect");
  }
  connection.coordinator =
      Descriptor(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!connection.coordinator.ok()) return SocketError("accept");
  return connection;
}

absl::Status PassByte(const Descriptor& from, const Descriptor& to) {
  char byte = 'x';
  if (send(from.get(), &byte, 1, MSG_NOSIGNAL) != 1) return SocketError("send");
  if (recv(to.get(), &byte, 1, 0) != 1) return SocketError("receive");
  return absl::OkStatus();
}

absl::StatusOr<absl::Duration> ShortestRoundTrip(const Connection& link) {
  absl::Duration shortest = absl::InfiniteDuration();
  for (int i = 0; i < kRoundTrips; ++i) {
    const absl::Time sent = absl::Now();
    RETURN_IF_ERROR(PassByte(link.island, link.coordinator));
    RETURN_IF_ERROR(PassByte(link.coordinator, link.island));
    shortest = std::min(shortest, absl::Now() - sent);
  }
  return shortest;
}

// Returns the bytes per second that get from `from` to `to` after `warm_up`.
absl::StatusOr<double> Throughput(const Descriptor& from, const Descriptor& to,
                                  absl::Duration warm_up) {
  constexpr absl::Duration kMeasured = absl::Milliseconds(700);
  std::thread sender([&] {
    const std::vector<char> bytes(256 << 10);
    while (send(from.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) > 0) {
    }
  });
  std::vector<char> buffer(256 << 10);
  const absl::Time began = absl::Now();
  absl::Time counting_since = absl::InfiniteFuture();
  absl::Time now = began;
  int64_t received = 0;
  absl::Status status;
  while (now - counting_since < kMeasured) {
    const ssize_t bytes = recv(to.get(), buffer.data(), buffer.size(), 0);
    if (bytes <= 0) {
      status = SocketError("receive from");
      break;
    }
    now = absl::Now();
    if (counting_since != absl::InfiniteFuture()) {
      received += bytes;
    } else if (now - began >= warm_up) {
      counting_since = now;
    }
  }
  shutdown(from.get(), SHUT_RDWR);  // Ends the sender.
  sender.join();
  RETURN_IF_ERROR(status);
  return static_cast<double>(received) /
         absl::ToDoubleSeconds(now - counting_since);
}

absl::Status CheckRate(absl::string_view direction, double measured,
                       const ShaperSettings& settings) {
  const double share = measured / settings.bits_per_second;
  const bool reachable =
      settings.loss == 0 && settings.bits_per_second < kUnlimitedBitsPerSecond;
  if (share <= 1.03 && (share >= 0.85 || !reachable)) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrFormat(
      "%s the link carried %.4g Mbit/s; it is set to %.4g Mbit/s", direction,
      measured / 1e6, settings.bits_per_second / 1e6));
}

}  // namespace

absl::StatusOr<LinkMeasurement> MeasureLink(const NetworkNamespace& island,
                                            const std::string& address, int mtu,
                                            const LinkSettings& settings,
                                            int tries) {
  const double headers = static_cast<double>(mtu + kFrameHeader) /
                         static_cast<double>(mtu - kSegmentHeaders);
  // The warm-up covers slow start, and TCP's recovery if it leaves slow start
  // too early.
  const absl::Duration warm_up =
      tries * (absl::Milliseconds(300) + 12 * RoundTrip(settings));
  LinkMeasurement measured;
  {
    ASSIGN_OR_RETURN(const Connection link, Connect(island, address, settings));
    ASSIGN_OR_RETURN(measured.round_trip, ShortestRoundTrip(link));
    ASSIGN_OR_RETURN(const double up,
                     Throughput(link.island, link.coordinator, warm_up));
    measured.up = 8 * headers * up;
  }
  {
    ASSIGN_OR_RETURN(const Connection link, Connect(island, address, settings));
    ASSIGN_OR_RETURN(const double down,
                     Throughput(link.coordinator, link.island, warm_up));
    measured.down = 8 * headers * down;
  }
  const auto drain = [](const ShaperSettings& direction) {
    return direction.delay + direction.jitter +
           absl::Seconds(8 * static_cast<double>(direction.queue_bytes) /
                         direction.bits_per_second);
  };
  absl::SleepFor(drain(settings.up) + drain(settings.down));
  return measured;
}

absl::Status CheckLink(const LinkMeasurement& measured,
                       const LinkSettings& settings) {
  const absl::Duration shortest = RoundTrip(settings);
  const absl::Duration longest = shortest + settings.up.jitter +
                                 settings.down.jitter + absl::Milliseconds(3);
  if (measured.round_trip < shortest || measured.round_trip > longest) {
    return absl::FailedPreconditionError(
        absl::StrFormat("a round trip took %s; the link is set to %s",
                        absl::FormatDuration(measured.round_trip),
                        absl::FormatDuration(shortest)));
  }
  RETURN_IF_ERROR(CheckRate("up", measured.up, settings.up));
  return CheckRate("down", measured.down, settings.down);
}

absl::StatusOr<LinkMeasurement> MeasureAndCheckLink(
    const NetworkNamespace& island, const std::string& address, int mtu,
    const LinkSettings& settings) {
  absl::Status checked;
  for (int tries = 1; tries <= kTries; ++tries) {
    ASSIGN_OR_RETURN(const LinkMeasurement measured,
                     MeasureLink(island, address, mtu, settings, tries));
    checked = CheckLink(measured, settings);
    if (checked.ok()) return measured;
    LOG(WARNING) << checked.message();
  }
  return checked;
}

}  // namespace causeway
