// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Encoded contributions between their first chunk and their merge, in memory
// that is bounded by configuration: an upload gets all its memory when it
// begins, or is told to come back later.
//
// Uploads are named by ContributionKey. One that breaks off keeps its bytes and
// goes on where it stopped; Discard ends it. An upload may begin with an open
// description (IsOpen in quantization/encoded_object.h), because its sender
// still encodes; Verify brings the rest.
//
// Thread-safe. Uploads do not wait for one another: each has a lock of its own
// for its checksums, copies and the check of its values.
#ifndef SERVER_STAGING_H_
#define SERVER_STAGING_H_

#include <cstdint>
#include <map>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "common/transport/chunk.h"
#include "proto/fragment.pb.h"
#include "server/buffer_pool.h"
#include "server/rules/round.h"

namespace causeway {

// A verified contribution; `owner` keeps the bytes alive.
struct StagedEncoding {
  absl::string_view bytes;
  std::shared_ptr<const void> owner;
};

class Staging {
 public:
  explicit Staging(uint64_t capacity_bytes)
      : capacity_(capacity_bytes), pool_(capacity_bytes) {}

  // Starts an upload of `object` (already checked with CheckOffer), or goes on
  // with one. Returns the offset of the next chunk. An upload of other bytes
  // under the same key starts over, and so does one that is offered with an
  // open description. Whoever offers bytes that began with an open description
  // again, now with size and digest, goes on with them; that they are the same
  // is for Verify to find out. `max_bytes` are the most that the encoding can
  // have.
  //   RESOURCE_EXHAUSTED   no memory is left; retry after a round has closed.
  //   FAILED_PRECONDITION  other bytes under the key have been verified.
  absl::StatusOr<uint64_t> Begin(const ContributionKey& key,
                                 const v1::EncodedObject& object,
                                 uint64_t max_bytes);

  // Takes the next chunk; true once the bytes are as many as the description
  // says, never while it is open.
  //   UNAVAILABLE  the upload was discarded meanwhile, or the chunk is not the
  //                next one because two streams feed the upload: Begin again.
  //   else         as ChunkAssembler::Add.
  absl::StatusOr<bool> Append(const ContributionKey& key, const Chunk& chunk);

  // Checks the bytes against `object`, which describes all of them and is what
  // the upload began with, as far as that said, and returns the Euclidean norm
  // of their values. From then on they are not replaced, only discarded. What
  // does not verify is discarded. Reads none of the bytes: Append has looked at
  // them.
  //   UNAVAILABLE          there is no such upload (any more): Begin again.
  //   FAILED_PRECONDITION  it is not complete.
  //   INVALID_ARGUMENT     `object` contradicts the open description.
  //   else                 as CheckArrival and EncodingReader::Norm.
  absl::StatusOr<double> Verify(const ContributionKey& key,
                                const v1::EncodedObject& object);

  // A verified upload. Its bytes stay valid after Discard.
  //   UNAVAILABLE          there is no such upload.
  //   FAILED_PRECONDITION  it has not been verified.
  absl::StatusOr<StagedEncoding> Get(const ContributionKey& key) const;

  void Discard(const ContributionKey& key);

  // Drops whatever builds on a version of `fragment` below `version`: uploads
  // that were late or whose island has gone.
  void DiscardBefore(uint32_t fragment, uint64_t version);

  // The sum of what the uploads are described with; of open ones, the most they
  // can have.
  uint64_t used_bytes() const;

 private:
  struct Upload;
  using Uploads = std::map<ContributionKey, std::shared_ptr<Upload>>;

  // Null if there is none.
  std::shared_ptr<Upload> Find(const ContributionKey& key) const;
  // Gives the upload's memory back; returns the next one.
  Uploads::iterator EraseLocked(Uploads::iterator upload)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // From now on `bytes` of used_ are the upload's.
  void Account(Upload& upload, uint64_t bytes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const uint64_t capacity_;
  BufferPool pool_;
  // Taken before an upload's own lock, never after.
  mutable absl::Mutex mu_;
  Uploads uploads_ ABSL_GUARDED_BY(mu_);
  uint64_t used_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace causeway

#endif  // SERVER_STAGING_H_
