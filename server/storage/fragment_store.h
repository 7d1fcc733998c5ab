// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The files that hold a run's parameters: one immutable file per fragment and
// version, and one per encoded update. Which of them count is written in the
// commit log (server/storage/commit_log.h) after they are durable; a file that
// the log does not name is the remains of a crash and may be removed.
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
// Every metadata also holds the CRC-32C of its own other entries, so that no
// bit of a file is trusted unchecked. Files are read with everything verified:
// a file that is torn, altered or another than expected is DATA_LOSS.
//
// Paths given and returned are relative to the state directory. Thread-safe
// for calls about different files. Calls block on the disk.
#ifndef SERVER_STORAGE_FRAGMENT_STORE_H_
#define SERVER_STORAGE_FRAGMENT_STORE_H_

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/file.h"
#include "common/safetensors.h"
#include "proto/fragment.pb.h"

namespace causeway {

// The state of one fragment at one version; values are not owned.
struct FragmentContents {
  std::string run_id;
  // Its digest is that of theta; FragmentStore fills it in.
  v1::FragmentHead head;
  absl::Span<const float> theta;
  // As long as theta, or empty.
  absl::Span<const float> momentum;
  absl::Span<const float> residual;
  absl::Span<const float> gradient_sum;
};

// The update that led to `head`; bytes are not owned.
struct UpdateContents {
  std::string run_id;
  // The fragment after the update.
  v1::FragmentHead head;
  // Its encoded_bytes and digest are those of `encoding`; FragmentStore fills
  // them in.
  v1::EncodedObject object;
  absl::string_view encoding;
};

// A verified file of fragment values, mapped into memory. It stays readable
// when the file is removed.
class StoredFragment {
 public:
  const FragmentContents& contents() const { return contents_; }
  // theta as it travels: fp32, little-endian.
  absl::string_view theta_bytes() const;

 private:
  friend class FragmentStore;
  StoredFragment(SafetensorsFile file, FragmentContents contents)
      : file_(std::move(file)), contents_(std::move(contents)) {}

  SafetensorsFile file_;
  FragmentContents contents_;
};

// A fragment's file in the making. Its tensors are the file itself, mapped:
// what is written to them need not be copied, and is no memory of the process's
// own.
class NewFragment {
 public:
  // Those that are empty will not be in the file. They begin at multiples of 64
  // bytes if their sizes are multiples of 16. Valid until the commit.
  absl::Span<float> theta;
  absl::Span<float> momentum;
  absl::Span<float> residual;
  absl::Span<float> gradient_sum;

 private:
  friend class FragmentStore;
  NewFragment(FragmentContents contents, AtomicFileWriter file)
      : contents_(std::move(contents)), file_(std::move(file)) {}

  FragmentContents contents_;
  AtomicFileWriter file_;
  absl::Span<char> header_;
};

// A verified file of an encoded update, mapped into memory.
class StoredUpdate {
 public:
  const UpdateContents& contents() const { return contents_; }

 private:
  friend class FragmentStore;
  StoredUpdate(SafetensorsFile file, UpdateContents contents)
      : file_(std::move(file)), contents_(std::move(contents)) {}

  SafetensorsFile file_;
  UpdateContents contents_;
};

class FragmentStore {
 public:
  struct Options {
    // Called at every stage of every write; for tests of crashes and faults.
    WriteStageHook write_hook;
  };

  // Makes the directories in the existing directory `root` where missing.
  static absl::StatusOr<FragmentStore> Create(std::string root,
                                              Options options);

  // For tools: makes nothing and must not be written to.
  static FragmentStore OpenReadOnly(std::string root);

  // Begins a file with the run, the head and the sizes of `like`, whose values
  // are not read. Errors of AtomicFileWriter.
  absl::StatusOr<NewFragment> BeginFragment(const FragmentContents& like) const;

  // Makes a file durable and returns its path; sets the digest in `head`. A
  // file of this name is replaced: only one that was never committed can be
  // there. Errors of AtomicFileWriter.
  absl::StatusOr<std::string> CommitFragment(NewFragment fragment,
                                             v1::FragmentHead& head) const;

  // Both at once, with the values of `contents`; sets the digest in it.
  absl::StatusOr<std::string> WriteFragment(FragmentContents& contents) const;

  // The same for an update; sets object.encoded_bytes and object.digest. Errors
  // of WriteSafetensors.
  absl::StatusOr<std::string> WriteUpdate(UpdateContents& contents) const;

  // Reads everything in the file once, to verify it.
  //   NOT_FOUND  there is no such file (any more).
  //   DATA_LOSS  it is damaged, or not that of the run and head.
  absl::StatusOr<StoredFragment> OpenFragment(
      const std::string& file, absl::string_view run_id,
      const v1::FragmentHead& head) const;

  // The same for the update that led to `head`.
  absl::StatusOr<StoredUpdate> OpenUpdate(const std::string& file,
                                          absl::string_view run_id,
                                          const v1::FragmentHead& head) const;

  // Removes all files of the run but these; returns the paths of those removed.
  // Files that cannot be read, or are of another run, stay. Must not run beside
  // a write.
  absl::StatusOr<std::vector<std::string>> RemoveAllBut(
      const std::set<std::string>& files, absl::string_view run_id) const;

 private:
  FragmentStore(std::string root, Options options)
      : root_(std::move(root)), options_(std::move(options)) {}

  std::string PathOf(absl::string_view file) const;
  static bool BelongsTo(const std::string& path, absl::string_view run_id);

  std::string root_;
  Options options_;
};

}  // namespace causeway

#endif  // SERVER_STORAGE_FRAGMENT_STORE_H_
