// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The page on which a run is watched, and the JSON that it asks for. The page
// only reads.
//
//   /api/status   PageData (proto/page.proto) without events and history
//   /api/history  GetHistoryResponse; ?training_after=V&validation_after=V
//   /api/events   PageData with the newest events only, at most 200; ?after=ID
//
// They answer 503 if the disk does not give what was asked for.
#ifndef SERVER_PAGE_PAGE_HANDLERS_H_
#define SERVER_PAGE_PAGE_HANDLERS_H_

#include <map>
#include <string>

#include "common/clock.h"
#include "common/http/http_server.h"
#include "server/edge/services.h"

namespace causeway {

// `status` must outlive the handlers.
std::map<std::string, HttpHandler> PageHandlers(const StatusSource& status,
                                                Clock now);

}  // namespace causeway

#endif  // SERVER_PAGE_PAGE_HANDLERS_H_
