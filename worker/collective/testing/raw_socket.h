// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Plain TCP on loopback, for tests that play a stranger to the ranks.
#ifndef WORKER_COLLECTIVE_TESTING_RAW_SOCKET_H_
#define WORKER_COLLECTIVE_TESTING_RAW_SOCKET_H_

#include <memory>
#include <string>
#include <thread>

namespace causeway {

// A connection that blocks. Not thread-safe.
class RawSocket {
 public:
  // Connects to `address`, 127.0.0.1:port.
  explicit RawSocket(const std::string& address);
  // Takes over the descriptor.
  explicit RawSocket(int descriptor) : descriptor_(descriptor) {}
  ~RawSocket();

  int descriptor() const { return descriptor_; }
  // Returns false if the other side has closed the connection.
  bool Send(const std::string& bytes);
  // Returns what comes until the other side closes the connection.
  std::string ReadToEnd();
  // Returns what comes next, up to 64 KiB; empty at the end.
  std::string Read();

 private:
  const int descriptor_;
};

// Listens on a free port.
class RawListener {
 public:
  RawListener();
  ~RawListener();
  const std::string& address() const { return address_; }
  std::unique_ptr<RawSocket> Accept();

 private:
  int descriptor_ = -1;
  std::string address_;
};

// Passes bytes on between a client and a server, and keeps them.
class Recorder {
 public:
  explicit Recorder(const std::string& server);
  ~Recorder();

  // Returns the address for the client.
  const std::string& address() const { return listener_.address(); }
  // Waits until both sides have closed their connections.
  void Finish() { thread_.join(); }
  // Return what the client and the server have sent, after Finish.
  const std::string& sent() const { return sent_; }
  const std::string& received() const { return received_; }

 private:
  RawListener listener_;
  std::string sent_;
  std::string received_;
  std::thread thread_;
};

}  // namespace causeway

#endif  // WORKER_COLLECTIVE_TESTING_RAW_SOCKET_H_
