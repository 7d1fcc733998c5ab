// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// FetchUpdate and FetchParameters, of a coordinator and of a follower.
#ifndef SERVER_EDGE_SEND_STORED_H_
#define SERVER_EDGE_SEND_STORED_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "absl/status/statusor.h"
#include "common/status_macros.h"
#include "server/edge/calls.h"
#include "server/opened.h"

namespace causeway {

// The sender. What it points to must outlive the methods.
struct DownloadServer {
  DownloadHost host;
  IslandLinks* links = nullptr;
  // Returns the address of a follower from which an island in `region` should
  // fetch instead, or "". May be null.
  std::function<std::string(const std::string& region,
                            const std::string& island)>
      find_near;
};

// Sends the download that `open` returns for a Request; the first Response
// describes it. `open` returns nothing if the download is not there yet. `sent`
// is called when a stream has sent its part; it may be null.
template <typename Request, typename Response>
Method SendStored(DownloadServer server,
                  std::function<absl::StatusOr<std::optional<Opened<Response>>>(
                      const Request&)>
                      open,
                  std::function<void(const v1::FragmentHead&)> sent = nullptr) {
  return [=](BegunCall begun) {
    const Caller caller = begun.caller;
    return NewDownloadCall(
        std::move(begun), server.host,
        [=, request = Request()](grpc::ByteBuffer& bytes) mutable
        -> absl::StatusOr<std::unique_ptr<Download>> {
          // Each try finds out whether the caller still may ask.
          RETURN_IF_ERROR(bytes.Valid() ? ParseRequest(caller, bytes, request)
                                        : caller.Check(request));
          bytes.Clear();
          ASSIGN_OR_RETURN(const auto stored, open(request));
          if (!stored.has_value()) return std::unique_ptr<Download>();
          RETURN_IF_ERROR(CheckDownload(request.stream()));
          const std::string& island = request.identity().island_id();
          auto response = std::make_unique<Response>(stored->response);
          if (server.find_near != nullptr && !stored->bytes.empty()) {
            response->set_follower(server.find_near(request.region(), island));
          }
          const bool is_elsewhere = !response->follower().empty();
          auto download = std::make_unique<Download>(
              Download{.chunk_field = Response::kChunkFieldNumber,
                       .bytes = is_elsewhere ? "" : stored->bytes,
                       .owner = stored->owner,
                       .offset = is_elsewhere ? 0 : request.offset(),
                       .stream = request.stream(),
                       .link = server.links->Get(island)});
          download->description = std::move(response);
          // Encodings of updates are compressed already.
          if constexpr (std::is_same_v<Request, v1::FetchParametersRequest>) {
            if (request.compress()) {
              download->compress = &server.links->compressed_chunks();
            }
          }
          if (sent != nullptr && !is_elsewhere) {
            download->sent = [=, head = stored->response.head()] {
              sent(head);
            };
          }
          download->link->BeginDownload(
              request.stream().pace_bytes_per_second(), caller.peer());
          return download;
        });
  };
}

}  // namespace causeway

#endif  // SERVER_EDGE_SEND_STORED_H_
