// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// What a coordinator records of its merges (storage.record_contributions), so
// that they can be made again and compared (server/replay.h): one immutable
// file per fragment and version.
//
//   merges/merge-0003-v00000012.safetensors
//     tensors   "merge", a RecordedMerge; "config", the RunConfig it was made
//               with; "0", "1", ...: the encodings, in its order, or
//               "0.planes", "1.planes", ...: encodings that are not entropy
//               coded and take fewer bytes as byte planes
//               (common/byte_planes.h) of values. Flat, U8.
//     metadata  the CRC-32C of "merge" and of "config"
//
// A file becomes durable before the commit it is about. One whose version was
// never committed is replaced when the version is made again, and read by
// nobody. Thread-safe for calls about different files; calls block on the disk.
#ifndef SERVER_STORAGE_MERGE_STORE_H_
#define SERVER_STORAGE_MERGE_STORE_H_

#include <cstdint>
#include <list>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/safetensors.h"
#include "proto/record.pb.h"
#include "proto/run_config.pb.h"

namespace causeway {

// A recorded merge, its encodings mapped into memory or decompressed there.
class StoredMerge {
 public:
  const v1::RecordedMerge& merge() const { return merge_; }
  const v1::RunConfig& config() const { return config_; }
  // One for each contribution.
  absl::Span<const absl::string_view> encodings() const { return encodings_; }

 private:
  friend class MergeStore;
  explicit StoredMerge(SafetensorsFile file) : file_(std::move(file)) {}

  SafetensorsFile file_;
  v1::RecordedMerge merge_;
  v1::RunConfig config_;
  std::vector<absl::string_view> encodings_;
  // Those that were compressed.
  std::list<std::string> decompressed_;
};

class MergeStore {
 public:
  // Of the state directory `root`.
  explicit MergeStore(std::string root) : root_(std::move(root)) {}

  // Makes a record durable. Errors of WriteSafetensors.
  absl::Status Write(const v1::RecordedMerge& merge,
                     const v1::RunConfig& config,
                     absl::Span<const absl::string_view> encodings) const;

  // The record of the merge that made this version.
  //   NOT_FOUND  it was not recorded.
  //   DATA_LOSS  it is damaged.
  // Encodings are verified by their digests, which the record holds.
  absl::StatusOr<StoredMerge> Open(uint32_t fragment, uint64_t version) const;

 private:
  std::string root_;
};

}  // namespace causeway

#endif  // SERVER_STORAGE_MERGE_STORE_H_
