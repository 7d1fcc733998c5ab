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
// They answer 503 if the data cannot be read, and while an earlier request of
// the same kind waits, for example for a disk that stands still. So one of the
// kPageThreads threads of a server is always free for all other requests.
#ifndef SERVER_PAGE_PAGE_HANDLERS_H_
#define SERVER_PAGE_PAGE_HANDLERS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/clock.h"
#include "common/http/http_server.h"
#include "proto/page.pb.h"
#include "proto/status.pb.h"
#include "server/edge/copy_source.h"
#include "server/edge/services.h"
#include "server/rules/event_filter.h"

namespace causeway {

// The source of the page's data. Called from any thread.
struct PageSource {
  // The run, islands, fragments, quarantine and the newest event's id.
  std::function<absl::StatusOr<v1::PageData>()> status;
  std::function<absl::StatusOr<v1::GetHistoryResponse>(
      const v1::GetHistoryRequest&)>
      history;
  // Returns the newest events after an id, at most the given number.
  std::function<absl::StatusOr<std::vector<v1::Event>>(
      uint64_t after, uint64_t most, const EventFilter&)>
      events;
};
// Return the data of a coordinator, and of a follower. The arguments must
// outlive them.
PageSource PageOf(const StatusSource& status);
PageSource PageOf(CopySource* copy);

inline constexpr int kPageThreads = 4;

std::map<std::string, HttpHandler> PageHandlers(const PageSource& source,
                                                Clock now);

}  // namespace causeway

#endif  // SERVER_PAGE_PAGE_HANDLERS_H_
