// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// TCP connections between the ranks of an island. Each begins with a TLS 1.3
// handshake by a pre-shared key and an ephemeral Diffie-Hellman exchange (RFC
// 8446, section 2.2): both sides prove that they have the key without revealing
// it, and a recorded handshake cannot be replayed.
//
// Sockets do not block; PollUntil waits for them. The first one makes the
// process ignore SIGPIPE, which writing to a closed connection would raise.
#ifndef WORKER_COLLECTIVE_SECURE_SOCKET_H_
#define WORKER_COLLECTIVE_SECURE_SOCKET_H_

#include <openssl/ssl.h>
#include <poll.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/clock.h"

struct addrinfo;

namespace causeway {

// Waits until one of `files` is ready. DEADLINE_EXCEEDED: none was.
absl::Status PollUntil(absl::Span<pollfd> files, absl::Time deadline,
                       const Clock& now);

// Not thread-safe, except for Shutdown.
class SecureSocket {
 public:
  // Connects to a SecureListener at `address`, host:port, that has the same
  // `key`. `name`, 1 to 64 characters that are not secret, identifies this
  // side. Tries again until a process listens there.
  //   PERMISSION_DENIED  The other side has another key, or is not a rank.
  //   UNAVAILABLE        No process listened until `deadline`.
  //   NOT_FOUND          The network did not reach the address within 10
  //                      seconds.
  //   DEADLINE_EXCEEDED  The listener did not answer.
  //   INVALID_ARGUMENT   `address` is not host:port.
  //   RESOURCE_EXHAUSTED  This process may open no more files. Each socket
  //                       raises the limit (ulimit -n) where the system allows
  //                       that.
  static absl::StatusOr<std::unique_ptr<SecureSocket>> Connect(
      const std::string& address, const std::string& key,
      const std::string& name, absl::Time deadline, const Clock& now);
  // Like Connect, but fails with UNAVAILABLE at once if no process listens.
  // Asks `go_on`, if it is not null, about every second while a listener does
  // not answer, and fails with CANCELLED once that returns false.
  static absl::StatusOr<std::unique_ptr<SecureSocket>> ConnectOnce(
      const std::string& address, const std::string& key,
      const std::string& name, absl::Time deadline, const Clock& now,
      const std::function<bool()>& go_on = nullptr);
  ~SecureSocket();

  // Returns the connecting side's name.
  const std::string& name() const { return name_; }
  int descriptor() const { return descriptor_; }

  // Ends the encryption in both directions. Both sides must call this before
  // anything is written.
  void StopEncrypting() { ssl_ = nullptr; }

  // Move as many bytes as possible without waiting, and return their number,
  // perhaps 0. `bytes` is not empty. UNAVAILABLE: the other side has closed the
  // connection.
  absl::StatusOr<size_t> Read(absl::Span<char> bytes);
  absl::StatusOr<size_t> Write(absl::Span<const char> bytes);
  // Move all bytes.
  absl::Status ReadAll(absl::Span<char> bytes, absl::Time deadline,
                       const Clock& now);
  absl::Status WriteAll(absl::Span<const char> bytes, absl::Time deadline,
                        const Clock& now);

  // Returns how long the other side's system has been silent. This system
  // resends what is not acknowledged, and asks every second if there is nothing
  // to send. Zero if the other system answers, even if its process does not.
  absl::Duration Silence() const;

  // Breaks the connection: reads and writes of both sides fail. Thread-safe.
  void Shutdown();

 private:
  friend class SecureListener;
  struct FreeSsl {
    void operator()(SSL* ssl) const { SSL_free(ssl); }
  };

  // Takes over the descriptor of a socket that does not block.
  SecureSocket(int descriptor, std::string key);
  absl::Status ConnectTo(const addrinfo& address, const std::string& name,
                         absl::Time deadline, const Clock& now,
                         const std::function<bool()>& go_on);
  // Continues the handshake, and returns whether it is complete.
  absl::StatusOr<bool> ContinueHandshake();
  // Returns OK if the operation with this result must only wait.
  absl::Status TlsStatus(int result) const;
  // Returns the event that the handshake or the last operation waits for.
  int16_t events() const;

  static SSL_CTX* Context();
  // OpenSSL's callbacks.
  static unsigned OfferKey(SSL* ssl, const char* hint, char* identity,
                           unsigned identity_size, unsigned char* key,
                           unsigned key_size);
  static unsigned FindKey(SSL* ssl, const char* identity, unsigned char* key,
                          unsigned key_size);

  const int descriptor_;
  std::string key_;
  std::string name_;
  std::unique_ptr<SSL, FreeSsl> ssl_;
  // The bytes written since the keys of the encryption changed.
  size_t written_ = 0;
};

// Accepts connections from peers that have the key. Others are closed and
// logged, after 10 seconds at the latest, and delay no other peer: of 64
// handshakes under way, the oldest makes room for the next.
//
// One thread calls Accept; Stop is thread-safe.
class SecureListener {
 public:
  // Listens on `address`, host:port; port 0 takes a free one. UNAVAILABLE: it
  // cannot listen there.
  static absl::StatusOr<std::unique_ptr<SecureListener>> Listen(
      const std::string& address, std::string key, Clock now);
  ~SecureListener();

  // Returns the numeric host:port.
  const std::string& address() const { return address_; }

  // Returns the next connection whose other side has proved the key.
  //   DEADLINE_EXCEEDED  None came.
  //   CANCELLED          Stop was called.
  absl::StatusOr<std::unique_ptr<SecureSocket>> Accept(absl::Time deadline);
  // Ends the current call of Accept and later ones.
  void Stop();

 private:
  struct Handshake {
    std::unique_ptr<SecureSocket> socket;
    // The other side's address.
    std::string from;
    absl::Time deadline;
  };

  SecureListener(int descriptor, std::string key, Clock now);
  // Accepts one connection and begins its handshake.
  void BeginHandshake();

  const int descriptor_;
  const int stop_;
  const std::string key_;
  const Clock now_;
  std::string address_;
  // Ordered by deadline.
  std::vector<Handshake> handshakes_;
};

}  // namespace causeway

#endif  // WORKER_COLLECTIVE_SECURE_SOCKET_H_
