// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The server's side of the streaming methods.
#ifndef SERVER_EDGE_CALLS_H_
#define SERVER_EDGE_CALLS_H_

#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "common/listeners.h"
#include "server/edge/call.h"
#include "server/edge/disk_threads.h"
#include "server/edge/upload_turns.h"
#include "server/engine.h"
#include "server/storage/commit_log.h"

namespace causeway {

// The control stream of an island: receives heartbeats, and sends the state of
// the run after each one and whenever it changes.
Call* NewSessionCall(BegunCall begun, Engine* engine);

// Says where WatchEvents finds news and events: in an engine or a follower,
// which outlives the call.
struct EventHost {
  Listeners* news = nullptr;
  std::function<absl::StatusOr<std::shared_ptr<CommitLog>>()> log;
  // Says whether the log is a copy, which may lack events that a watcher has
  // seen.
  bool is_copy = false;
};

// WatchEvents: sends the log's events, then new ones. Goes through the whole
// log if need be, so it needs threads.
Call* NewWatchEventsCall(BegunCall begun, EventHost host);

// Follow: sends what a follower's copy of the run lacks, for which it needs
// threads, then every change, for which it uses `feeders`.
Call* NewFollowCall(BegunCall begun, Engine* engine, DiskThreads* feeders);

// Contribute: an upload, or a further stream of one. Needs threads to complete
// it. `uploads` holds the
// uploads that several streams share.
Call* NewContributeCall(BegunCall begun, Engine* engine,
                        SharedUploads* uploads);

}  // namespace causeway

#endif  // SERVER_EDGE_CALLS_H_
