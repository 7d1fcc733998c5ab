// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The coordinator's end of the links to its islands: paces what it sends each
// of them, and knows what only a sender can know.
#ifndef SERVER_EDGE_ISLAND_LINKS_H_
#define SERVER_EDGE_ISLAND_LINKS_H_

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

// To one island, all its streams together. Thread-safe.
class IslandLink {
 public:
  explicit IslandLink(Clock now) : now_(std::move(now)) {}

  // A download that an island began: from now on its data are paced to
  // `bytes_per_second` (0: not at all). `peer` is its connection, as
  // PeerAddress writes it.
  void BeginDownload(double bytes_per_second, std::string peer);

  // How long to wait before so many bytes may be sent.
  absl::Duration Take(uint64_t bytes);

  // Adds what is known to `downlink`; `retransmitted` by peer.
  void Describe(const std::map<std::string, uint64_t>& retransmitted,
                v1::LinkUse& downlink) const;

 private:
  const Clock now_;
  Pacer pacer_;

  mutable absl::Mutex mu_;
  absl::Duration paced_ ABSL_GUARDED_BY(mu_);
  // The last ones, without repetition, the oldest first.
  std::vector<std::string> peers_ ABSL_GUARDED_BY(mu_);
};

// Thread-safe.
class IslandLinks {
 public:
  explicit IslandLinks(Clock now) : now_(std::move(now)) {}

  // The link to an island, which has been let in.
  std::shared_ptr<IslandLink> Get(const std::string& island_id);

  // Completes the downlinks in `islands`.
  void Describe(v1::ListIslandsResponse& islands) const;

 private:
  const Clock now_;

  mutable absl::Mutex mu_;
  // By name; never removed: a run has few names.
  std::map<std::string, std::shared_ptr<IslandLink>> links_
      ABSL_GUARDED_BY(mu_);
};

}  // namespace causeway

#endif  // SERVER_EDGE_ISLAND_LINKS_H_
