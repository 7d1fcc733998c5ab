// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// A client that speaks HTTP/2 (RFC 9113) frame by frame, so that it can do what
// no library would: leave messages, headers and streams unfinished, and read
// nothing. It obeys flow control, or the server would end the connection. To
// loopback only.
#ifndef TESTS_HOSTILE_RAW_HTTP2_H_
#define TESTS_HOSTILE_RAW_HTTP2_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace causeway {

// A TCP connection to a port of this host that nothing is sent on. Not
// thread-safe.
class IdleConnection {
 public:
  // Not open if the server does not take it.
  explicit IdleConnection(int port);
  ~IdleConnection();
  IdleConnection(const IdleConnection&) = delete;
  IdleConnection& operator=(const IdleConnection&) = delete;

  // Whether the other end has not closed it, as far as this one knows.
  bool open() const;
  int file() const { return file_; }

 private:
  int file_ = -1;
};

// Not thread-safe.
class RawHttp2 {
 public:
  enum Type : uint8_t {
    kData = 0,
    kHeaders = 1,
    kReset = 3,
    kSettings = 4,
    kPing = 6,
    kWindowUpdate = 8,
    kContinuation = 9,
  };
  enum Flag : uint8_t {
    kEndStream = 1,
    kAcknowledgement = 1,
    kEndHeaders = 4,
  };

  // Connects and greets. The server may send so many bytes on each stream.
  RawHttp2(int port, uint32_t window);

  // Whether the connection has not ended.
  bool open() const { return open_; }
  // Streams of calls that have not ended.
  const std::vector<uint32_t>& calls() const { return calls_; }
  // The most calls that the server takes.
  uint32_t max_calls() const { return max_calls_; }

  // Begins a call; its stream.
  uint32_t Begin(absl::string_view path);
  // The beginning of one, whose headers go on.
  uint32_t BeginHeaders(absl::string_view path);

  // Sends a frame, whatever it says. Blocks while the server reads nothing, for
  // some seconds at most.
  void Send(Type type, uint8_t flags, uint32_t stream,
            absl::string_view payload);
  // Sends as much of `bytes` as flow control allows; how many.
  size_t SendData(uint32_t stream, absl::string_view bytes);

  // Waits for `timeout` for frames to come, and does what they ask for:
  // windows, settings, pings. False if nothing came.
  bool Receive(absl::Duration timeout);

  // The last headers and data of a call, as bytes.
  std::string answer(uint32_t stream) const;

 private:
  void Take(uint8_t type, uint8_t flags, uint32_t stream,
            absl::string_view payload);
  void TakeSettings(absl::string_view payload);

  const IdleConnection connection_;
  bool open_;
  std::string received_;
  uint32_t next_stream_ = 1;
  uint32_t max_calls_ = 100;
  std::vector<uint32_t> calls_;
  // What may be sent: on a new stream, on all together, on each.
  int64_t stream_window_ = 65535;
  int64_t window_ = 65535;
  std::map<uint32_t, int64_t> windows_;
  std::map<uint32_t, std::string> answers_;
};

// A gRPC message's first five bytes.
std::string MessagePrefix(uint32_t length);

}  // namespace causeway

#endif  // TESTS_HOSTILE_RAW_HTTP2_H_
