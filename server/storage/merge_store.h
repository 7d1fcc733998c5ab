// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Stores the records of merges, from which a merge can be repeated
// (server/fragment_merge.h): one immutable file for each fragment and version.
// A coordinator keeps the records since its oldest snapshot, or all of them
// (storage.record_contributions).
//
//   merges/merge-0003-v00000012.safetensors
//     tensors   "merge", a RecordedMerge; "config", its RunConfig; the
//               encodings, in the order of the record: "0", "1", ..., or
//               "0.planes", "1.planes", ... for those that are compressed to
//               byte planes (common/tensors/byte_planes.h) of values. Flat, U8.
//               In records that are kept forever, encodings that are not
//               entropy coded are compressed. Encodings that were prepared but
//               not merged are "unmerged.0", "unmerged.1", .... A record with a
//               gradient_digest has the merged pseudo-gradient in fp32,
//               compressed, in place of the encodings.
//     metadata  the CRC-32C of "merge" and of "config"
//
// A file becomes durable before the commit of its version. If the version is
// never committed, the file is not read, and is replaced when the version is
// made again.
//
// Encodings are written as they arrive (Prepare), before and during the outer
// step, so that the commit does little more than sync.
//
// Thread-safe, except for two calls of Write for one fragment. Calls block on
// the disk.
#ifndef SERVER_STORAGE_MERGE_STORE_H_
#define SERVER_STORAGE_MERGE_STORE_H_

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "common/os/file.h"
#include "common/tensors/safetensors.h"
#include "proto/coordinator.pb.h"
#include "proto/record.pb.h"
#include "proto/run_config.pb.h"

namespace causeway {

// A recorded merge. Its encodings are mapped into memory, or decompressed.
class StoredMerge {
 public:
  const v1::RecordedMerge& merge() const { return merge_; }
  const v1::RunConfig& config() const { return config_; }
  // One encoding for each contribution, or the merged gradient alone.
  absl::Span<const absl::string_view> encodings() const { return encodings_; }

 private:
  friend class MergeStore;
  explicit StoredMerge(SafetensorsFile file) : file_(std::move(file)) {}

  SafetensorsFile file_;
  v1::RecordedMerge merge_;
  v1::RunConfig config_;
  std::vector<absl::string_view> encodings_;
  std::list<std::string> decompressed_;
};

class MergeStore {
 public:
  // Uses the state directory `root`.
  explicit MergeStore(std::string root) : root_(std::move(root)) {}

  // Creates the folder for records if it is missing.
  absl::Status CreateFolder() const;

  // Begins to write the encoding of a contribution that the merge after its
  // base version may include. Errors wait for Write, which tries again.
  void Prepare(const v1::ContributionHeader& contribution,
               const v1::RunConfig& config, absl::string_view encoding);

  // Called with a complete record that is about to become durable.
  using Written = std::function<void(MappedFile record)>;
  // Makes a record durable, and returns its size in bytes. Errors of
  // AtomicFileWriter and EncodeSafetensorsHeader.
  absl::StatusOr<uint64_t> Write(const v1::RecordedMerge& merge,
                                 const v1::RunConfig& config,
                                 absl::Span<const absl::string_view> encodings,
                                 const Written& written = nullptr);

  // Returns the record of the merge that made this version. Verifies encodings
  // by their digests, which the record holds.
  //   NOT_FOUND  The merge was not recorded.
  //   DATA_LOSS  The record is damaged.
  absl::StatusOr<StoredMerge> Open(uint32_t fragment, uint64_t version) const;
  // Does the same for an uncommitted record of BeginFile.
  static absl::StatusOr<StoredMerge> Open(const AtomicFileWriter& received);

  // Returns a record as the bytes of its file. NOT_FOUND if there is none.
  absl::StatusOr<MappedFile> OpenFile(uint32_t fragment,
                                      uint64_t version) const;
  // Begins to write a copy of another coordinator's record.
  absl::StatusOr<AtomicFileWriter> BeginFile(uint32_t fragment,
                                             uint64_t version) const;

  // Returns the size of a record in bytes, without opening it. NOT_FOUND if
  // there is none.
  absl::StatusOr<uint64_t> Size(uint32_t fragment, uint64_t version) const;

  // Removes the records of a fragment up to `version`, except records made with
  // record_contributions and all before them. Several threads may call this at
  // once.
  absl::Status RemoveThrough(uint32_t fragment, uint64_t version) const;

 private:
  class Draft;
  struct Fragment {
    // The newest version that Write was called with.
    uint64_t written = 0;
    // The draft of a later version; may be null.
    std::shared_ptr<Draft> draft;
  };

  static absl::StatusOr<StoredMerge> OpenAt(const std::string& path);
  // Returns the draft of a version, and begins it if necessary; null if Write
  // was called for the version, or if the disk refuses.
  std::shared_ptr<Draft> DraftOf(uint32_t fragment, uint64_t version,
                                 const v1::RunConfig& config);

  const std::string root_;
  absl::Mutex mu_;
  std::map<uint32_t, Fragment> fragments_ ABSL_GUARDED_BY(mu_);
};

}  // namespace causeway

#endif  // SERVER_STORAGE_MERGE_STORE_H_
