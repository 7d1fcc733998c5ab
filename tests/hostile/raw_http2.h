// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// A client that speaks HTTP/2 (RFC 9113) frame by frame, so that it can do what
// no library would: leave messages, headers and streams unfinished, and read
// nothing. It obeys flow control, or the server would end the connection. It
// connects to loopback only.
#ifndef TESTS_HOSTILE_RAW_HTTP2_H_
#define TESTS_HOSTILE_RAW_HTTP2_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace causeway {

// A TCP connection to a port of this host that sends nothing. Not thread-safe.
class IdleConnection {
 public:
  // The connection is not open if the server refuses it.
  explicit IdleConnection(int port);
  ~IdleConnection();
  IdleConnection(const IdleConnection&) = delete;
  IdleConnection& operator=(const IdleConnection&) = delete;

  // Returns whether the other end has not closed it, as far as this end knows.
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

  // Connects and sends the preface. `window` is the number of bytes that the
  // server may send on each stream.
  RawHttp2(int port, uint32_t window);

  // Returns whether the connection has not ended.
  bool open() const { return open_; }
  // Returns the streams of calls that have not ended.
  const std::vector<uint32_t>& calls() const { return calls_; }
  // Returns the most calls that the server takes.
  uint32_t max_calls() const { return max_calls_; }

  // Begins a call, whose messages may be compressed by `encoding` if that is
  // not empty. Returns its stream.
  uint32_t Begin(absl::string_view path, absl::string_view encoding = "");
  // Begins a call whose headers continue. Returns its stream.
  uint32_t BeginHeaders(absl::string_view path);

  // Sends a frame, valid or not. Blocks while the server reads nothing, for
  // some seconds at most.
  void Send(Type type, uint8_t flags, uint32_t stream,
            absl::string_view payload);
  // Sends as much of `bytes` as flow control allows. Returns how much.
  size_t SendData(uint32_t stream, absl::string_view bytes);

  // Waits up to `timeout` for frames and obeys them: windows, settings, pings.
  // Returns false if nothing came.
  bool Receive(absl::Duration timeout);

  // Returns the last headers and data of a call, as bytes.
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
  // The bytes that may be sent: on a new stream, on all together, on each.
  int64_t stream_window_ = 65535;
  int64_t window_ = 65535;
  std::map<uint32_t, int64_t> windows_;
  std::map<uint32_t, std::string> answers_;
};

// Returns the first five bytes of a gRPC message.
std::string MessagePrefix(uint32_t length, bool is_compressed = false);

}  // namespace causeway

#endif  // TESTS_HOSTILE_RAW_HTTP2_H_
