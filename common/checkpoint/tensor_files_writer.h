// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Writes a model's tensors as the Hugging Face libraries store them
// (common/checkpoint/tensor_files.h reads them).
#ifndef COMMON_CHECKPOINT_TENSOR_FILES_WRITER_H_
#define COMMON_CHECKPOINT_TENSOR_FILES_WRITER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace causeway {

struct NamedTensor {
  std::string name;
  // The extents, row-major.
  std::vector<int64_t> shape;
  // Not owned.
  absl::Span<const float> values;
};

struct TensorFilesOptions {
  // The beginning of the names of the files.
  std::string stem = "model";
  // The type to write: "F32", "BF16" or "F16". Values are rounded to nearest,
  // ties to even.
  std::string dtype = "F32";
  // The most bytes of tensors in a file. Larger files are cut between tensors
  // into several with an index.
  uint64_t most_bytes = 5'000'000'000;
  // Called with the number of values written since the last call, if not null.
  std::function<void(uint64_t)> progress;
  // Goes into every file.
  std::map<std::string, std::string> metadata;
};

// Writes model.safetensors, or model-00001-of-0000N.safetensors and so on with
// model.safetensors.index.json (with the options' stem), each durably and
// atomically. Returns the names of the written files. Needs about a MiB of
// memory, whatever the size of the model. Earlier files stay until all new ones
// are on the disk, which needs room for both. Then an earlier index goes first,
// so that it never names files of two models.
//   INVALID_ARGUMENT  The type is not known, or a value is too large for F16.
//   Errors of AtomicFileWriter (common/os/file.h).
absl::StatusOr<std::vector<std::string>> WriteTensorFiles(
    const std::string& directory, absl::Span<const NamedTensor> tensors,
    const TensorFilesOptions& options);

}  // namespace causeway

#endif  // COMMON_CHECKPOINT_TENSOR_FILES_WRITER_H_
