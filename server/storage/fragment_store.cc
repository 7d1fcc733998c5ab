// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/storage/fragment_store.h"

#include <array>
#include <map>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/substitute.h"
#include "common/as_bytes.h"
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

// Returns the tensors that a fragment may have, in file order.
template <typename Fragment>
auto TensorsOf(Fragment& fragment) {
  using Tensor = std::pair<const char*, decltype(&fragment.theta)>;
  return std::array<Tensor, 4>{Tensor{"theta", &fragment.theta},
                               {"momentum", &fragment.momentum},
                               {"residual", &fragment.residual},
                               {"gradient_sum", &fragment.gradient_sum}};
}

// Returns whether the file has a tensor.
bool IsThere(const FragmentContents& contents,
             const absl::Span<const float>* values) {
  return !values->empty() || values == &contents.theta;
}

// Returns the beginning of a fragment's file, up to theta. `digests` are of the
// tensors that the fragment has. All digests have one length, so the header's
// length is fixed, too.
absl::StatusOr<std::string> FragmentHeader(
    const FragmentContents& contents, absl::Span<const std::string> digests) {
  Safetensors file{.metadata = HeadMetadata(contents.run_id, contents.head)};
  for (const auto& [name, values] : TensorsOf(contents)) {
    if (!IsThere(contents, values)) continue;
    CHECK_EQ(values->size(), contents.theta.size()) << name;
    const std::string& digest = digests[file.tensors.size()];
    file.tensors.push_back(
        FloatTensor(name, {static_cast<int64_t>(values->size())}, *values));
    file.metadata[absl::StrCat(name, "_digest")] = DigestToHex(digest);
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

absl::Status NewFragment::Append(absl::string_view bytes) {
  while (!bytes.empty()) {
    CHECK_LT(next_, parts_.size()) << "too many values";
    Part& part = parts_[next_];
    const absl::string_view piece = bytes.substr(0, part.missing_bytes);
    part.digest.Update(piece);
    RETURN_IF_ERROR(file_.AppendWithWriteback(piece));
    bytes.remove_prefix(piece.size());
    part.missing_bytes -= piece.size();
    if (part.missing_bytes == 0) ++next_;
  }
  return absl::OkStatus();
}

absl::Status NewFragment::AppendZeros() {
  const std::string zeros(1 << 20, '\0');
  while (next_ < parts_.size() && parts_[next_].missing_bytes > 0) {
    RETURN_IF_ERROR(Append(
        absl::string_view(zeros).substr(0, parts_[next_].missing_bytes)));
  }
  return absl::OkStatus();
}

absl::StatusOr<NewFragment> FragmentStore::BeginFragment(
    const FragmentContents& like) const {
  FragmentContents contents = like;
  const std::string unknown(kDigestBytes, '\0');
  contents.head.set_digest(unknown);
  ASSIGN_OR_RETURN(AtomicFileWriter file,
                   AtomicFileWriter::Create(PathOf(SnapshotName(contents.head)),
                                            options_.write_hook));
  NewFragment fragment(std::move(contents), std::move(file));
  for (const auto& [name, values] : TensorsOf(like)) {
    if (!IsThere(like, values)) continue;
    fragment.parts_.push_back(
        {.missing_bytes = values->size() * sizeof(float), .digest = {}});
  }
  const std::vector<std::string> digests(fragment.parts_.size(), unknown);
  ASSIGN_OR_RETURN(const std::string header,
                   FragmentHeader(fragment.contents_, digests));
  fragment.header_bytes_ = header.size();
  RETURN_IF_ERROR(fragment.file_.Append(header));
  return fragment;
}

absl::StatusOr<std::string> FragmentStore::CommitFragment(
    NewFragment fragment, v1::FragmentHead& head) const {
  std::vector<std::string> digests;
  for (const NewFragment::Part& part : fragment.parts_) {
    CHECK_EQ(part.missing_bytes, 0u) << "values are missing";
    digests.push_back(part.digest.Finish());
  }
  FragmentContents& contents = fragment.contents_;
  contents.head.set_digest(digests[0]);
  ASSIGN_OR_RETURN(const std::string header, FragmentHeader(contents, digests));
  CHECK_EQ(header.size(), fragment.header_bytes_);
  RETURN_IF_ERROR(fragment.file_.Overwrite(0, header));
  RETURN_IF_ERROR(fragment.file_.Commit());
  head = contents.head;
  return SnapshotName(head);
}

absl::StatusOr<std::string> FragmentStore::WriteFragment(
    FragmentContents& contents) const {
  ASSIGN_OR_RETURN(NewFragment fragment, BeginFragment(contents));
  for (const auto& [name, values] : TensorsOf(contents)) {
    RETURN_IF_ERROR(fragment.Append(AsStringView(*values)));
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
  return RemoveFileIfThere(PathOf(file));
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
        mapped->path(), " is damaged, or the wrong file: ", status.message()));
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
        LOG_FIRST_N(WARNING, 10) << "leaving " << PathOf(file) << " alone: run "
                                 << run_id << " did not write it";
        continue;
      }
      RETURN_IF_ERROR(Remove(file));
      removed.push_back(std::move(file));
    }
  }
  return removed;
}

std::string FragmentStore::PathOf(absl::string_view file) const {
  return absl::StrCat(root_, "/", file);
}

}  // namespace causeway
