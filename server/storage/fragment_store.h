// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The files that hold a run's parameters: snapshots, each of one version of a
// fragment, and one file for each encoded update. No file changes. After a
// snapshot is durable, the commit log (server/storage/commit_log.h) names it. A
// snapshot that the log does not name was left by a crash and may be removed.
//
// An update is not durable at first: a power loss may tear it. A snapshot makes
// the updates before it durable; a restarted coordinator makes the later ones
// again.
//
//   fragments/fragment-0003-v00000012.safetensors
//     tensors   "theta"; "momentum", "residual" and "gradient_sum" unless
//               empty. Flat, F32.
//     metadata  run_id, fragment, version and a digest of each tensor
//   updates/update-0003-v00000012.safetensors
//     tensors   "encoding", the encoded change from version 11 to 12. Flat, U8.
//     metadata  run_id, fragment, version, format, size, block_size,
//               entropy_coded (0 or 1), the digest of the encoding and that of
//               the parameters after the update
//
// The metadata also hold the CRC-32C of their other entries. Reading verifies
// everything: a file that is torn, altered or not the expected one is
// DATA_LOSS.
//
// Paths given and returned are relative to the state directory. Thread-safe
// for calls about different files. Calls block on the disk.
#ifndef SERVER_STORAGE_FRAGMENT_STORE_H_
#define SERVER_STORAGE_FRAGMENT_STORE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/checksum.h"
#include "common/os/file.h"
#include "common/tensors/safetensors.h"
#include "proto/fragment.pb.h"

namespace causeway {

// The state of one fragment at one version; values are not owned.
struct FragmentContents {
  std::string run_id;
  // FragmentStore fills in the digest, which is of theta.
  v1::FragmentHead head;
  absl::Span<const float> theta;
  // Each is as long as theta, or empty.
  absl::Span<const float> momentum;
  absl::Span<const float> residual;
  absl::Span<const float> gradient_sum;
};

// The update that led to `head`; bytes are not owned.
struct UpdateContents {
  std::string run_id;
  // The fragment after the update.
  v1::FragmentHead head;
  // The description of `encoding`, with its size in bytes and its digest.
  v1::EncodedObject object;
  absl::string_view encoding;
};

// Verified values with the memory that holds them: a mapped file, which stays
// readable after the file is removed, or another owner. Copies share it.
template <typename Contents>
class Stored {
 public:
  Stored(std::shared_ptr<const void> owner, Contents contents)
      : owner_(std::move(owner)), contents_(std::move(contents)) {}

  const Contents& contents() const { return contents_; }

 private:
  std::shared_ptr<const void> owner_;
  Contents contents_;
};

using StoredFragment = Stored<FragmentContents>;
using StoredUpdate = Stored<UpdateContents>;

class NewFragment {
 public:
  // Appends bytes of the tensors' values: theta, momentum, residual and
  // gradient sum, without those that the fragment lacks. Errors of
  // AtomicFileWriter.
  absl::Status Append(absl::string_view bytes);
  // Appends zeros until the tensors have all their values.
  absl::Status AppendZeros();

 private:
  friend class FragmentStore;
  struct Part {
    uint64_t missing_bytes = 0;
    Digest128Stream digest;
  };

  NewFragment(FragmentContents contents, AtomicFileWriter file)
      : contents_(std::move(contents)), file_(std::move(file)) {}

  // Only the sizes of its tensors are valid.
  FragmentContents contents_;
  AtomicFileWriter file_;
  size_t header_bytes_ = 0;
  std::vector<Part> parts_;
  // The first incomplete part.
  size_t next_ = 0;
};

class FragmentStore {
 public:
  struct Options {
    // Called at every stage of every write, for tests of crashes and faults.
    WriteStageHook write_hook;
  };

  // Creates missing directories in the existing directory `root`.
  static absl::StatusOr<FragmentStore> Create(std::string root,
                                              Options options);

  // Opens for tools: creates nothing, and must not be written to.
  static FragmentStore OpenReadOnly(std::string root) {
    return FragmentStore(std::move(root), Options());
  }

  // Begins a file with the run, the head and the sizes of `like`, whose values
  // it does not read. Errors of AtomicFileWriter.
  absl::StatusOr<NewFragment> BeginFragment(const FragmentContents& like) const;

  // Makes a snapshot with all its values durable and returns its path; sets the
  // digest in `head`. Replaces a file of the same name, which was never
  // committed. Errors of AtomicFileWriter.
  absl::StatusOr<std::string> CommitFragment(NewFragment fragment,
                                             v1::FragmentHead& head) const;

  // Begins and commits a file with the values of `contents`; sets its digest.
  absl::StatusOr<std::string> WriteFragment(FragmentContents& contents) const;

  // Returns the path of the update that led to `head`.
  static std::string UpdatePath(const v1::FragmentHead& head);

  // Writes an update, visible but not durable. Errors of WriteSafetensors.
  absl::Status WriteUpdate(const UpdateContents& contents) const;

  // Makes the existing updates that led to the versions after `from` up to `to`
  // durable.
  absl::Status SyncUpdates(uint32_t fragment, uint64_t from, uint64_t to) const;

  // Removes a file, if it is there.
  absl::Status Remove(const std::string& file) const;
  // Removes the update that led to a version, if it is there.
  absl::Status RemoveUpdate(uint32_t fragment, uint64_t version) const;

  // Opens a file, and reads all of it once to verify it.
  //   NOT_FOUND  There is no such file, or no longer.
  //   DATA_LOSS  It is damaged, or does not belong to the run and head.
  absl::StatusOr<StoredFragment> OpenFragment(
      const std::string& file, absl::string_view run_id,
      const v1::FragmentHead& head) const;

  // Opens the update that led to `head`, in the same way.
  absl::StatusOr<StoredUpdate> OpenUpdate(const std::string& file,
                                          absl::string_view run_id,
                                          const v1::FragmentHead& head) const;

  // Removes the files of the run for which `superseded` is true, and returns
  // their paths. Files that cannot be read or belong to another run stay. Must
  // not run while such a file is being written.
  absl::StatusOr<std::vector<std::string>> RemoveIf(
      absl::string_view run_id,
      absl::FunctionRef<bool(const std::string& file)> superseded) const;

 private:
  FragmentStore(std::string root, Options options)
      : root_(std::move(root)), options_(std::move(options)) {}

  // Opens a file; `read` finds and verifies its values.
  template <typename Contents>
  absl::StatusOr<Stored<Contents>> Open(
      const std::string& file, absl::string_view run_id,
      const v1::FragmentHead& head,
      absl::Status (*read)(const Safetensors& file, Contents& contents)) const;

  std::string PathOf(absl::string_view file) const;
  static bool BelongsTo(const std::string& path, absl::string_view run_id);

  std::string root_;
  Options options_;
};

}  // namespace causeway

#endif  // SERVER_STORAGE_FRAGMENT_STORE_H_
