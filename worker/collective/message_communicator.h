// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Collectives made of messages between ranks, with the same algorithms, order
// of sums and diagnosis over every Transport.
//
// Every operation begins with a header from each rank to each other, which says
// what the rank is about to do and how long it was away. Then data goes
// directly to the rank that needs it: each rank sends and receives (size - 1) /
// size of the vector, as in a ring, but in one hop, so that the source of late
// data is known.
//
// Finding the culprit. A rank that another one waits for in vain may itself be
// waiting for a third. So a failing rank writes to the rendezvous which rank it
// waited for, and then checks whether that rank has written there, too. If so,
// that rank is also a victim, and the search continues with the rank that it
// names. It ends at a rank that others wait for and that has written nothing.
// The culprit is this rank or, if the network does not reach it from some
// ranks, their link to it.
#ifndef WORKER_COLLECTIVE_MESSAGE_COMMUNICATOR_H_
#define WORKER_COLLECTIVE_MESSAGE_COMMUNICATOR_H_

#include <memory>
#include <optional>

#include "absl/time/time.h"
#include "common/clock.h"
#include "worker/collective/communicator.h"
#include "worker/collective/device_collectives.h"
#include "worker/collective/rank_stamps.h"
#include "worker/collective/rendezvous.h"
#include "worker/collective/transport.h"

namespace causeway {

// The timeout of a communicator for the replica, whose operations ranks may
// reach at any time.
inline constexpr absl::Duration kNoLimit = absl::Hours(24 * 365);

struct MessageCommunicatorOptions {
  // The time limit of each operation. It must exceed the longest transfer plus
  // the time by which ranks' computations differ. A failure is reported within
  // this time and a few seconds.
  absl::Duration timeout = absl::Minutes(1);
  Clock now;
  // The lane in which operations are stamped (rank_stamps.h), if any.
  std::optional<RankLane> lane;
};

// Makes a communicator on a connected transport. All communicators among the
// same ranks share `rendezvous`, which outlives them: each rank reports one
// failure there, and all of its communicators then blame the same rank.
//
// With `device`, ReduceScatter and AllGather work on that device's memory, and
// `device` moves the data. Writes to the memory must be complete before the
// operation starts. Messages then carry only headers and outcomes. Either all
// ranks have a `device` or none.
std::unique_ptr<Communicator> MakeMessageCommunicator(
    const MessageCommunicatorOptions& options,
    std::unique_ptr<Transport> transport, Rendezvous* rendezvous,
    std::unique_ptr<DeviceCollectives> device = nullptr);

}  // namespace causeway

#endif  // WORKER_COLLECTIVE_MESSAGE_COMMUNICATOR_H_
