// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/edge/island_links.h"

#include <algorithm>

#include "common/transport/tcp_connections.h"

namespace causeway {
namespace {

// More connections than an island has at a time.
constexpr size_t kPeers = 128;

}  // namespace

std::shared_ptr<std::string> CompressedChunks::Allocate(uint64_t bytes) {
  if (bytes_->fetch_add(bytes) + bytes > kMostBytes) {
    *bytes_ -= bytes;
    return nullptr;
  }
  return {new std::string, [bytes, all = bytes_](std::string* chunk) {
            delete chunk;
            *all -= bytes;
          }};
}

void IslandLink::BeginDownload(double bytes_per_second, std::string peer) {
  pacer_.SetRate(bytes_per_second);
  absl::MutexLock lock(&mu_);
  if (std::find(peers_.begin(), peers_.end(), peer) != peers_.end()) return;
  peers_.push_back(std::move(peer));
  if (peers_.size() > kPeers) peers_.erase(peers_.begin());
}

absl::Duration IslandLink::Take(uint64_t bytes) {
  const absl::Time now = now_();
  const absl::Duration wait = pacer_.Take(now, bytes) - now;
  absl::MutexLock lock(&mu_);
  paced_ += wait;
  return wait;
}

void IslandLink::Describe(const std::map<std::string, uint64_t>& retransmitted,
                          v1::LinkUse& downlink) const {
  downlink.set_pace_bytes_per_second(pacer_.rate());
  absl::MutexLock lock(&mu_);
  downlink.set_paced_seconds(absl::ToDoubleSeconds(paced_));
  uint64_t sum = 0;
  for (const std::string& peer : peers_) {
    const auto connection = retransmitted.find(peer);
    if (connection != retransmitted.end()) sum += connection->second;
  }
  downlink.set_tcp_bytes_retransmitted(sum);
}

std::shared_ptr<IslandLink> IslandLinks::Get(const std::string& island_id) {
  absl::MutexLock lock(&mu_);
  if (links_.size() >= kMostLinks && links_.count(island_id) == 0) {
    const auto unused = std::find_if(
        links_.begin(), links_.end(),
        [](const auto& link) { return link.second.use_count() == 1; });
    if (unused != links_.end()) links_.erase(unused);
  }
  std::shared_ptr<IslandLink>& link = links_[island_id];
  if (link == nullptr) link = std::make_shared<IslandLink>(now_);
  return link;
}

void IslandLinks::Describe(v1::ListIslandsResponse& islands) const {
  std::map<std::string, uint64_t> retransmitted;
  for (TcpConnection& connection : OpenTcpConnections()) {
    retransmitted[std::move(connection.peer)] = connection.bytes_retransmitted;
  }
  absl::MutexLock lock(&mu_);
  for (v1::IslandStatus& island : *islands.mutable_islands()) {
    const auto link = links_.find(island.island_id());
    if (link == links_.end()) continue;
    link->second->Describe(retransmitted,
                           *island.mutable_progress()->mutable_downlink());
  }
}

}  // namespace causeway
