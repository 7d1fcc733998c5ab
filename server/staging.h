// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Holds encoded contributions between their first chunk and their merge. The
// configuration bounds the memory: an upload gets all its memory when it
// begins, or is refused for the time being.
//
// A ContributionKey names an upload. An upload that breaks off keeps its bytes
// and resumes where it stopped; Discard ends it. An upload may begin while its
// sender still encodes, with an open description (IsOpen in
// quantization/encoded_object.h); Verify then gets the full one.
//
// Thread-safe. Uploads do not wait for one another: each has its own lock for
// checksums, copies and the check of its values.
#ifndef SERVER_STAGING_H_
#define SERVER_STAGING_H_

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "common/transport/chunk.h"
#include "proto/fragment.pb.h"
#include "quantization/strips/encoding_reader.h"
#include "server/buffer_pool.h"
#include "server/rules/round.h"

namespace causeway {

// A verified contribution; `owner` keeps the bytes alive.
struct StagedEncoding {
  absl::string_view bytes;
  // Its decompressed codes for OpenDecoder, if they were kept.
  absl::Span<const char> codes;
  std::shared_ptr<const void> owner;
};

class Staging {
 public:
  // Holds at most `capacity_bytes` of encodings. A contribution is decompressed
  // for its check as it arrives. Up to `codes_bytes` of the decompressed codes
  // are kept for merges, because islands wait for those.
  explicit Staging(uint64_t capacity_bytes, uint64_t codes_bytes = 0)
      : capacity_(capacity_bytes),
        codes_capacity_(codes_bytes),
        pool_(capacity_bytes + codes_bytes) {}

  // Begins or resumes an upload of `object`, which CheckOffer has passed, and
  // returns the offset of the next chunk. `max_bytes` bounds the encoding's
  // size. An upload starts over if `object` is open, or describes other bytes
  // than before. An upload that began open resumes under a full description;
  // Verify finds out whether the bytes are the same.
  //   RESOURCE_EXHAUSTED   No memory is left; retry after a round has closed.
  //   FAILED_PRECONDITION  Other bytes under the key have been verified.
  absl::StatusOr<uint64_t> Begin(const ContributionKey& key,
                                 const v1::EncodedObject& object,
                                 uint64_t max_bytes);

  // Takes the next chunk. Returns true once all described bytes are there;
  // always false while the description is open.
  //   UNAVAILABLE  The upload was discarded, or the chunk is not the next one
  //                because two streams feed the upload: Begin again.
  //   else         As ChunkAssembler::Add.
  absl::StatusOr<bool> Append(const ContributionKey& key, const Chunk& chunk);

  // Checks the bytes against `object`, which must describe them fully and agree
  // with the description that the upload began with. Returns the Euclidean norm
  // of their values. Verified bytes can be discarded but not replaced; bytes
  // that fail are discarded. Does not read the bytes again, because Append has
  // checked them.
  //   UNAVAILABLE          There is no such upload (any more): Begin again.
  //   FAILED_PRECONDITION  The upload is not complete.
  //   INVALID_ARGUMENT     `object` contradicts the open description.
  //   else                 As CheckArrival and EncodingReader::Norm.
  // If `runs` is not null, sets it to EncodingReader::Runs of `ends`, even if
  // values are not finite (OUT_OF_RANGE).
  absl::StatusOr<double> Verify(const ContributionKey& key,
                                const v1::EncodedObject& object,
                                absl::Span<const uint64_t> ends = {},
                                std::vector<StripRun>* runs = nullptr);

  // Adds verified bytes that did not come as an upload, and take no memory of
  // uploads.
  void Keep(const ContributionKey& key, StagedEncoding encoding) {
    absl::MutexLock lock(&mu_);
    kept_[key] = std::move(encoding);
  }

  // Returns what Keep has added, or a verified upload. The bytes stay valid
  // after Discard.
  //   UNAVAILABLE          There is no such upload.
  //   FAILED_PRECONDITION  The upload has not been verified.
  absl::StatusOr<StagedEncoding> Get(const ContributionKey& key) const;

  void Discard(const ContributionKey& key);

  // Discards everything whose base version of `fragment` is below `version`:
  // it was late, or its island is gone.
  void DiscardBefore(uint32_t fragment, uint64_t version);

  // Returns the sum of the uploads' described sizes. An open upload counts with
  // its largest possible size.
  uint64_t used_bytes() const;
  uint64_t capacity_bytes() const { return capacity_; }

 private:
  struct Upload;
  using Uploads = std::map<ContributionKey, std::shared_ptr<Upload>>;

  // Returns null if there is no such upload.
  std::shared_ptr<Upload> Find(const ContributionKey& key) const;
  // Releases the upload's memory and returns the next upload.
  Uploads::iterator EraseLocked(Uploads::iterator upload)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Sets the upload's part of used_ to `bytes`.
  void Account(Upload& upload, uint64_t bytes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const uint64_t capacity_;
  const uint64_t codes_capacity_;
  BufferPool pool_;
  // Acquired before an upload's own lock, never after.
  mutable absl::Mutex mu_;
  Uploads uploads_ ABSL_GUARDED_BY(mu_);
  std::map<ContributionKey, StagedEncoding> kept_ ABSL_GUARDED_BY(mu_);
  uint64_t used_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t codes_used_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace causeway

#endif  // SERVER_STAGING_H_
