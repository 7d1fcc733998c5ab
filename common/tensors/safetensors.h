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
// views point into the caller's bytes or a mapped file. The reader trusts
// nothing: it checks sizes, offsets and types before it makes a view, and
// refuses tensors that overlap, leave holes, repeat or have negative offsets.
//
//   ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::Open(path));
//   ASSIGN_OR_RETURN(absl::Span<const float> theta,
//                    file.contents().Floats("theta"));
//
//   RETURN_IF_ERROR(WriteSafetensors(
//       path, {.tensors = {FloatTensor("theta", {n}, theta)},
//              .metadata = {{"version", "12"}}}));
#ifndef COMMON_TENSORS_SAFETENSORS_H_
#define COMMON_TENSORS_SAFETENSORS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/os/file.h"

namespace causeway {

struct SafetensorsTensor {
  std::string name;
  // The element type in the format's words: "F32", "BF16", "U8" ...
  std::string dtype;
  // The extents, row-major; empty for a scalar.
  std::vector<int64_t> shape;
  // The elements, row-major, little-endian; not owned.
  absl::string_view bytes;
};

// Returns a tensor that is a view of `values`, which must outlive it.
SafetensorsTensor FloatTensor(std::string name, std::vector<int64_t> shape,
                              absl::Span<const float> values);

struct Safetensors {
  std::vector<SafetensorsTensor> tensors;
  std::map<std::string, std::string> metadata;

  // Returns the tensor called `name`. NOT_FOUND, with the names that exist, if
  // there is none.
  absl::StatusOr<const SafetensorsTensor*> Find(absl::string_view name) const;

  // Returns the values of an "F32" tensor. NOT_FOUND as above; INVALID_ARGUMENT
  // if it has another type or its bytes are not aligned to 4 (WriteSafetensors
  // aligns them).
  absl::StatusOr<absl::Span<const float>> Floats(absl::string_view name) const;

  // Returns the value at `key`. NOT_FOUND if the metadata have no such key.
  absl::StatusOr<std::string> Metadata(absl::string_view key) const;
};

// Returns the table of contents of a whole file in memory, with tensors in
// their order in the file; views point into `file`. INVALID_ARGUMENT, saying
// what is wrong and where, if the file is not valid or has an unknown type.
absl::StatusOr<Safetensors> ParseSafetensors(absl::string_view file);

// Returns the first part of a file with `contents`: length and header, padded
// so that the tensors begin at a multiple of 64, not before `min_bytes`. Sorts
// `contents.tensors` in place by falling element size (stable), which aligns
// each tensor to its elements. INVALID_ARGUMENT if a name repeats or is
// "__metadata__", a type is unknown, a shape does not fit its bytes, or a
// string is not UTF-8.
absl::StatusOr<std::string> EncodeSafetensorsHeader(Safetensors& contents,
                                                    size_t min_bytes = 0);

// Writes a file atomically (see common/os/file.h), straight from the views.
// Errors of EncodeSafetensorsHeader and AtomicFileWriter.
absl::Status WriteSafetensors(const std::string& path, Safetensors contents,
                              WriteStageHook hook = nullptr,
                              Durability durability = Durability::kDurable);

// A mapped file with its table of contents. Movable; views stay valid with the
// object that it was moved to.
class SafetensorsFile {
 public:
  // Opens and parses a file. Errors of MappedFile::Open and ParseSafetensors,
  // with the path.
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

#endif  // COMMON_TENSORS_SAFETENSORS_H_
