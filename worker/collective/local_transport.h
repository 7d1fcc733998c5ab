// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The transport between threads of one process: a message is one copy.
#ifndef WORKER_COLLECTIVE_LOCAL_TRANSPORT_H_
#define WORKER_COLLECTIVE_LOCAL_TRANSPORT_H_

#include <memory>
#include <vector>

#include "worker/collective/transport.h"

namespace causeway {

// Returns connected transports of ranks 0 .. size - 1. Each may be used by a
// thread of its own. Destroying one closes it.
std::vector<std::unique_ptr<Transport>> MakeLocalTransports(int size);

}  // namespace causeway

#endif  // WORKER_COLLECTIVE_LOCAL_TRANSPORT_H_
