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
#include "common/status_macros.h"
#include "proto/coordinator.pb.h"
#include "quantization/codec.h"
#include "quantization/encoded_object.h"
#include "server/fragment_heads.h"
#include "server/storage/commit_log.h"
#include "server/storage/fragment_store.h"

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

// Opens the update that led to a committed version. NOT_FOUND if it is not
// kept, or has another encoding than `spec`, with which islands decode: a
// restart can change the run's.
inline absl::StatusOr<std::shared_ptr<const StoredUpdate>> OpenStoredUpdate(
    FragmentHeads& heads, const CommitRecord& commit, const CodecSpec& spec) {
  ASSIGN_OR_RETURN(std::shared_ptr<const StoredUpdate> stored,
                   heads.OpenUpdate(commit));
  if (SpecOf(stored->contents().object) == spec) return stored;
  return absl::NotFoundError(absl::Substitute(
      "the update to version $0 of fragment $1 has the encoding of an earlier "
      "configuration",
      commit.head.version(), commit.head.fragment()));
}

}  // namespace causeway

#endif  // SERVER_OPENED_H_
