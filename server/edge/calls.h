// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The server's side of each method that streams.
#ifndef SERVER_EDGE_CALLS_H_
#define SERVER_EDGE_CALLS_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/listeners.h"
#include "google/protobuf/message_lite.h"
#include "grpcpp/grpcpp.h"
#include "proto/coordinator.pb.h"
#include "server/edge/call.h"
#include "server/edge/island_links.h"
#include "server/edge/opening_threads.h"
#include "server/edge/upload_turns.h"
#include "server/engine.h"
#include "server/storage/commit_log.h"

namespace causeway {

// The control stream of an island: receives heartbeats, and sends the state of
// the run after each one and whenever it changes.
Call* NewSessionCall(BegunCall begun, Engine* engine);

// WatchEvents looks into the log whenever there is news. Both are those of an
// engine or a follower, which outlives the call.
struct EventHost {
  Listeners* news = nullptr;
  std::function<absl::StatusOr<std::shared_ptr<CommitLog>>()> log;
  // Says whether the log is a copy, which may be behind what a watcher has
  // seen.
  bool is_copy = false;
};

// WatchEvents: sends the log's events, then new ones as they are added.
Call* NewWatchEventsCall(BegunCall begun, EventHost host);

// Follow: sends what a follower's copy of the run lacks, then every change.
Call* NewFollowCall(BegunCall begun, Engine* engine);

// Contribute: an upload, or a further stream of one. `uploads` holds the
// uploads that several streams share.
Call* NewContributeCall(BegunCall begun, Engine* engine,
                        SharedUploads* uploads);

// One stream of a download: sends stored bytes in paced chunks, from an offset.
struct Download {
  // The first response, without a chunk. Each later response has the same type
  // and contains only a chunk (v1::Chunk, in `chunk_field`).
  std::unique_ptr<google::protobuf::MessageLite> description;
  int chunk_field = 0;
  // The stored bytes; `owner` keeps them alive.
  absl::string_view bytes;
  std::shared_ptr<const void> owner;
  // The offset at which the island resumes.
  uint64_t offset = 0;
  // Where to compress chunks, if there is memory; `bytes` must then be fp32
  // values. Null if they are to be sent as they are.
  CompressedChunks* compress = nullptr;
  v1::StreamOptions stream;
  std::shared_ptr<IslandLink> link;
  // Called when this stream has sent its part; may be null.
  std::function<void()> sent;
};

// What downloads need of an engine or a follower: the news at which they try
// again, and the count of bytes sent; and of its server: the threads on which
// they are opened. All of this outlives them.
struct DownloadHost {
  Listeners* news = nullptr;
  std::atomic<uint64_t>* bytes_sent = nullptr;
  OpeningThreads* openers = nullptr;
};

// Checks how a download is to be sent. INVALID_ARGUMENT says which value is out
// of range.
absl::Status CheckDownload(const v1::StreamOptions& stream);

// Opens the download that a request asks for, or says why there is none.
// Returns null if it is not there yet; the call then tries again at the next
// news. Called on DownloadHost::openers, one call at a time.
using DownloadOpener =
    std::function<absl::StatusOr<std::unique_ptr<Download>>(grpc::ByteBuffer&)>;

// Sends the download that `open` returns for the request, or ends with its
// error.
Call* NewDownloadCall(BegunCall begun, const DownloadHost& host,
                      DownloadOpener open);

}  // namespace causeway

#endif  // SERVER_EDGE_CALLS_H_
