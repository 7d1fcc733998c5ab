// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Encoded contributions between their first chunk and their merge, in memory
// that is bounded by configuration: an upload gets all its memory when it
// begins, or is told to come back later.
//
// Uploads are named by ContributionKey. One that breaks off keeps its bytes and
// goes on where it stopped; Discard ends it. Thread-safe.
#ifndef SERVER_STAGING_H_
#define SERVER_STAGING_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "proto/fragment.pb.h"
#include "quantization/chunk.h"
#include "server/round.h"

namespace causeway {

class Staging {
 public:
  explicit Staging(uint64_t capacity_bytes) : capacity_(capacity_bytes) {}

  // Starts an upload of `object` (already checked with CheckDescription), or
  // goes on with one. Returns the offset of the next chunk. An upload of other
  // bytes under the same key starts over.
  //   RESOURCE_EXHAUSTED   no memory is left; retry after a round has closed.
  //   FAILED_PRECONDITION  other bytes under the key have been verified.
  absl::StatusOr<uint64_t> Begin(const ContributionKey& key,
                                 const v1::EncodedObject& object);

  // Takes the next chunk; true once it was the last one.
  //   UNAVAILABLE  the upload was discarded meanwhile, or the chunk is not the
  //                next one because two streams feed the upload: Begin again.
  //   else         as ChunkAssembler::Add.
  absl::StatusOr<bool> Append(const ContributionKey& key,
                              const v1::Chunk& chunk);

  // Checks the complete bytes against `object`, which the upload began with.
  // From then on they are not replaced, only discarded. What does not verify is
  // discarded.
  //   UNAVAILABLE          there is no such upload (any more): Begin again.
  //   FAILED_PRECONDITION  it is not complete.
  //   else                 as VerifyEncoding.
  absl::Status Verify(const ContributionKey& key,
                      const v1::EncodedObject& object);

  // The bytes of a complete upload. They stay valid after Discard. Errors as
  // Verify.
  absl::StatusOr<std::shared_ptr<const std::string>> Get(
      const ContributionKey& key) const;

  void Discard(const ContributionKey& key);

  // Drops whatever builds on a version of `fragment` below `version`: uploads
  // that were late or whose island has gone.
  void DiscardBefore(uint32_t fragment, uint64_t version);

  uint64_t used_bytes() const;

 private:
  struct Upload {
    explicit Upload(const v1::EncodedObject& described)
        : object(described),
          bytes(std::make_shared<std::string>(described.encoded_bytes(), '\0')),
          assembler(absl::MakeSpan(*bytes)) {}

    const v1::EncodedObject object;
    const std::shared_ptr<std::string> bytes;
    ChunkAssembler assembler;
    bool verified = false;
  };
  using Uploads = std::map<ContributionKey, std::unique_ptr<Upload>>;

  // Gives the upload's memory back; returns the next one.
  Uploads::iterator EraseLocked(Uploads::iterator upload)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const uint64_t capacity_;
  mutable absl::Mutex mu_;
  Uploads uploads_ ABSL_GUARDED_BY(mu_);
  uint64_t used_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace causeway

#endif  // SERVER_STAGING_H_
