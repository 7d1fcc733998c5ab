// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Safetensors: the file format for named tensors that PyTorch, JAX and the
// Hugging Face libraries read (github.com/huggingface/safetensors). Byte
// layout:
//
//   8 bytes    N, length of the header, unsigned little-endian; at most 100 MB
//   N bytes    header: a JSON object, padded with spaces
//   the rest   the tensors' bytes, row-major, little-endian, without gaps
//
// The header maps each tensor's name to {"dtype", "shape", "data_offsets":
// [begin, end]}, offsets counted from the end of the header; the optional entry
// "__metadata__" maps strings to strings.
//
// Reading never copies tensor bytes: a Safetensors is a table of contents whose
// views point into the caller's bytes or into a mapped file. Everything read is
// taken for hostile: sizes, offsets and types are checked before a view is
// made, and tensors that overlap, leave holes, repeat or have negative offsets
// are refused.
//
//   ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::Open(path));
//   ASSIGN_OR_RETURN(absl::Span<const float> theta,
//                    file.contents().Floats("theta"));
//
//   RETURN_IF_ERROR(WriteSafetensors(
//       path, {.tensors = {FloatTensor("theta", {n}, theta)},
//              .metadata = {{"version", "12"}}}));
#ifndef COMMON_SAFETENSORS_H_
#define COMMON_SAFETENSORS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/file.h"

namespace causeway {

struct SafetensorsTensor {
  std::string name;
  // One of the format's types: "F32", "BF16", "U8" ...
  std::string dtype;
  // Row-major; empty for a scalar.
  std::vector<int64_t> shape;
  // Row-major, little-endian; not owned.
  absl::string_view bytes;
};

// A view of `values`, which must outlive it.
SafetensorsTensor FloatTensor(std::string name, std::vector<int64_t> shape,
                              absl::Span<const float> values);

struct Safetensors {
  std::vector<SafetensorsTensor> tensors;
  std::map<std::string, std::string> metadata;

  // NOT_FOUND, with the names there are, if there is no such tensor.
  absl::StatusOr<const SafetensorsTensor*> Find(absl::string_view name) const;

  // The values of an "F32" tensor. NOT_FOUND as above; INVALID_ARGUMENT if it
  // has another type or its bytes are not aligned to 4 (files of
  // WriteSafetensors are).
  absl::StatusOr<absl::Span<const float>> Floats(absl::string_view name) const;

  // NOT_FOUND if the metadata has no such key.
  absl::StatusOr<std::string> Metadata(absl::string_view key) const;
};

// The table of contents of a whole file in memory, tensors in the order they
// lie in the file; views point into `file`. INVALID_ARGUMENT, saying what is
// wrong and where, if it is not a valid file or has a type unknown here.
absl::StatusOr<Safetensors> ParseSafetensors(absl::string_view file);

// The first part of a file with `contents`: length and header, padded so that
// the tensors begin at a multiple of 64. `contents.tensors` is sorted in place
// by falling element size (stable), which aligns each tensor to its elements.
// INVALID_ARGUMENT if a name repeats or is "__metadata__", a type is unknown,
// a shape does not fit its bytes, or a string is not UTF-8.
absl::StatusOr<std::string> EncodeSafetensorsHeader(Safetensors& contents);

// Writes a file durably and atomically (see common/file.h), straight from the
// views. Errors of EncodeSafetensorsHeader and AtomicFileWriter.
absl::Status WriteSafetensors(const std::string& path, Safetensors contents,
                              WriteStageHook hook = nullptr);

// A mapped file with its table of contents. Movable; views stay valid as long
// as the object they were moved to lives.
class SafetensorsFile {
 public:
  // Errors of MappedFile::Open and ParseSafetensors, with the path.
  static absl::StatusOr<SafetensorsFile> Open(const std::string& path);

  const Safetensors& contents() const { return contents_; }
  const std::string& path() const { return file_.path(); }

 private:
  SafetensorsFile(MappedFile file, Safetensors contents)
      : file_(std::move(file)), contents_(std::move(contents)) {}

  MappedFile file_;
  Safetensors contents_;
};

}  // namespace causeway

#endif  // COMMON_SAFETENSORS_H_
