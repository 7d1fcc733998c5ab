// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/storage/fragment_store.h"

#include <array>
#include <map>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/substitute.h"
#include "common/checksum.h"
#include "common/status_macros.h"
#include "glog/logging.h"

namespace causeway {
namespace {

constexpr char kFragmentDirectory[] = "fragments";
constexpr char kUpdateDirectory[] = "updates";

constexpr char kEncoding[] = "encoding";
constexpr char kMetadataChecksum[] = "metadata_crc32c";

using Metadata = std::map<std::string, std::string>;

std::string FileName(absl::string_view directory, absl::string_view kind,
                     uint32_t fragment, uint64_t version) {
  return absl::StrFormat("%s/%s-%04u-v%08u.safetensors", directory, kind,
                         fragment, version);
}

std::string SnapshotName(const v1::FragmentHead& head) {
  return FileName(kFragmentDirectory, "fragment", head.fragment(),
                  head.version());
}

std::string UpdateName(uint32_t fragment, uint64_t version) {
  return FileName(kUpdateDirectory, "update", fragment, version);
}

// Returns the checksum of all entries except the checksum itself.
std::string MetadataChecksum(const Metadata& metadata) {
  uint32_t crc = 0;
  for (const auto& [key, value] : metadata) {
    if (key == kMetadataChecksum) continue;
    // The lengths distinguish ("ab", "c") and ("a", "bc").
    crc = ExtendCrc32c(crc, absl::StrCat(key.size(), ":", key, "=",
                                         value.size(), ":", value, ";"));
  }
  return absl::StrFormat("%08x", crc);
}

Metadata HeadMetadata(absl::string_view run_id, const v1::FragmentHead& head) {
  return {{"run_id", std::string(run_id)},
          {"fragment", absl::StrCat(head.fragment())},
          {"version", absl::StrCat(head.version())},
          {"theta_digest", DigestToHex(head.digest())}};
}

absl::Status ExpectMetadata(const Safetensors& contents, absl::string_view key,
                            absl::string_view want) {
  ASSIGN_OR_RETURN(const std::string got, contents.Metadata(key));
  if (got == want) return absl::OkStatus();
  return absl::DataLossError(
      absl::Substitute("$0 is \"$1\", want \"$2\"", key, got, want));
}

// Checks the metadata against its checksum and against the head.
absl::Status CheckMetadata(const Safetensors& contents,
                           absl::string_view run_id,
                           const v1::FragmentHead& head) {
  RETURN_IF_ERROR(ExpectMetadata(contents, kMetadataChecksum,
                                 MetadataChecksum(contents.metadata)));
  for (const auto& [key, want] : HeadMetadata(run_id, head)) {
    RETURN_IF_ERROR(ExpectMetadata(contents, key, want));
  }
  return absl::OkStatus();
}

// Returns the tensors of a FragmentContents or NewFragment, in file order.
template <typename Fragment>
auto TensorsOf(Fragment& fragment) {
  using Tensor = std::pair<const char*, decltype(&fragment.theta)>;
  return std::array<Tensor, 4>{Tensor{"theta", &fragment.theta},
                               {"momentum", &fragment.momentum},
                               {"residual", &fragment.residual},
                               {"gradient_sum", &fragment.gradient_sum}};
}

// Returns the beginning of a fragment's file, up to theta. All digests have the
// same length, so this has a fixed length, too.
template <typename Digest>
absl::StatusOr<std::string> FragmentHeader(const FragmentContents& contents,
                                           const Digest& digest) {
  Safetensors file{.metadata = HeadMetadata(contents.run_id, contents.head)};
  for (const auto& [name, values] : TensorsOf(contents)) {
    if (values->empty() && values != &contents.theta) continue;
    CHECK_EQ(values->size(), contents.theta.size()) << name;
    file.tensors.push_back(
        FloatTensor(name, {static_cast<int64_t>(values->size())}, *values));
    file.metadata[absl::StrCat(name, "_digest")] = digest(*values);
  }
  file.metadata[kMetadataChecksum] = MetadataChecksum(file.metadata);
  return EncodeSafetensorsHeader(file);
}

// Points the tensors of `fragment` into `file` and verifies them.
absl::Status ReadTensors(const Safetensors& file, FragmentContents& fragment) {
  for (auto& [name, values] : TensorsOf(fragment)) {
    // The verified metadata say which tensors there are.
    const std::string digest_key = absl::StrCat(name, "_digest");
    if (file.metadata.count(digest_key) == 0) continue;
    ASSIGN_OR_RETURN(*values, file.Floats(name));
    if (values->size() != fragment.theta.size()) {
      return absl::DataLossError(
          absl::Substitute("$0 has $1 values, theta has $2", name,
                           values->size(), fragment.theta.size()));
    }
    if (absl::Status status =
            ExpectMetadata(file, digest_key, DigestToHex(Digest128(*values)));
        !status.ok()) {
      return absl::DataLossError(absl::Substitute(
          "the values of $0 are damaged: $1", name, status.message()));
    }
  }
  return absl::OkStatus();
}

template <typename Integer>
absl::Status ReadInteger(const Safetensors& file, absl::string_view key,
                         Integer& value) {
  ASSIGN_OR_RETURN(const std::string text, file.Metadata(key));
  if (absl::SimpleAtoi(text, &value)) return absl::OkStatus();
  return absl::DataLossError(
      absl::Substitute("$0 is \"$1\", want a number", key, text));
}

absl::Status ReadEncoding(const Safetensors& file, UpdateContents& update) {
  ASSIGN_OR_RETURN(const SafetensorsTensor* tensor, file.Find(kEncoding));
  update.encoding = tensor->bytes;
  ASSIGN_OR_RETURN(const std::string format_name, file.Metadata("format"));
  v1::Format format;
  if (!v1::Format_Parse(format_name, &format)) {
    return absl::DataLossError(absl::StrCat(
        "format ", format_name, " is not one that this version knows"));
  }
  uint64_t size = 0;
  uint32_t block_size = 0;
  uint32_t entropy_coded = 0;
  RETURN_IF_ERROR(ReadInteger(file, "size", size));
  RETURN_IF_ERROR(ReadInteger(file, "block_size", block_size));
  RETURN_IF_ERROR(ReadInteger(file, "entropy_coded", entropy_coded));
  update.object.set_format(format);
  update.object.set_size(size);
  update.object.set_block_size(block_size);
  update.object.set_entropy_coded(entropy_coded != 0);
  update.object.set_encoded_bytes(update.encoding.size());
  update.object.set_digest(Digest128(update.encoding));
  if (absl::Status status = ExpectMetadata(file, "encoding_digest",
                                           DigestToHex(update.object.digest()));
      !status.ok()) {
    return absl::DataLossError(
        absl::StrCat("the encoding is damaged: ", status.message()));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<FragmentStore> FragmentStore::Create(std::string root,
                                                    Options options) {
  FragmentStore store(std::move(root), std::move(options));
  RETURN_IF_ERROR(CreateDirectory(store.PathOf(kFragmentDirectory)));
  RETURN_IF_ERROR(CreateDirectory(store.PathOf(kUpdateDirectory)));
  return store;
}

absl::StatusOr<NewFragment> FragmentStore::BeginFragment(
    const FragmentContents& like) const {
  FragmentContents contents = like;
  contents.head.set_digest(std::string(kDigestBytes, '\0'));
  ASSIGN_OR_RETURN(const std::string header,
                   FragmentHeader(contents, [](absl::Span<const float>) {
                     return DigestToHex(std::string(kDigestBytes, '\0'));
                   }));
  uint64_t values = 0;
  for (const auto& tensor : TensorsOf(contents))
    values += tensor.second->size();
  ASSIGN_OR_RETURN(AtomicFileWriter file,
                   AtomicFileWriter::Create(PathOf(SnapshotName(contents.head)),
                                            options_.write_hook));
  ASSIGN_OR_RETURN(
      const absl::Span<char> bytes,
      file.Map(static_cast<int64_t>(header.size() + values * sizeof(float))));
  NewFragment fragment(std::move(contents), std::move(file));
  fragment.header_ = bytes.first(header.size());
  float* next = reinterpret_cast<float*>(bytes.data() + header.size());
  const auto from = TensorsOf(fragment.contents_);
  const auto to = TensorsOf(fragment);
  for (size_t i = 0; i < to.size(); ++i) {
    *to[i].second = {next, from[i].second->size()};
    *from[i].second = *to[i].second;
    next += to[i].second->size();
  }
  return fragment;
}

absl::StatusOr<std::string> FragmentStore::CommitFragment(
    NewFragment fragment, v1::FragmentHead& head) const {
  FragmentContents& contents = fragment.contents_;
  contents.head.set_digest(Digest128(contents.theta));
  ASSIGN_OR_RETURN(const std::string header,
                   FragmentHeader(contents, [](absl::Span<const float> values) {
                     return DigestToHex(Digest128(values));
                   }));
  CHECK_EQ(header.size(), fragment.header_.size());
  absl::c_copy(header, fragment.header_.begin());
  RETURN_IF_ERROR(fragment.file_.Commit());
  head = contents.head;
  return SnapshotName(head);
}

absl::StatusOr<std::string> FragmentStore::WriteFragment(
    FragmentContents& contents) const {
  ASSIGN_OR_RETURN(NewFragment fragment, BeginFragment(contents));
  const auto from = TensorsOf(contents);
  const auto to = TensorsOf(fragment);
  for (size_t i = 0; i < to.size(); ++i) {
    absl::c_copy(*from[i].second, to[i].second->begin());
  }
  return CommitFragment(std::move(fragment), contents.head);
}

std::string FragmentStore::UpdatePath(const v1::FragmentHead& head) {
  return UpdateName(head.fragment(), head.version());
}

absl::Status FragmentStore::WriteUpdate(const UpdateContents& contents) const {
  const v1::EncodedObject& object = contents.object;
  Safetensors file{
      .tensors = {{.name = kEncoding,
                   .dtype = "U8",
                   .shape = {static_cast<int64_t>(contents.encoding.size())},
                   .bytes = contents.encoding}},
      .metadata = HeadMetadata(contents.run_id, contents.head)};
  file.metadata["format"] = v1::Format_Name(object.format());
  file.metadata["size"] = absl::StrCat(object.size());
  file.metadata["block_size"] = absl::StrCat(object.block_size());
  file.metadata["entropy_coded"] = absl::StrCat(object.entropy_coded() ? 1 : 0);
  file.metadata["encoding_digest"] = DigestToHex(object.digest());
  file.metadata[kMetadataChecksum] = MetadataChecksum(file.metadata);
  return WriteSafetensors(PathOf(UpdatePath(contents.head)), std::move(file),
                          options_.write_hook, Durability::kVisible);
}

absl::Status FragmentStore::SyncUpdates(uint32_t fragment, uint64_t from,
                                        uint64_t to) const {
  for (uint64_t version = from + 1; version <= to; ++version) {
    const absl::Status synced = SyncFile(PathOf(UpdateName(fragment, version)));
    if (!absl::IsNotFound(synced)) RETURN_IF_ERROR(synced);
  }
  return SyncDirectory(PathOf(kUpdateDirectory));
}

absl::Status FragmentStore::Remove(const std::string& file) const {
  const absl::Status removed = RemoveFile(PathOf(file));
  return absl::IsNotFound(removed) ? absl::OkStatus() : removed;
}

absl::Status FragmentStore::RemoveUpdate(uint32_t fragment,
                                         uint64_t version) const {
  return Remove(UpdateName(fragment, version));
}

template <typename Contents>
absl::StatusOr<Stored<Contents>> FragmentStore::Open(
    const std::string& file, absl::string_view run_id,
    const v1::FragmentHead& head,
    absl::Status (*read)(const Safetensors& file, Contents& contents)) const {
  absl::StatusOr<SafetensorsFile> mapped = SafetensorsFile::Open(PathOf(file));
  if (absl::IsInvalidArgument(mapped.status())) {
    return absl::DataLossError(mapped.status().message());
  }
  RETURN_IF_ERROR(mapped.status());
  Contents contents{.run_id = std::string(run_id), .head = head};
  absl::Status status = CheckMetadata(mapped->contents(), run_id, head);
  if (status.ok()) status = read(mapped->contents(), contents);
  if (!status.ok()) {
    return absl::DataLossError(absl::StrCat(
        mapped->path(), " is damaged or another's: ", status.message()));
  }
  return Stored<Contents>(
      std::make_shared<const SafetensorsFile>(*std::move(mapped)),
      std::move(contents));
}

absl::StatusOr<StoredFragment> FragmentStore::OpenFragment(
    const std::string& file, absl::string_view run_id,
    const v1::FragmentHead& head) const {
  return Open(file, run_id, head, ReadTensors);
}

absl::StatusOr<StoredUpdate> FragmentStore::OpenUpdate(
    const std::string& file, absl::string_view run_id,
    const v1::FragmentHead& head) const {
  return Open(file, run_id, head, ReadEncoding);
}

bool FragmentStore::BelongsTo(const std::string& path,
                              absl::string_view run_id) {
  const absl::StatusOr<SafetensorsFile> file = SafetensorsFile::Open(path);
  return file.ok() && ExpectMetadata(file->contents(), "run_id", run_id).ok() &&
         ExpectMetadata(file->contents(), kMetadataChecksum,
                        MetadataChecksum(file->contents().metadata))
             .ok();
}

absl::StatusOr<std::vector<std::string>> FragmentStore::RemoveIf(
    absl::string_view run_id,
    absl::FunctionRef<bool(const std::string& file)> superseded) const {
  std::vector<std::string> removed;
  for (const char* directory : {kFragmentDirectory, kUpdateDirectory}) {
    ASSIGN_OR_RETURN(const std::vector<std::string> names,
                     ListDirectory(PathOf(directory)));
    for (const std::string& name : names) {
      std::string file = absl::StrCat(directory, "/", name);
      if (!superseded(file)) continue;
      if (!BelongsTo(PathOf(file), run_id)) {
        LOG_FIRST_N(WARNING, 10)
            << "leaving " << PathOf(file) << " alone, which run " << run_id
            << " has not written";
        continue;
      }
      RETURN_IF_ERROR(RemoveFile(PathOf(file)));
      removed.push_back(std::move(file));
    }
  }
  return removed;
}

std::string FragmentStore::PathOf(absl::string_view file) const {
  return absl::StrCat(root_, "/", file);
}

}  // namespace causeway
