// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Collectives made of messages between ranks: the same algorithms, order of
// sums and diagnosis over every Transport.
//
// Every operation begins with a header from each rank to each, which says what
// it is about to do and how long it was away. Then data goes directly from the
// rank that has it to the one that needs it: each rank sends and receives
// (size - 1) / size of the vector, as a ring does, but in one hop, so that what
// comes late is known by the name of the rank that it comes from.
//
// Finding the culprit. A rank that waits in vain may itself be kept waiting by
// a third. So a rank that fails first writes to the rendezvous whom it waited
// for, and then looks whether that one has written something itself: if it has,
// it is a victim too, and the search goes on with the one that it names. Where
// it ends is the culprit: a rank that others wait for and that says nothing.
#ifndef WORKER_COLLECTIVE_MESSAGE_COMMUNICATOR_H_
#define WORKER_COLLECTIVE_MESSAGE_COMMUNICATOR_H_

#include <memory>

#include "absl/time/time.h"
#include "common/clock.h"
#include "worker/collective/communicator.h"
#include "worker/collective/device_collectives.h"
#include "worker/collective/rendezvous.h"
#include "worker/collective/transport.h"

namespace causeway {

struct MessageCommunicatorOptions {
  // Limit of each operation. Longer than the longest transfer and than ranks
  // are apart in their computations. A failure is reported within this and a
  // few seconds.
  absl::Duration timeout = absl::Minutes(1);
  Clock now;
  // Communicator::rounds(), with more than one rank; the same on all, and not
  // with a device. Takes 2 bytes per value of the longest vector.
  bool rounds = false;
};

// Takes the connected transport. `rendezvous` is common to its ranks, also for
// other communicators among them: each rank reports one failure there, and all
// of its communicators then blame the same rank. It outlives the communicator.
//
// With `device`, the memory of ReduceScatter and AllGather is that device's,
// and `device` moves it; what is written there must be complete before the
// operation is started. Messages then carry headers and outcomes only. All
// ranks have one or none.
std::unique_ptr<Communicator> MakeMessageCommunicator(
    const MessageCommunicatorOptions& options,
    std::unique_ptr<Transport> transport, Rendezvous* rendezvous,
    std::unique_ptr<DeviceCollectives> device = nullptr);

}  // namespace causeway

#endif  // WORKER_COLLECTIVE_MESSAGE_COMMUNICATOR_H_
