// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/storage/merge_store.h"

#include <list>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/substitute.h"
#include "common/byte_planes.h"
#include "common/checksum.h"
#include "common/file.h"
#include "common/status_macros.h"
#include "glog/logging.h"

namespace causeway {
namespace {

constexpr char kMerge[] = "merge";
constexpr char kConfig[] = "config";

std::string Directory(const std::string& root) {
  return absl::StrCat(root, "/merges");
}

std::string FilePath(const std::string& root, uint32_t fragment,
                     uint64_t version) {
  return absl::StrFormat("%s/merge-%04u-v%08u.safetensors", Directory(root),
                         fragment, version);
}

std::string ChecksumKey(absl::string_view name) {
  return absl::StrCat(name, "_crc32c");
}

std::string Checksum(absl::string_view bytes) {
  return absl::StrFormat("%08x", Crc32c(bytes));
}

SafetensorsTensor Bytes(std::string name, absl::string_view bytes) {
  return {.name = std::move(name),
          .dtype = "U8",
          .shape = {static_cast<int64_t>(bytes.size())},
          .bytes = bytes};
}

template <typename Message>
absl::Status ReadMessage(const Safetensors& file, absl::string_view name,
                         Message& message) {
  ASSIGN_OR_RETURN(const SafetensorsTensor* const tensor, file.Find(name));
  ASSIGN_OR_RETURN(const std::string checksum,
                   file.Metadata(ChecksumKey(name)));
  if (checksum != Checksum(tensor->bytes) ||
      !message.ParseFromString(std::string(tensor->bytes))) {
    return absl::DataLossError(absl::StrCat("\"", name, "\" is damaged"));
  }
  return absl::OkStatus();
}

// Returns the bytes per value of an encoding that is not entropy coded;
// otherwise 1.
size_t WidthOf(const v1::EncodedObject& object) {
  return object.format() == v1::FP32 ? 4 : object.format() == v1::BF16 ? 2 : 1;
}

std::string PlanesName(int index) { return absl::StrCat(index, ".planes"); }

// Returns encoding `index` of `merge`; `memory` holds it if it was compressed.
absl::StatusOr<absl::string_view> ReadEncoding(const Safetensors& file,
                                               const v1::RecordedMerge& merge,
                                               int index, std::string& memory) {
  const v1::EncodedObject& object = merge.contributions(index).object();
  absl::StatusOr<const SafetensorsTensor*> tensor =
      file.Find(absl::StrCat(index));
  absl::string_view encoding;
  if (tensor.ok()) {
    encoding = (*tensor)->bytes;
  } else {
    ASSIGN_OR_RETURN(tensor, file.Find(PlanesName(index)));
    memory.resize(object.encoded_bytes());
    RETURN_IF_ERROR(DecompressPlanes((*tensor)->bytes, WidthOf(object),
                                     absl::MakeSpan(memory)));
    encoding = memory;
  }
  if (Digest128(encoding) != object.digest()) {
    return absl::DataLossError(absl::Substitute(
        "the contribution of $0 is damaged: its digest is not the recorded one",
        merge.contributions(index).identity().island_id()));
  }
  return encoding;
}

}  // namespace

absl::Status MergeStore::CreateFolder() const {
  return CreateDirectory(Directory(root_));
}

absl::Status MergeStore::Write(
    const v1::RecordedMerge& merge, const v1::RunConfig& config,
    absl::Span<const absl::string_view> encodings) const {
  CHECK_EQ(encodings.size(), merge.contributions_size());
  const std::string merge_bytes = merge.SerializeAsString();
  const std::string config_bytes = config.SerializeAsString();
  Safetensors file{
      .tensors = {Bytes(kMerge, merge_bytes), Bytes(kConfig, config_bytes)},
      .metadata = {{ChecksumKey(kMerge), Checksum(merge_bytes)},
                   {ChecksumKey(kConfig), Checksum(config_bytes)}}};
  std::list<std::string> compressed;
  for (int i = 0; i < merge.contributions_size(); ++i) {
    const v1::EncodedObject& object = merge.contributions(i).object();
    // An entropy-coded encoding would not get smaller.
    const bool compress =
        config.storage().record_contributions() && !object.entropy_coded();
    if (compress) {
      compressed.push_back(CompressPlanes(encodings[i], WidthOf(object)));
    }
    if (compress && !compressed.back().empty()) {
      file.tensors.push_back(Bytes(PlanesName(i), compressed.back()));
    } else {
      file.tensors.push_back(Bytes(absl::StrCat(i), encodings[i]));
    }
  }
  return WriteSafetensors(
      FilePath(root_, merge.head().fragment(), merge.head().version()),
      std::move(file));
}

absl::StatusOr<StoredMerge> MergeStore::Open(uint32_t fragment,
                                             uint64_t version) const {
  const std::string path = FilePath(root_, fragment, version);
  ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::Open(path));
  StoredMerge stored(std::move(file));
  const Safetensors& contents = stored.file_.contents();
  absl::Status status = ReadMessage(contents, kMerge, stored.merge_);
  if (status.ok()) status = ReadMessage(contents, kConfig, stored.config_);
  for (int i = 0; status.ok() && i < stored.merge_.contributions_size(); ++i) {
    const absl::StatusOr<absl::string_view> encoding = ReadEncoding(
        contents, stored.merge_, i, stored.decompressed_.emplace_back());
    status = encoding.status();
    if (status.ok()) stored.encodings_.push_back(*encoding);
  }
  if (!status.ok()) {
    return absl::DataLossError(
        absl::StrCat(path, ": ", std::string(status.message())));
  }
  return stored;
}

absl::StatusOr<uint64_t> MergeStore::Size(uint32_t fragment,
                                          uint64_t version) const {
  ASSIGN_OR_RETURN(const MappedFile file,
                   MappedFile::Open(FilePath(root_, fragment, version)));
  return file.bytes().size();
}

absl::Status MergeStore::RemoveThrough(uint32_t fragment,
                                       uint64_t version) const {
  uint64_t first = version + 1;
  for (; first > 1; --first) {
    const absl::StatusOr<SafetensorsFile> file =
        SafetensorsFile::Open(FilePath(root_, fragment, first - 1));
    v1::RunConfig config;
    if (!file.ok() || !ReadMessage(file->contents(), kConfig, config).ok() ||
        config.storage().record_contributions()) {
      break;
    }
  }
  // The oldest goes first, so that after a crash the rest is found again.
  for (; first <= version; ++first) {
    RETURN_IF_ERROR(RemoveFile(FilePath(root_, fragment, first)));
  }
  return absl::OkStatus();
}

}  // namespace causeway
