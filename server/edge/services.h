// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The methods of the coordinator's services: Coordinator
// (proto/coordinator.proto), Status (proto/status.proto), Control
// (proto/control.proto) and Trust (proto/trust.proto).
#ifndef SERVER_EDGE_SERVICES_H_
#define SERVER_EDGE_SERVICES_H_

#include <string>

#include "server/edge/call.h"
#include "server/edge/connections.h"
#include "server/edge/island_links.h"
#include "server/engine.h"
#include "server/trust/trust.h"

namespace causeway {

// The pointers must outlive the methods. `warning` is RunStatus.warning.
Methods CoordinatorMethods(Engine* engine, IslandLinks* links);
Methods StatusMethods(Engine* engine, const IslandLinks* links,
                      const Connections* connections,
                      const std::string& warning);
Methods ControlMethods(Engine* engine, const Connections* connections);
Methods TrustMethods(Trust* trust);

}  // namespace causeway

#endif  // SERVER_EDGE_SERVICES_H_
