// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/checkpoint/tensor_files_writer.h"

#include <cmath>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "absl/strings/substitute.h"
#include "common/as_bytes.h"
#include "common/checkpoint/tensor_files.h"
#include "common/os/file.h"
#include "common/status_macros.h"
#include "common/tensors/half_precision.h"
#include "common/tensors/safetensors.h"
#include "nlohmann/json.hpp"

namespace causeway {
namespace {

// The number of values that are written at once.
constexpr size_t kPiece = 1 << 18;

absl::Status CheckTensors(absl::Span<const NamedTensor> tensors,
                          absl::string_view dtype) {
  if (!IsReadable(dtype)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the type is ", dtype, "; allowed: F32, BF16, F16"));
  }
  if (dtype != "F16") return absl::OkStatus();
  for (const NamedTensor& tensor : tensors) {
    for (const float value : tensor.values) {
      if (std::fabs(value) < kTooLargeForF16) continue;
      return absl::InvalidArgumentError(
          absl::Substitute("tensor \"$0\" has the value $1, which is too large "
                           "for F16; use BF16",
                           tensor.name, value));
    }
  }
  return absl::OkStatus();
}

std::vector<absl::Span<const NamedTensor>> CutIntoFiles(
    absl::Span<const NamedTensor> tensors, uint64_t most_values) {
  std::vector<absl::Span<const NamedTensor>> files;
  size_t begin = 0;
  uint64_t values = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    values += tensors[i].values.size();
    if (values > most_values && i > begin) {
      files.push_back(tensors.subspan(begin, i - begin));
      begin = i;
      values = tensors[i].values.size();
    }
  }
  files.push_back(tensors.subspan(begin));
  return files;
}

absl::Status AppendValues(absl::Span<const float> values,
                          const TensorFilesOptions& options,
                          AtomicFileWriter& writer) {
  const auto convert = options.dtype == "BF16" ? ToBf16 : ToF16;
  std::vector<uint16_t> converted;
  for (size_t begin = 0; begin < values.size(); begin += kPiece) {
    const absl::Span<const float> piece = values.subspan(begin, kPiece);
    if (options.dtype == "F32") {
      RETURN_IF_ERROR(writer.Append(AsStringView(piece)));
    } else {
      converted.clear();
      for (const float value : piece) converted.push_back(convert(value));
      RETURN_IF_ERROR(
          writer.Append(AsStringView(absl::MakeConstSpan(converted))));
    }
    if (options.progress != nullptr) options.progress(piece.size());
  }
  return absl::OkStatus();
}

// Writes a file to the disk, but does not commit it.
absl::StatusOr<AtomicFileWriter> WriteOne(const std::string& path,
                                          absl::Span<const NamedTensor> tensors,
                                          const TensorFilesOptions& options) {
  // Only the sizes of the views matter to the header.
  Safetensors contents{.metadata = options.metadata};
  for (const NamedTensor& tensor : tensors) {
    contents.tensors.push_back(
        {.name = tensor.name,
         .dtype = options.dtype,
         .shape = tensor.shape,
         .bytes = absl::string_view(
             nullptr, tensor.values.size() * ElementBytes(options.dtype))});
  }
  ASSIGN_OR_RETURN(const std::string header, EncodeSafetensorsHeader(contents));
  ASSIGN_OR_RETURN(AtomicFileWriter writer, AtomicFileWriter::Create(path));
  RETURN_IF_ERROR(writer.Append(header));
  for (const NamedTensor& tensor : tensors) {
    RETURN_IF_ERROR(AppendValues(tensor.values, options, writer));
  }
  RETURN_IF_ERROR(SyncFile(writer.temporary_path()));
  return writer;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> WriteTensorFiles(
    const std::string& directory, absl::Span<const NamedTensor> tensors,
    const TensorFilesOptions& options) {
  RETURN_IF_ERROR(CheckTensors(tensors, options.dtype));
  const auto files =
      CutIntoFiles(tensors, options.most_bytes / ElementBytes(options.dtype));
  std::vector<AtomicFileWriter> writers;
  std::vector<std::string> names;
  nlohmann::ordered_json map = nlohmann::ordered_json::object();
  uint64_t bytes = 0;
  for (size_t i = 0; i < files.size(); ++i) {
    names.push_back(files.size() == 1
                        ? absl::StrCat(options.stem, ".safetensors")
                        : absl::StrFormat("%s-%05d-of-%05d.safetensors",
                                          options.stem, i + 1, files.size()));
    ASSIGN_OR_RETURN(AtomicFileWriter writer,
                     WriteOne(absl::StrCat(directory, "/", names.back()),
                              files[i], options));
    writers.push_back(std::move(writer));
    for (const NamedTensor& tensor : files[i]) {
      map[tensor.name] = names.back();
      bytes += tensor.values.size() * ElementBytes(options.dtype);
    }
  }
  const std::string index_name =
      absl::StrCat(options.stem, ".safetensors.index.json");
  const std::string index_path = absl::StrCat(directory, "/", index_name);
  RETURN_IF_ERROR(RemoveFileIfThere(index_path));
  RETURN_IF_ERROR(AtomicFileWriter::CommitAll(absl::MakeSpan(writers)));
  if (files.size() == 1) return names;
  names.push_back(index_name);
  const nlohmann::ordered_json index = {{"metadata", {{"total_size", bytes}}},
                                        {"weight_map", map}};
  RETURN_IF_ERROR(
      WriteFileAtomically(index_path, {absl::StrCat(index.dump(2), "\n")}));
  return names;
}

}  // namespace causeway
