// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/storage/merge_store.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstddef>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/substitute.h"
#include "common/checksum.h"
#include "common/os/file.h"
#include "common/status_macros.h"
#include "common/tensors/byte_planes.h"
#include "glog/logging.h"
#include "google/protobuf/message_lite.h"

namespace causeway {
namespace {

// The threads that compress a merged gradient: enough for most disks.
constexpr int kCompressors = 2;

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

// Returns the bytes per value of dense formats; 1 for all others.
size_t WidthOf(const v1::EncodedObject& object) {
  return object.format() == v1::FP32 ? 4 : object.format() == v1::BF16 ? 2 : 1;
}

std::string PlanesName(size_t index) { return absl::StrCat(index, ".planes"); }

// An encoding or a merged gradient in a record.
struct RecordedObject {
  v1::EncodedObject object;
  // For error messages.
  std::string name;
};

std::vector<RecordedObject> ObjectsOf(const v1::RecordedMerge& merge) {
  std::vector<RecordedObject> objects;
  if (!merge.gradient_digest().empty()) {
    RecordedObject& gradient = objects.emplace_back();
    const uint64_t size = merge.contributions().empty()
                              ? 0
                              : merge.contributions(0).object().size();
    gradient.object.set_format(v1::FP32);
    gradient.object.set_encoded_bytes(size * sizeof(float));
    gradient.object.set_digest(merge.gradient_digest());
    gradient.name = "the merged gradient";
    return objects;
  }
  for (const v1::ContributionHeader& header : merge.contributions()) {
    objects.push_back(
        {header.object(),
         absl::StrCat("the contribution of ", header.identity().island_id())});
  }
  return objects;
}

// Returns the bytes of object `index` of a record; `memory` holds them if they
// were compressed.
absl::StatusOr<absl::string_view> ReadEncoding(const Safetensors& file,
                                               const RecordedObject& recorded,
                                               size_t index,
                                               std::string& memory) {
  const v1::EncodedObject& object = recorded.object;
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
        "$0 is damaged: its digest is not the recorded one", recorded.name));
  }
  return encoding;
}

}  // namespace

absl::Status MergeStore::CreateFolder() const {
  return CreateDirectory(Directory(root_));
}

// A record being written: room for the header, then the tensors in the order in
// which they came. Thread-safe.
class MergeStore::Draft {
 public:
  // Begins the file of `version` with room for a header with `encodings`.
  static absl::StatusOr<std::shared_ptr<Draft>> Begin(
      const std::string& path, uint64_t version, size_t encodings,
      const v1::RunConfig& config) {
    ASSIGN_OR_RETURN(AtomicFileWriter file, AtomicFileWriter::Create(path));
    // A multiple of 64, as EncodeSafetensorsHeader makes it.
    const size_t header =
        (kHeaderBytes + kTensorBytes * encodings + 63) / 64 * 64;
    RETURN_IF_ERROR(file.Append(std::string(header, ' ')));
    // The constructor is private, so std::make_shared cannot call it.
    return std::shared_ptr<Draft>(
        new Draft(std::move(file), version, header,
                  config.storage().record_contributions()));
  }

  uint64_t version() const { return version_; }

  // Appends an encoding, unless the file has it.
  void Prepare(const v1::EncodedObject& object, absl::string_view encoding) {
    absl::MutexLock lock(&mu_);
    if (!file_.has_value()) return;
    for (const Encoding& prepared : encodings_) {
      if (prepared.digest == object.digest()) return;
    }
    if (!AppendEncoding(object, encoding).ok()) file_.reset();
  }

  // Appends what is missing, writes the header, makes the file durable and
  // returns its size. FAILED_PRECONDITION if Prepare failed. Call at most once.
  absl::StatusOr<uint64_t> Commit(const v1::RecordedMerge& merge,
                                  const v1::RunConfig& config,
                                  absl::Span<const absl::string_view> encodings,
                                  const Written& written) {
    absl::MutexLock lock(&mu_);
    if (!file_.has_value()) {
      return absl::FailedPreconditionError("an encoding was not written");
    }
    const absl::Status committed = TryCommit(merge, config, encodings, written);
    const auto size = static_cast<uint64_t>(file_->bytes_written());
    file_.reset();
    RETURN_IF_ERROR(committed);
    return size;
  }

 private:
  // The room for the header's fixed part, and for each encoding.
  static constexpr size_t kHeaderBytes = 512;
  static constexpr size_t kTensorBytes = 96;

  struct Encoding {
    std::string digest;
    bool planes = false;
  };

  Draft(AtomicFileWriter file, uint64_t version, size_t header_bytes,
        bool compress)
      : version_(version),
        header_bytes_(header_bytes),
        compress_(compress),
        file_(std::move(file)) {}

  absl::Status TryCommit(const v1::RecordedMerge& merge,
                         const v1::RunConfig& config,
                         absl::Span<const absl::string_view> encodings,
                         const Written& written)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    const std::vector<RecordedObject> objects = ObjectsOf(merge);
    CHECK_EQ(encodings.size(), objects.size());
    compress_ = compress_ || !merge.gradient_digest().empty();
    for (size_t i = 0; i < objects.size(); ++i) {
      RETURN_IF_ERROR(Place(objects[i].object, i, encodings[i]));
    }
    int unmerged = 0;
    for (SafetensorsTensor& tensor : contents_.tensors) {
      if (tensor.name.empty()) {
        tensor.name = absl::StrCat("unmerged.", unmerged++);
      }
    }
    RETURN_IF_ERROR(AppendMessage(kMerge, merge));
    RETURN_IF_ERROR(AppendMessage(kConfig, config));
    ASSIGN_OR_RETURN(const std::string header,
                     EncodeSafetensorsHeader(contents_, header_bytes_));
    if (header.size() > header_bytes_) {
      return absl::ResourceExhaustedError("too many encodings were prepared");
    }
    RETURN_IF_ERROR(file_->Overwrite(0, header));
    if (written != nullptr) {
      ASSIGN_OR_RETURN(MappedFile file,
                       MappedFile::Open(file_->temporary_path()));
      written(std::move(file));
    }
    return file_->Commit();
  }

  absl::Status AppendEncoding(const v1::EncodedObject& object,
                              absl::string_view encoding)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    const int64_t begin = file_->bytes_written();
    // An entropy-coded encoding would not get smaller.
    const bool planes = compress_ && !object.entropy_coded();
    if (planes) {
      RETURN_IF_ERROR(StreamPlanes(encoding, WidthOf(object), kCompressors,
                                   [&](absl::string_view piece) {
                                     // The waiting thread holds it.
                                     mu_.AssertHeld();
                                     return file_->AppendWithWriteback(piece);
                                   }));
    } else {
      RETURN_IF_ERROR(file_->AppendWithWriteback(encoding));
    }
    AddTensor("", begin);
    encodings_.push_back({.digest = object.digest(), .planes = planes});
    return absl::OkStatus();
  }

  // Names the encoding's tensor, and appends the encoding if it was not
  // prepared.
  absl::Status Place(const v1::EncodedObject& object, size_t index,
                     absl::string_view encoding)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    size_t place = 0;
    while (place < encodings_.size() &&
           (!contents_.tensors[place].name.empty() ||
            encodings_[place].digest != object.digest())) {
      ++place;
    }
    if (place == encodings_.size()) {
      RETURN_IF_ERROR(AppendEncoding(object, encoding));
    }
    contents_.tensors[place].name =
        encodings_[place].planes ? PlanesName(index) : absl::StrCat(index);
    return absl::OkStatus();
  }

  absl::Status AppendMessage(absl::string_view name,
                             const google::protobuf::MessageLite& message)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    const std::string bytes = message.SerializeAsString();
    const int64_t begin = file_->bytes_written();
    contents_.metadata[ChecksumKey(name)] = Checksum(bytes);
    RETURN_IF_ERROR(file_->AppendWithWriteback(bytes));
    AddTensor(name, begin);
    return absl::OkStatus();
  }

  // Adds a tensor of the bytes appended since the file had `begin` bytes.
  void AddTensor(absl::string_view name, int64_t begin)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    const auto size = static_cast<size_t>(file_->bytes_written() - begin);
    contents_.tensors.push_back({.name = std::string(name),
                                 .dtype = "U8",
                                 .shape = {static_cast<int64_t>(size)},
                                 // The header needs only the size.
                                 .bytes = absl::string_view(nullptr, size)});
  }

  const uint64_t version_;
  const size_t header_bytes_;
  absl::Mutex mu_;
  // Is true if further encodings are compressed.
  bool compress_ ABSL_GUARDED_BY(mu_);
  // None after an error, and after the commit.
  std::optional<AtomicFileWriter> file_ ABSL_GUARDED_BY(mu_);
  std::vector<Encoding> encodings_ ABSL_GUARDED_BY(mu_);
  // The tensors of `encodings_`, in the same order and unnamed until they are
  // merged; then the messages. Only the sizes of the bytes are valid.
  Safetensors contents_ ABSL_GUARDED_BY(mu_);
};

std::shared_ptr<MergeStore::Draft> MergeStore::DraftOf(
    uint32_t fragment, uint64_t version, const v1::RunConfig& config) {
  absl::MutexLock lock(&mu_);
  Fragment& merges = fragments_[fragment];
  if (version <= merges.written) return nullptr;
  if (merges.draft != nullptr && merges.draft->version() == version) {
    return merges.draft;
  }
  // A new round makes an earlier draft useless.
  merges.draft = nullptr;
  auto begun = Draft::Begin(FilePath(root_, fragment, version), version,
                            config.membership().max_islands(), config);
  if (begun.ok()) merges.draft = *std::move(begun);
  return merges.draft;
}

void MergeStore::Prepare(const v1::ContributionHeader& contribution,
                         const v1::RunConfig& config,
                         absl::string_view encoding) {
  const std::shared_ptr<Draft> draft =
      DraftOf(contribution.fragment(), contribution.base_version() + 1, config);
  if (draft != nullptr) draft->Prepare(contribution.object(), encoding);
}

absl::StatusOr<uint64_t> MergeStore::Write(
    const v1::RecordedMerge& merge, const v1::RunConfig& config,
    absl::Span<const absl::string_view> encodings, const Written& written) {
  const uint32_t fragment = merge.head().fragment();
  const uint64_t version = merge.head().version();
  std::shared_ptr<Draft> draft;
  {
    absl::MutexLock lock(&mu_);
    Fragment& merges = fragments_[fragment];
    merges.written = version;
    draft = std::exchange(merges.draft, nullptr);
  }
  if (draft != nullptr && draft->version() == version) {
    auto size = draft->Commit(merge, config, encodings, written);
    if (size.ok()) return size;
  }
  ASSIGN_OR_RETURN(draft, Draft::Begin(FilePath(root_, fragment, version),
                                       version, encodings.size(), config));
  return draft->Commit(merge, config, encodings, written);
}

absl::StatusOr<StoredMerge> MergeStore::Open(uint32_t fragment,
                                             uint64_t version) const {
  return OpenAt(FilePath(root_, fragment, version));
}

absl::StatusOr<StoredMerge> MergeStore::Open(const AtomicFileWriter& received) {
  return OpenAt(received.temporary_path());
}

absl::StatusOr<StoredMerge> MergeStore::OpenAt(const std::string& path) {
  ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::Open(path));
  StoredMerge stored(std::move(file));
  const Safetensors& contents = stored.file_.contents();
  absl::Status status = ReadMessage(contents, kMerge, stored.merge_);
  if (status.ok()) status = ReadMessage(contents, kConfig, stored.config_);
  const std::vector<RecordedObject> objects = ObjectsOf(stored.merge_);
  for (size_t i = 0; status.ok() && i < objects.size(); ++i) {
    const absl::StatusOr<absl::string_view> encoding = ReadEncoding(
        contents, objects[i], i, stored.decompressed_.emplace_back());
    status = encoding.status();
    if (status.ok()) stored.encodings_.push_back(*encoding);
  }
  if (!status.ok()) {
    return absl::DataLossError(
        absl::StrCat(path, ": ", std::string(status.message())));
  }
  return stored;
}

absl::StatusOr<MappedFile> MergeStore::OpenFile(uint32_t fragment,
                                                uint64_t version) const {
  return MappedFile::Open(FilePath(root_, fragment, version));
}

absl::StatusOr<AtomicFileWriter> MergeStore::BeginFile(uint32_t fragment,
                                                       uint64_t version) const {
  return AtomicFileWriter::Create(FilePath(root_, fragment, version));
}

absl::StatusOr<uint64_t> MergeStore::Size(uint32_t fragment,
                                          uint64_t version) const {
  const std::string path = FilePath(root_, fragment, version);
  struct stat status;
  if (stat(path.c_str(), &status) != 0) {
    return ErrnoStatus(errno, "inspect", path);
  }
  return static_cast<uint64_t>(status.st_size);
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
  // Remove the oldest first, so that after a crash the rest is found again.
  for (; first <= version; ++first) {
    // Another thread may remove the same records.
    RETURN_IF_ERROR(RemoveFileIfThere(FilePath(root_, fragment, first)));
  }
  return absl::OkStatus();
}

}  // namespace causeway
