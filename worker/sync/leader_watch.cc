// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/sync/leader_watch.h"

#include <cstdint>
#include <utility>

namespace causeway {

LeaderWatch::LeaderWatch(std::vector<Address> addresses, Began began)
    : began_(std::move(began)),
      addresses_(std::move(addresses)),
      states_(addresses_.size(), GRPC_CHANNEL_IDLE) {
  {
    absl::MutexLock lock(&mu_);
    for (size_t i = 0; i < addresses_.size(); ++i) Await(i);
  }
  thread_ = std::thread([this] { Loop(); });
}

LeaderWatch::~LeaderWatch() {
  {
    absl::MutexLock lock(&mu_);
    // The end of a channel ends the wait for its change.
    addresses_.clear();
  }
  changes_.Shutdown();
  thread_.join();
}

void LeaderWatch::Await(size_t index) {
  grpc::Channel& channel = *addresses_[index].channel;
  channel.GetState(/*try_to_connect=*/true);
  channel.NotifyOnStateChange(states_[index],
                              gpr_inf_future(GPR_CLOCK_MONOTONIC), &changes_,
                              reinterpret_cast<void*>(index));
}

bool LeaderWatch::Note(size_t index) {
  const grpc_connectivity_state before = states_[index];
  states_[index] = addresses_[index].channel->GetState(/*try_to_connect=*/true);
  return states_[index] == GRPC_CHANNEL_READY && before != GRPC_CHANNEL_READY;
}

bool LeaderWatch::Leads(size_t index) const {
  // The channel may have lost its connection since its state was noted.
  return states_[index] == GRPC_CHANNEL_READY &&
         addresses_[index].channel->GetState(/*try_to_connect=*/false) ==
             GRPC_CHANNEL_READY;
}

void LeaderWatch::Loop() {
  void* tag = nullptr;
  bool ok = false;
  while (changes_.Next(&tag, &ok)) {
    const auto index = reinterpret_cast<uintptr_t>(tag);
    std::string address;
    bool beside_another = false;
    {
      absl::MutexLock lock(&mu_);
      if (addresses_.empty()) continue;
      if (Note(index)) {
        address = addresses_[index].address;
        for (size_t i = 0; i < addresses_.size(); ++i) {
          beside_another |= i != index && Leads(i);
        }
      }
      Await(index);
    }
    if (!address.empty()) began_(address, beside_another);
  }
}

}  // namespace causeway
