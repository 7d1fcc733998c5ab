// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/checkpoint/tensor_files.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/substitute.h"
#include "common/foreign/file.h"
#include "common/os/file.h"
#include "common/printable.h"
#include "common/status_macros.h"
#include "common/tensors/half_precision.h"
#include "glog/logging.h"
#include "nlohmann/json.hpp"

namespace causeway {
namespace {

constexpr absl::string_view kIndexSuffix = ".safetensors.index.json";

// Converts elements that take two bytes; they need not be aligned.
template <typename Convert>
void ReadPairs(absl::string_view bytes, Convert convert,
               absl::Span<float> values) {
  for (size_t i = 0; i < values.size(); ++i) {
    uint16_t bits;
    std::memcpy(&bits, bytes.data() + 2 * i, sizeof(bits));
    values[i] = convert(bits);
  }
}

bool IsDirectory(const std::string& path) {
  struct stat status = {};
  return stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

// Returns the file to open for `path`.
absl::StatusOr<std::string> Resolve(const std::string& path) {
  if (!IsDirectory(path)) return path;
  for (const absl::string_view name :
       {"model.safetensors.index.json", "model.safetensors"}) {
    std::string file = absl::StrCat(path, "/", name);
    if (access(file.c_str(), F_OK) == 0) return file;
  }
  return absl::NotFoundError(absl::StrCat(
      "directory ", path,
      " has neither model.safetensors nor model.safetensors.index.json"));
}

// Reads an index: {"weight_map": {tensor name: file name}}.
absl::StatusOr<std::map<std::string, std::string>> ReadIndex(
    const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadForeignFile(path));
  const auto invalid = [&](absl::string_view problem) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " is not an index of safetensors files: ", problem));
  };
  const absl::StatusOr<nlohmann::json> index = ParseForeignJson(text);
  if (!index.ok()) return invalid(index.status().message());
  const auto map = index->find("weight_map");
  if (map == index->end() || !map->is_object()) {
    return invalid("it has no object \"weight_map\"");
  }
  std::map<std::string, std::string> files;
  for (const auto& [tensor, file] : map->items()) {
    if (!file.is_string()) {
      return invalid(absl::StrCat("the file of \"", Excerpt(tensor),
                                  "\" is not a string"));
    }
    files[tensor] = file.get<std::string>();
    if (files[tensor].empty() || absl::StrContains(files[tensor], '/') ||
        files[tensor].front() == '.') {
      return invalid(absl::StrCat(
          "the file of \"", Excerpt(tensor), "\" is \"", Excerpt(files[tensor]),
          "\", which is not the name of a file beside it"));
    }
  }
  return files;
}

}  // namespace

absl::Status TensorFiles::Add(const std::string& path) {
  ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::Open(path));
  for (const SafetensorsTensor& tensor : file.contents().tensors) {
    if (!tensors_.emplace(tensor.name, tensor).second) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, " has tensor \"", Excerpt(tensor.name),
                       "\", as another file has"));
    }
  }
  files_.push_back(std::move(file));
  return absl::OkStatus();
}

absl::StatusOr<TensorFiles> TensorFiles::Open(const std::string& path) {
  TensorFiles files;
  ASSIGN_OR_RETURN(const std::string file, Resolve(path));
  if (!absl::EndsWith(file, kIndexSuffix)) {
    RETURN_IF_ERROR(files.Add(file));
    return files;
  }
  std::map<std::string, std::string> index;
  ASSIGN_OR_RETURN(index, ReadIndex(file));
  std::map<std::string, std::vector<std::string>> tensors_of_file;
  for (auto& [tensor, name] : index) tensors_of_file[name].push_back(tensor);
  for (const auto& [name, tensors] : tensors_of_file) {
    const std::string part = absl::StrCat(ParentDirectory(file), "/", name);
    RETURN_IF_ERROR(files.Add(part));
    for (const std::string& tensor : tensors) {
      if (!files.files_.back().contents().Find(tensor).ok()) {
        return absl::InvalidArgumentError(
            absl::Substitute("$0 has no tensor \"$1\", although $2 says so",
                             Printable(part), Excerpt(tensor), file));
      }
    }
  }
  return files;
}

bool IsReadable(absl::string_view dtype) {
  return dtype == "F32" || dtype == "F16" || dtype == "BF16";
}

uint64_t ElementBytes(absl::string_view dtype) {
  return dtype == "F32" ? 4 : 2;
}

uint64_t CountValues(const SafetensorsTensor& tensor) {
  return tensor.bytes.size() / ElementBytes(tensor.dtype);
}

absl::Status ReadValues(const SafetensorsTensor& tensor, uint64_t begin,
                        absl::Span<float> values) {
  if (!IsReadable(tensor.dtype)) {
    return absl::InvalidArgumentError(
        absl::Substitute("tensor \"$0\" is $1; can be read: F32, F16, BF16",
                         Excerpt(tensor.name), tensor.dtype));
  }
  CHECK_LE(begin + values.size(), CountValues(tensor)) << tensor.name;
  const absl::string_view bytes =
      tensor.bytes.substr(begin * ElementBytes(tensor.dtype));
  if (tensor.dtype == "F32") {
    std::copy_n(bytes.data(), values.size() * sizeof(float),
                reinterpret_cast<char*>(values.data()));
  } else if (tensor.dtype == "BF16") {
    ReadPairs(bytes, FromBf16, values);
  } else {
    ReadPairs(bytes, FromF16, values);
  }
  bool finite = true;
  for (const float value : values) finite &= std::isfinite(value);
  if (finite) return absl::OkStatus();
  size_t bad = 0;
  while (std::isfinite(values[bad])) ++bad;
  return absl::InvalidArgumentError(absl::Substitute(
      "tensor \"$0\" has a value that is not finite, at index $1",
      Excerpt(tensor.name), begin + bad));
}

}  // namespace causeway
