// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/tensors/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>
#include <exception>
#include <limits>
#include <set>
#include <tuple>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/substitute.h"
#include "common/as_bytes.h"
#include "common/foreign/file.h"
#include "common/printable.h"
#include "common/status_macros.h"
#include "nlohmann/json.hpp"

namespace causeway {
namespace {

static_assert(std::endian::native == std::endian::little,
              "tensor bytes are used as they lie in the file");

constexpr size_t kLengthBytes = 8;
// The alignment of the tensors: a cache line, so that vectors can be written
// straight into a mapped file.
constexpr size_t kAlignment = 64;
// The format's own limit.
constexpr uint64_t kMaxHeaderBytes = 100'000'000;
constexpr absl::string_view kMetadataKey = "__metadata__";
// The bytes of names that a message lists.
constexpr size_t kMostNamesBytes = 1000;

struct ElementType {
  absl::string_view name;
  uint64_t bytes;
};

constexpr ElementType kElementTypes[] = {
    {"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E5M2", 1}, {"F8_E4M3", 1},
    {"I16", 2},  {"U16", 2}, {"F16", 2}, {"BF16", 2},    {"I32", 4},
    {"U32", 4},  {"F32", 4}, {"F64", 8}, {"I64", 8},     {"U64", 8},
};

absl::StatusOr<uint64_t> ElementBytes(const SafetensorsTensor& tensor) {
  std::vector<absl::string_view> names;
  for (const ElementType& type : kElementTypes) {
    if (type.name == tensor.dtype) return type.bytes;
    names.push_back(type.name);
  }
  return absl::InvalidArgumentError(absl::Substitute(
      "tensor \"$0\" has the unknown dtype \"$1\"; known are $2",
      Excerpt(tensor.name), Excerpt(tensor.dtype), absl::StrJoin(names, ", ")));
}

std::string ShapeText(const SafetensorsTensor& tensor) {
  return Excerpt(absl::StrJoin(tensor.shape, ", "));
}

// Returns the bytes that the type and shape of `tensor` ask for.
absl::StatusOr<uint64_t> BytesOfShape(const SafetensorsTensor& tensor) {
  ASSIGN_OR_RETURN(uint64_t bytes, ElementBytes(tensor));
  // A zero extent makes the tensor empty, however large the others are.
  if (absl::c_linear_search(tensor.shape, 0)) return 0;
  for (const int64_t extent : tensor.shape) {
    if (extent < 0 ||
        __builtin_mul_overflow(bytes, static_cast<uint64_t>(extent), &bytes)) {
      return absl::InvalidArgumentError(
          absl::Substitute("tensor \"$0\" has the impossible shape [$1]",
                           Excerpt(tensor.name), ShapeText(tensor)));
    }
  }
  return bytes;
}

absl::Status CheckSize(const SafetensorsTensor& tensor, uint64_t bytes) {
  ASSIGN_OR_RETURN(const uint64_t wanted, BytesOfShape(tensor));
  if (wanted == bytes) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::Substitute(
      "tensor \"$0\" has $1 bytes; its shape [$2] of $3 needs $4",
      Excerpt(tensor.name), bytes, ShapeText(tensor), tensor.dtype, wanted));
}

// One tensor's entry in the header.
struct Entry {
  SafetensorsTensor tensor;
  uint64_t begin = 0;
  uint64_t end = 0;
};

// Takes the header's JSON event by event, and ends the parse at the first event
// that the format does not allow, so that nothing is built from a header that
// is nested, repeated or of other types.
class HeaderHandler final : public nlohmann::json_sax<nlohmann::json> {
 public:
  bool key(string_t& name) override {
    switch (depth_) {
      case 1:
        name_ = name;
        if (!names_.insert(name).second) return Fail("appears twice");
        return true;
      default:
        field_ = name;
        if (in_metadata_) {
          if (!metadata_.emplace(name, "").second) {
            return Fail("is given twice");
          }
          return true;
        }
        if (name != "dtype" && name != "shape" && name != "data_offsets") {
          return Fail("is not a field of a tensor");
        }
        if (!fields_.insert(name).second) return Fail("is given twice");
        return true;
    }
  }

  bool start_object(size_t) override {
    switch (++depth_) {
      case 1:
        return true;
      case 2:
        in_metadata_ = kMetadataKey == name_;
        entry_ = Entry();
        entry_.tensor.name = name_;
        fields_.clear();
        return true;
      default:
        return Fail("must not be an object");
    }
  }

  bool end_object() override {
    if (--depth_ == 0) return true;
    field_.clear();
    if (in_metadata_) return true;
    if (fields_.size() != 3) {
      return Fail("needs dtype, shape and data_offsets");
    }
    if (offsets_.size() != 2 || offsets_[0] > offsets_[1]) {
      return Fail(absl::StrCat("has the impossible data_offsets [",
                               absl::StrJoin(offsets_, ", "), "]"));
    }
    entry_.begin = offsets_[0];
    entry_.end = offsets_[1];
    entries_.push_back(std::move(entry_));
    return true;
  }

  bool start_array(size_t) override {
    if (depth_ != 2 || in_metadata_ || field_ == "dtype" || in_array_) {
      return Fail("must not be an array");
    }
    in_array_ = true;
    if (field_ == "data_offsets") offsets_.clear();
    return true;
  }

  bool end_array() override {
    in_array_ = false;
    return true;
  }

  bool number_unsigned(number_unsigned_t value) override {
    if (!in_array_) return Fail("must not be a number");
    if (field_ == "data_offsets") {
      offsets_.push_back(value);
      return offsets_.size() <= 2 || Fail("has more than two numbers");
    }
    if (value > std::numeric_limits<int64_t>::max()) {
      return Fail("has an extent that is too large");
    }
    entry_.tensor.shape.push_back(static_cast<int64_t>(value));
    return true;
  }

  bool string(string_t& value) override {
    if (depth_ != 2 || in_array_) return Fail("must not be a string");
    if (in_metadata_) {
      metadata_[field_] = value;
      return true;
    }
    if (field_ != "dtype") return Fail("must be an array");
    entry_.tensor.dtype = value;
    return true;
  }

  bool null() override { return Fail("must not be null"); }
  bool boolean(bool) override { return Fail("must not be a boolean"); }
  bool number_integer(number_integer_t value) override {
    return Fail(absl::StrCat("must not be negative, is ", value));
  }
  bool number_float(number_float_t, const string_t& text) override {
    return Fail(absl::StrCat("must be a whole number, is ", Excerpt(text)));
  }
  bool binary(binary_t&) override { return Fail("must not be binary"); }

  bool parse_error(size_t position, const std::string&,
                   const nlohmann::json::exception& error) override {
    status_ = absl::InvalidArgumentError(
        absl::Substitute("the header is not JSON at its byte $0: $1", position,
                         Excerpt(error.what())));
    return false;
  }

  const absl::Status& status() const { return status_; }
  std::vector<Entry>& entries() { return entries_; }
  std::map<std::string, std::string>& metadata() { return metadata_; }

 private:
  // Ends the parse. `problem` says what is wrong with the current entry.
  bool Fail(absl::string_view problem) {
    status_ = absl::InvalidArgumentError(
        depth_ == 0 ? absl::StrCat("the header ", problem)
        : depth_ == 1 || field_.empty()
            ? absl::Substitute("header entry \"$0\" $1", Excerpt(name_),
                               problem)
            : absl::Substitute("header entry \"$0\": \"$1\" $2", Excerpt(name_),
                               Excerpt(field_), problem));
    return false;
  }

  absl::Status status_;
  std::vector<Entry> entries_;
  std::map<std::string, std::string> metadata_;

  // The level of nesting: 1 in the header, 2 in a tensor or the metadata.
  int depth_ = 0;
  bool in_metadata_ = false;
  bool in_array_ = false;
  std::string name_;
  std::string field_;
  // The header's entries and the tensor's fields so far.
  std::set<std::string> names_;
  std::set<std::string> fields_;
  Entry entry_;
  std::vector<uint64_t> offsets_;
};

// Sorts the entries by their place in the file and points them into `data`.
absl::Status PlaceTensors(absl::string_view data, std::vector<Entry>& entries) {
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::tie(a.begin, a.end, a.tensor.name) <
           std::tie(b.begin, b.end, b.tensor.name);
  });
  uint64_t position = 0;
  for (Entry& entry : entries) {
    SafetensorsTensor& tensor = entry.tensor;
    if (entry.end > data.size()) {
      return absl::InvalidArgumentError(absl::Substitute(
          "tensor \"$0\" ends at byte $1 of $2: the file is cut off",
          Excerpt(tensor.name), entry.end, data.size()));
    }
    if (entry.begin != position) {
      return absl::InvalidArgumentError(absl::Substitute(
          "tensor \"$0\" begins at byte $1; the one before ends at $2",
          Excerpt(tensor.name), entry.begin, position));
    }
    RETURN_IF_ERROR(CheckSize(tensor, entry.end - entry.begin));
    tensor.bytes = data.substr(entry.begin, entry.end - entry.begin);
    position = entry.end;
  }
  if (position != data.size()) {
    return absl::InvalidArgumentError(absl::Substitute(
        "$0 bytes after the last tensor", data.size() - position));
  }
  return absl::OkStatus();
}

// Returns the writer's header object; tensors must be in their final order.
absl::StatusOr<std::string> HeaderJson(const Safetensors& contents) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!contents.metadata.empty()) {
    header[std::string(kMetadataKey)] = contents.metadata;
  }
  std::set<absl::string_view> names = {kMetadataKey};
  uint64_t position = 0;
  for (const SafetensorsTensor& tensor : contents.tensors) {
    if (!names.insert(tensor.name).second) {
      return absl::InvalidArgumentError(
          absl::Substitute("tensor name \"$0\" is used twice or reserved",
                           Excerpt(tensor.name)));
    }
    RETURN_IF_ERROR(CheckSize(tensor, tensor.bytes.size()));
    const uint64_t end = position + tensor.bytes.size();
    header.push_back({tensor.name,
                      {{"dtype", tensor.dtype},
                       {"shape", tensor.shape},
                       {"data_offsets", {position, end}}}});
    position = end;
  }
  return header.dump();
}

}  // namespace

SafetensorsTensor FloatTensor(std::string name, std::vector<int64_t> shape,
                              absl::Span<const float> values) {
  return {.name = std::move(name),
          .dtype = "F32",
          .shape = std::move(shape),
          .bytes = AsStringView(values)};
}

absl::StatusOr<const SafetensorsTensor*> Safetensors::Find(
    absl::string_view name) const {
  std::vector<absl::string_view> names;
  for (const SafetensorsTensor& tensor : tensors) {
    if (tensor.name == name) return &tensor;
    names.push_back(tensor.name);
  }
  return absl::NotFoundError(
      absl::Substitute("no tensor \"$0\"; there are: $1", Excerpt(name),
                       Excerpt(absl::StrJoin(names, ", "), kMostNamesBytes)));
}

absl::StatusOr<absl::Span<const float>> Safetensors::Floats(
    absl::string_view name) const {
  ASSIGN_OR_RETURN(const SafetensorsTensor* tensor, Find(name));
  if (tensor->dtype != "F32") {
    return absl::InvalidArgumentError(absl::Substitute(
        "tensor \"$0\" is $1, want F32", Excerpt(name), tensor->dtype));
  }
  const char* data = tensor->bytes.data();
  if (reinterpret_cast<uintptr_t>(data) % alignof(float) != 0) {
    return absl::InvalidArgumentError(absl::Substitute(
        "tensor \"$0\" is not aligned to $1 bytes", name, alignof(float)));
  }
  return absl::MakeConstSpan(reinterpret_cast<const float*>(data),
                             tensor->bytes.size() / sizeof(float));
}

absl::StatusOr<std::string> Safetensors::Metadata(absl::string_view key) const {
  const auto it = metadata.find(std::string(key));
  if (it == metadata.end()) {
    return absl::NotFoundError(
        absl::Substitute("the metadata has no \"$0\"", key));
  }
  return it->second;
}

absl::StatusOr<Safetensors> ParseSafetensors(absl::string_view file) {
  if (file.size() < kLengthBytes) {
    return absl::InvalidArgumentError(absl::Substitute(
        "$0 bytes are too few for a safetensors file", file.size()));
  }
  uint64_t length = 0;
  std::memcpy(&length, file.data(), kLengthBytes);
  file.remove_prefix(kLengthBytes);
  if (length > kMaxHeaderBytes || length > file.size()) {
    return absl::InvalidArgumentError(
        absl::Substitute("a header of $0 bytes, want at most $1", length,
                         std::min<uint64_t>(kMaxHeaderBytes, file.size())));
  }
  const absl::string_view header = file.substr(0, length);
  if (header.empty() || header.front() != '{') {
    return absl::InvalidArgumentError("the header does not begin with '{'");
  }
  HeaderHandler handler;
  try {
    nlohmann::json::sax_parse(header.begin(), header.end(), &handler);
  } catch (const std::exception& error) {
    return absl::InvalidArgumentError(
        absl::StrCat("the header is unreadable: ", Excerpt(error.what())));
  }
  RETURN_IF_ERROR(handler.status());
  RETURN_IF_ERROR(PlaceTensors(file.substr(length), handler.entries()));
  Safetensors contents{.metadata = std::move(handler.metadata())};
  for (Entry& entry : handler.entries()) {
    contents.tensors.push_back(std::move(entry.tensor));
  }
  return contents;
}

absl::StatusOr<std::string> EncodeSafetensorsHeader(Safetensors& contents,
                                                    size_t min_bytes) {
  for (const SafetensorsTensor& tensor : contents.tensors) {
    RETURN_IF_ERROR(ElementBytes(tensor).status());
  }
  std::stable_sort(contents.tensors.begin(), contents.tensors.end(),
                   [](const SafetensorsTensor& a, const SafetensorsTensor& b) {
                     return *ElementBytes(a) > *ElementBytes(b);
                   });
  std::string header;
  try {
    ASSIGN_OR_RETURN(header, HeaderJson(contents));
  } catch (const std::exception& error) {
    // The library throws here only for strings that are not UTF-8.
    return absl::InvalidArgumentError(
        absl::StrCat("cannot encode the header: ", error.what()));
  }
  const size_t end =
      std::max(kLengthBytes + header.size(), min_bytes) + kAlignment - 1;
  header.resize(end / kAlignment * kAlignment - kLengthBytes, ' ');
  if (header.size() > kMaxHeaderBytes) {
    return absl::InvalidArgumentError(
        absl::Substitute("a header of $0 bytes, at most $1 are allowed",
                         header.size(), kMaxHeaderBytes));
  }
  const uint64_t length = header.size();
  std::string encoded(kLengthBytes, '\0');
  std::memcpy(encoded.data(), &length, kLengthBytes);
  return encoded + header;
}

absl::Status WriteSafetensors(const std::string& path, Safetensors contents,
                              WriteStageHook hook, Durability durability) {
  const absl::StatusOr<std::string> header = EncodeSafetensorsHeader(contents);
  if (!header.ok()) {
    return absl::Status(
        header.status().code(),
        absl::StrCat("cannot write ", path, ": ", header.status().message()));
  }
  std::vector<absl::string_view> pieces = {*header};
  for (const SafetensorsTensor& tensor : contents.tensors) {
    pieces.push_back(tensor.bytes);
  }
  return WriteFileAtomically(path, pieces, std::move(hook), 0644, durability);
}

absl::StatusOr<SafetensorsFile> SafetensorsFile::Open(const std::string& path) {
  ASSIGN_OR_RETURN(MappedFile file, OpenForeignFile(path));
  absl::StatusOr<Safetensors> contents = ParseSafetensors(file.bytes());
  if (!contents.ok()) {
    return absl::Status(
        contents.status().code(),
        absl::StrCat(path, " is not a readable safetensors file: ",
                     contents.status().message()));
  }
  return SafetensorsFile(std::move(file), *std::move(contents));
}

}  // namespace causeway
