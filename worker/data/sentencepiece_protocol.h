// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The protocol between a program and the process that holds libsentencepiece
// (sentencepiece_tool.cc).
//
// A separate process is necessary: Debian's libsentencepiece exports its own
// old protobuf, and its header declares its own absl::string_view. In one
// process, this protobuf and Causeway's would call each other's functions and
// crash before main. The tool links nothing but the library.
//
// The two ends of a stream socket, on one machine, exchange requests and
// answers in turn. Each is a Frame and `payload_bytes` bytes, in native byte
// order.
//
//   code      request payload     answer payload
//   kLoad     content of a model  ModelFacts
//   kEncode   text                int32 ids
//   kDecode   int32 ids           text
//
// An answer has code kOk, or kError and a message for people. kLoad comes
// first. The tool ends when the other end closes.
//
// This file uses the standard library only, for the same reason.
#ifndef WORKER_DATA_SENTENCEPIECE_PROTOCOL_H_
#define WORKER_DATA_SENTENCEPIECE_PROTOCOL_H_

#include <sys/socket.h>
#include <sys/types.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <string>

namespace causeway {

enum class SentencePieceCode : uint32_t {
  kOk = 0,
  kError = 1,
  kLoad = 2,
  kEncode = 3,
  kDecode = 4,
};

struct SentencePieceFrame {
  SentencePieceCode code;
  uint32_t unused = 0;
  uint64_t payload_bytes;
};

struct SentencePieceModelFacts {
  int32_t vocabulary;
  // The ids of </s> and <s>, or -1.
  int32_t end_id;
  int32_t begin_id;
};

// Sends or receives all bytes. Returns false if the other end is gone.
inline bool SendAll(int socket, const void* data, size_t bytes) {
  const char* next = static_cast<const char*>(data);
  while (bytes > 0) {
    // MSG_NOSIGNAL makes a dead peer an error; SIGPIPE would end this process.
    const ssize_t sent = send(socket, next, bytes, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    next += sent;
    bytes -= static_cast<size_t>(sent);
  }
  return true;
}

inline bool ReceiveAll(int socket, void* data, size_t bytes) {
  char* next = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t received = recv(socket, next, bytes, 0);
    if (received < 0 && errno == EINTR) continue;
    if (received <= 0) return false;
    next += received;
    bytes -= static_cast<size_t>(received);
  }
  return true;
}

inline bool SendFrame(int socket, SentencePieceCode code, const void* payload,
                      size_t payload_bytes) {
  const SentencePieceFrame frame = {.code = code,
                                    .payload_bytes = payload_bytes};
  return SendAll(socket, &frame, sizeof(frame)) &&
         SendAll(socket, payload, payload_bytes);
}

inline bool ReceiveFrame(int socket, SentencePieceCode& code,
                         std::string& payload) {
  SentencePieceFrame frame;
  if (!ReceiveAll(socket, &frame, sizeof(frame))) return false;
  code = frame.code;
  payload.resize(frame.payload_bytes);
  return ReceiveAll(socket, payload.data(), payload.size());
}

}  // namespace causeway

#endif  // WORKER_DATA_SENTENCEPIECE_PROTOCOL_H_
