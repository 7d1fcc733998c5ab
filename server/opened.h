// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#ifndef SERVER_OPENED_H_
#define SERVER_OPENED_H_

#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/strings/substitute.h"
#include "common/as_bytes.h"
#include "proto/coordinator.pb.h"
#include "server/fragment_heads.h"

namespace causeway {

// Stored bytes that are being read; `owner` keeps them alive.
template <typename Response>
struct Opened {
  // The first response, without a chunk.
  Response response;
  absl::string_view bytes;
  std::shared_ptr<const void> owner;
};
using OpenedParameters = Opened<v1::FetchParametersResponse>;
using OpenedUpdate = Opened<v1::FetchUpdateResponse>;

// Opens the requested parameters. NOT_FOUND if they are not kept.
inline absl::StatusOr<OpenedParameters> OpenVersion(
    const FragmentHeads& heads, const v1::FetchParametersRequest& request) {
  std::shared_ptr<const StoredFragment> version =
      heads.Find(request.fragment(), request.version());
  if (version == nullptr) {
    return absl::NotFoundError(
        absl::Substitute("version $0 of fragment $1 is not, or no longer, "
                         "kept: fetch the newest",
                         request.version(), request.fragment()));
  }
  OpenedParameters opened{.bytes = AsStringView(version->contents().theta)};
  *opened.response.mutable_head() = version->contents().head;
  opened.response.set_total_bytes(opened.bytes.size());
  opened.owner = std::move(version);
  return opened;
}

}  // namespace causeway

#endif  // SERVER_OPENED_H_
