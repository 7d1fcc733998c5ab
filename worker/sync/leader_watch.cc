// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/sync/leader_watch.h"

#include <cstdint>
#include <utility>

#include "absl/algorithm/container.h"

namespace causeway {

LeaderWatch::LeaderWatch(std::vector<Address> addresses,
                         std::function<void(const std::string& address)> moved)
    : moved_(std::move(moved)),
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
  const auto is_ready = [](const Address& address) {
    return address.channel->GetState(/*try_to_connect=*/false) ==
           GRPC_CHANNEL_READY;
  };
  const grpc_connectivity_state before = states_[index];
  states_[index] = addresses_[index].channel->GetState(/*try_to_connect=*/true);
  return states_[index] == GRPC_CHANNEL_READY && before != GRPC_CHANNEL_READY &&
         absl::c_count_if(addresses_, is_ready) > 1;
}

void LeaderWatch::Loop() {
  void* tag = nullptr;
  bool ok = false;
  while (changes_.Next(&tag, &ok)) {
    const auto index = reinterpret_cast<uintptr_t>(tag);
    std::string address;
    {
      absl::MutexLock lock(&mu_);
      if (addresses_.empty()) continue;
      if (Note(index)) address = addresses_[index].address;
      Await(index);
    }
    if (!address.empty()) moved_(address);
  }
}

}  // namespace causeway
