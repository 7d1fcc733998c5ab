// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/storage/merge_store.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/substitute.h"
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

// The encodings that `merge` describes.
absl::StatusOr<std::vector<absl::string_view>> ReadEncodings(
    const Safetensors& file, const v1::RecordedMerge& merge) {
  std::vector<absl::string_view> encodings;
  for (int i = 0; i < merge.contributions_size(); ++i) {
    ASSIGN_OR_RETURN(const SafetensorsTensor* const tensor,
                     file.Find(absl::StrCat(i)));
    if (Digest128(tensor->bytes) != merge.contributions(i).object().digest()) {
      return absl::DataLossError(absl::Substitute(
          "the contribution of $0 is damaged: its digest is not the recorded "
          "one",
          merge.contributions(i).identity().island_id()));
    }
    encodings.push_back(tensor->bytes);
  }
  return encodings;
}

}  // namespace

absl::Status MergeStore::Write(
    const v1::RecordedMerge& merge, const v1::RunConfig& config,
    absl::Span<const absl::string_view> encodings) const {
  CHECK_EQ(encodings.size(), merge.contributions_size());
  RETURN_IF_ERROR(CreateDirectory(Directory(root_)));
  const std::string merge_bytes = merge.SerializeAsString();
  const std::string config_bytes = config.SerializeAsString();
  Safetensors file{
      .tensors = {Bytes(kMerge, merge_bytes), Bytes(kConfig, config_bytes)},
      .metadata = {{ChecksumKey(kMerge), Checksum(merge_bytes)},
                   {ChecksumKey(kConfig), Checksum(config_bytes)}}};
  for (size_t i = 0; i < encodings.size(); ++i) {
    file.tensors.push_back(Bytes(absl::StrCat(i), encodings[i]));
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
  if (status.ok()) {
    absl::StatusOr<std::vector<absl::string_view>> encodings =
        ReadEncodings(contents, stored.merge_);
    status = encodings.status();
    if (status.ok()) stored.encodings_ = *std::move(encodings);
  }
  if (!status.ok()) {
    return absl::DataLossError(
        absl::StrCat(path, ": ", std::string(status.message())));
  }
  return stored;
}

}  // namespace causeway
