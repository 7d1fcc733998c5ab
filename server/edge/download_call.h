// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The server's side of one stream of a download: stored bytes, from an offset
// on, in chunks, paced.
#ifndef SERVER_EDGE_DOWNLOAD_CALL_H_
#define SERVER_EDGE_DOWNLOAD_CALL_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/message_lite.h"
#include "grpcpp/grpcpp.h"
#include "proto/coordinator.pb.h"
#include "server/edge/call.h"
#include "server/edge/island_links.h"
#include "server/engine.h"

namespace causeway {

struct Download {
  // The first response, without a chunk; the others are of the same type, with
  // a chunk (v1::Chunk, in `chunk_field`) and nothing else.
  std::unique_ptr<google::protobuf::MessageLite> description;
  int chunk_field = 0;
  // What is stored; `owner` keeps it alive.
  absl::string_view bytes;
  std::shared_ptr<const void> owner;
  // Where the island goes on from.
  uint64_t offset = 0;
  // Whether chunks are compressed: `bytes` are fp32 values.
  bool compress = false;
  v1::StreamOptions stream;
  std::shared_ptr<IslandLink> link;
};

// INVALID_ARGUMENT says what in a request for `size` stored bytes is out of
// range.
absl::Status CheckDownload(uint64_t size, uint64_t offset,
                           const v1::StreamOptions& stream);

// Opens the download that a request asks for, or says why there is none. Null:
// it is not there yet; it is tried again when the engine has news. From any
// thread, one call at a time.
using DownloadOpener =
    std::function<absl::StatusOr<std::unique_ptr<Download>>(grpc::ByteBuffer&)>;

// Sends what `open` gives for the request, or ends with the error.
Call* NewDownloadCall(CallTicket ticket, Engine* engine, DownloadOpener open);

}  // namespace causeway

#endif  // SERVER_EDGE_DOWNLOAD_CALL_H_
