// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/hostile/raw_http2.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace causeway {
namespace {

constexpr char kPreface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

// SETTINGS (RFC 9113, 6.5.2).
constexpr uint16_t kMaxConcurrentStreams = 3;
constexpr uint16_t kInitialWindowSize = 4;

constexpr size_t kMostFrameBytes = 16384;
constexpr size_t kFrameHeaderBytes = 9;

std::string BigEndian(uint64_t value, int bytes) {
  std::string text;
  for (int i = bytes - 1; i >= 0; --i) {
    text.push_back(static_cast<char>(value >> (8 * i) & 0xff));
  }
  return text;
}

uint32_t FromBigEndian(absl::string_view bytes) {
  uint32_t value = 0;
  for (const char byte : bytes) {
    value = value << 8 | static_cast<uint8_t>(byte);
  }
  return value;
}

// Returns a field that is not indexed and not Huffman coded (RFC 7541, 6.2.2).
// Both texts must be shorter than 127 bytes.
std::string Field(absl::string_view name, absl::string_view value) {
  return absl::StrCat(std::string(1, '\0'),
                      std::string(1, static_cast<char>(name.size())), name,
                      std::string(1, static_cast<char>(value.size())), value);
}

std::string RequestHeaders(absl::string_view path) {
  return absl::StrCat(Field(":method", "POST"), Field(":scheme", "http"),
                      Field(":path", path), Field(":authority", "localhost"),
                      Field("te", "trailers"),
                      Field("content-type", "application/grpc"));
}

}  // namespace

IdleConnection::IdleConnection(int port)
    : file_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const timeval patience = {.tv_sec = 5};
  const int yes = 1;
  setsockopt(file_, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
  setsockopt(file_, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
  if (connect(file_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) !=
      0) {
    close(file_);
    file_ = -1;
  }
}

IdleConnection::~IdleConnection() {
  if (file_ >= 0) close(file_);
}

bool IdleConnection::open() const {
  if (file_ < 0) return false;
  pollfd polled = {.fd = file_, .events = POLLRDHUP};
  return poll(&polled, 1, 0) == 0;
}

RawHttp2::RawHttp2(int port, uint32_t window)
    : connection_(port), open_(connection_.file() >= 0) {
  const std::string greeting = absl::StrCat(
      kPreface, BigEndian(6, 3), BigEndian(kSettings, 1), BigEndian(0, 5),
      BigEndian(kInitialWindowSize, 2), BigEndian(window, 4));
  open_ = open_ && send(connection_.file(), greeting.data(), greeting.size(),
                        MSG_NOSIGNAL) == static_cast<ssize_t>(greeting.size());
}

uint32_t RawHttp2::Begin(absl::string_view path, absl::string_view encoding) {
  const uint32_t stream = BeginHeaders(path);
  Send(kContinuation, kEndHeaders, stream,
       encoding.empty() ? "" : Field("grpc-encoding", encoding));
  calls_.push_back(stream);
  windows_[stream] = stream_window_;
  return stream;
}

uint32_t RawHttp2::BeginHeaders(absl::string_view path) {
  const uint32_t stream = next_stream_;
  next_stream_ += 2;
  Send(kHeaders, 0, stream, RequestHeaders(path));
  return stream;
}

void RawHttp2::Send(Type type, uint8_t flags, uint32_t stream,
                    absl::string_view payload) {
  if (!open_) return;
  const std::string frame =
      absl::StrCat(BigEndian(payload.size(), 3), BigEndian(type, 1),
                   BigEndian(flags, 1), BigEndian(stream, 4), payload);
  open_ = send(connection_.file(), frame.data(), frame.size(), MSG_NOSIGNAL) ==
          static_cast<ssize_t>(frame.size());
}

size_t RawHttp2::SendData(uint32_t stream, absl::string_view bytes) {
  const int64_t allowed = std::min(window_, windows_[stream]);
  if (!open_ || allowed <= 0) return 0;
  const size_t sent =
      std::min({bytes.size(), kMostFrameBytes, static_cast<size_t>(allowed)});
  Send(kData, 0, stream, bytes.substr(0, sent));
  window_ -= static_cast<int64_t>(sent);
  windows_[stream] -= static_cast<int64_t>(sent);
  return sent;
}

bool RawHttp2::Receive(absl::Duration timeout) {
  pollfd polled = {.fd = connection_.file(), .events = POLLIN};
  if (!open_ ||
      poll(&polled, 1, static_cast<int>(absl::ToInt64Milliseconds(timeout))) <=
          0) {
    return false;
  }
  char bytes[1 << 16];
  const ssize_t count =
      recv(connection_.file(), bytes, sizeof(bytes), MSG_DONTWAIT);
  if (count <= 0) {
    open_ = false;
    return false;
  }
  received_.append(bytes, static_cast<size_t>(count));
  absl::string_view rest = received_;
  while (rest.size() >= kFrameHeaderBytes) {
    const size_t length = FromBigEndian(rest.substr(0, 3));
    if (rest.size() < kFrameHeaderBytes + length) break;
    Take(static_cast<uint8_t>(rest[3]), static_cast<uint8_t>(rest[4]),
         FromBigEndian(rest.substr(5, 4)),
         rest.substr(kFrameHeaderBytes, length));
    rest.remove_prefix(kFrameHeaderBytes + length);
  }
  received_ = std::string(rest);
  return true;
}

std::string RawHttp2::answer(uint32_t stream) const {
  const auto answer = answers_.find(stream);
  return answer == answers_.end() ? "" : answer->second;
}

void RawHttp2::Take(uint8_t type, uint8_t flags, uint32_t stream,
                    absl::string_view payload) {
  const bool is_answer = type == kHeaders || type == kData;
  if (is_answer) absl::StrAppend(&answers_[stream], payload);
  if (type == kReset || (is_answer && (flags & kEndStream) != 0)) {
    calls_.erase(std::remove(calls_.begin(), calls_.end(), stream),
                 calls_.end());
  } else if (type == kSettings && (flags & kAcknowledgement) == 0) {
    TakeSettings(payload);
  } else if (type == kPing && (flags & kAcknowledgement) == 0) {
    Send(kPing, kAcknowledgement, 0, payload);
  } else if (type == kWindowUpdate) {
    (stream == 0 ? window_ : windows_[stream]) += FromBigEndian(payload);
  }
}

void RawHttp2::TakeSettings(absl::string_view payload) {
  for (; payload.size() >= 6; payload.remove_prefix(6)) {
    const uint32_t setting = FromBigEndian(payload.substr(0, 2));
    const uint32_t value = FromBigEndian(payload.substr(2, 4));
    if (setting == kMaxConcurrentStreams) max_calls_ = value;
    if (setting != kInitialWindowSize) continue;
    for (auto& [stream, window] : windows_) window += value - stream_window_;
    stream_window_ = value;
  }
  Send(kSettings, kAcknowledgement, 0, "");
}

std::string MessagePrefix(uint32_t length, bool is_compressed) {
  return absl::StrCat(BigEndian(is_compressed ? 1 : 0, 1),
                      BigEndian(length, 4));
}

}  // namespace causeway
