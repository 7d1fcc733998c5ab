// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The tensors of a model as the Hugging Face libraries store them: in one
// safetensors file, or in several with an index that names the file of each
// tensor.
//
//   ASSIGN_OR_RETURN(TensorFiles files, TensorFiles::Open("/models/llama"));
//   std::vector<float> values(...);
//   RETURN_IF_ERROR(ReadValues(files.tensors().at("lm_head.weight"), 0,
//                              absl::MakeSpan(values)));
#ifndef COMMON_CHECKPOINT_TENSOR_FILES_H_
#define COMMON_CHECKPOINT_TENSOR_FILES_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/tensors/safetensors.h"

namespace causeway {

class TensorFiles {
 public:
  // Maps the files at `path`: a safetensors file, an index
  // (*.safetensors.index.json), or a directory that has
  // model.safetensors.index.json or model.safetensors. Reads no values.
  //   NOT_FOUND         There is no such file, or the directory has neither.
  //   INVALID_ARGUMENT  A file is no valid safetensors file; the index is not
  //                     JSON of the known form, or names a file outside its
  //                     directory or a tensor that the file does not have.
  static absl::StatusOr<TensorFiles> Open(const std::string& path);

  // The tensors by name; their bytes lie in the mapped files.
  const std::map<std::string, SafetensorsTensor>& tensors() const {
    return tensors_;
  }

 private:
  TensorFiles() = default;

  absl::Status Add(const std::string& path);

  std::vector<SafetensorsFile> files_;
  std::map<std::string, SafetensorsTensor> tensors_;
};

// Returns whether checkpoints may have tensors of this type: F32, F16 or BF16.
bool IsReadable(absl::string_view dtype);
// Returns the bytes of a value of such a type.
uint64_t ElementBytes(absl::string_view dtype);

// Returns the number of elements of a readable tensor.
uint64_t CountValues(const SafetensorsTensor& tensor);

// Converts the tensor's elements from index `begin` on, as many as `values`
// has, to fp32.
//   INVALID_ARGUMENT  The type is not F32, F16 or BF16, or a value is not
//                     finite.
absl::Status ReadValues(const SafetensorsTensor& tensor, uint64_t begin,
                        absl::Span<float> values);

}  // namespace causeway

#endif  // COMMON_CHECKPOINT_TENSOR_FILES_H_
