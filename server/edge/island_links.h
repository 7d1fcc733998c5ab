// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The coordinator's end of the links to its islands: paces what it sends, and
// measures what only a sender can.
#ifndef SERVER_EDGE_ISLAND_LINKS_H_
#define SERVER_EDGE_ISLAND_LINKS_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/transport/pacer.h"
#include "proto/status.pb.h"

namespace causeway {

// The memory for compressed chunks on their way to all islands. Thread-safe.
class CompressedChunks {
 public:
  static constexpr uint64_t kMostBytes = 128 << 20;

  // Returns memory for a chunk of `bytes` bytes, or null if none is left. The
  // memory is counted until its last owner is gone.
  std::shared_ptr<std::string> Allocate(uint64_t bytes);

 private:
  // Shared because the owners of a chunk may outlive this object.
  const std::shared_ptr<std::atomic<uint64_t>> bytes_ =
      std::make_shared<std::atomic<uint64_t>>(0);
};

// The link to one island, all its streams together. Thread-safe.
class IslandLink {
 public:
  explicit IslandLink(Clock now) : now_(std::move(now)) {}

  // Notes that the island began a download on the connection `peer`, in
  // PeerAddress's form. Paces the island's data to `bytes_per_second` from now
  // on; 0 means no pacing.
  void BeginDownload(double bytes_per_second, std::string peer);

  // Returns how long to wait before `bytes` bytes may be sent.
  absl::Duration Take(uint64_t bytes);

  // Adds the sender's measurements to `downlink`. `retransmitted` is by peer.
  void Describe(const std::map<std::string, uint64_t>& retransmitted,
                v1::LinkUse& downlink) const;

 private:
  const Clock now_;
  Pacer pacer_;

  mutable absl::Mutex mu_;
  absl::Duration paced_ ABSL_GUARDED_BY(mu_);
  // The distinct peers of the newest downloads, oldest first.
  std::vector<std::string> peers_ ABSL_GUARDED_BY(mu_);
};

// Thread-safe.
class IslandLinks {
 public:
  explicit IslandLinks(Clock now) : now_(std::move(now)) {}

  // At least this many islands' links are kept.
  static constexpr size_t kMostLinks = 1024;

  // Returns the link to an island that has joined.
  std::shared_ptr<IslandLink> Get(const std::string& island_id);

  CompressedChunks& compressed_chunks() { return compressed_chunks_; }

  // Adds the sender's measurements to `islands`.
  void Describe(v1::ListIslandsResponse& islands) const;

 private:
  const Clock now_;
  CompressedChunks compressed_chunks_;

  mutable absl::Mutex mu_;
  // By island. An unused link makes room for another one.
  std::map<std::string, std::shared_ptr<IslandLink>> links_
      ABSL_GUARDED_BY(mu_);
};

}  // namespace causeway

#endif  // SERVER_EDGE_ISLAND_LINKS_H_
