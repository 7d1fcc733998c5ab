// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/staging.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "quantization/codec.h"
#include "quantization/encoded_object.h"

namespace causeway {
namespace {

absl::Status NoUpload(const ContributionKey& key) {
  return absl::UnavailableError(absl::StrCat(
      "no upload of island ", key.island_id, " (incarnation ", key.incarnation,
      ") to fragment ", key.fragment, " at version ", key.base_version,
      " is under way; offer the contribution again"));
}

bool IsSame(const v1::EncodedObject& a, const v1::EncodedObject& b) {
  return a.digest() == b.digest() && a.encoded_bytes() == b.encoded_bytes();
}

// Larger encodings do not stay in a cache until their round closes.
constexpr uint64_t kCachedBytes = 4 << 20;

ChunkAssembler::Use UseOf(uint64_t bytes) {
  return bytes > kCachedBytes ? ChunkAssembler::Use::kLater
                              : ChunkAssembler::Use::kSoon;
}

// Returns whether the upload may still succeed after this error.
bool IsForLater(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsFailedPrecondition(status);
}

}  // namespace

struct Staging::Upload {
  // `memory` has `max_bytes` for the encoding; the rest, if any, is for its
  // codes.
  Upload(const v1::EncodedObject& described, uint64_t max_bytes,
         PooledBuffer memory)
      : buffer(std::move(memory)),
        codes(buffer.bytes.subspan(max_bytes)),
        object(described),
        assembler(buffer.bytes.first(max_bytes), UseOf(max_bytes)),
        reader(NewEncodingReader(SpecOf(described), described.size(),
                                 EncodingReader::Task::kMeasureValues)) {
    reader.KeepCodes(codes);
  }

  const PooledBuffer buffer;
  const absl::Span<char> codes;
  // The upload's part of used_. Guarded by Staging::mu_.
  uint64_t accounted = 0;

  absl::Mutex mu;
  v1::EncodedObject object ABSL_GUARDED_BY(mu);
  ChunkAssembler assembler ABSL_GUARDED_BY(mu);
  // Has read the same bytes as the assembler.
  EncodingReader reader ABSL_GUARDED_BY(mu);
  bool verified ABSL_GUARDED_BY(mu) = false;

  // Returns whether an upload of `offered` may continue with these bytes; if
  // so, `offered` describes them from now on.
  bool Adopt(const v1::EncodedObject& offered) ABSL_LOCKS_EXCLUDED(mu) {
    absl::MutexLock lock(&mu);
    if (IsOpen(offered)) return false;
    if (!IsOpen(object)) return IsSame(object, offered);
    if (offered.encoded_bytes() < assembler.next_offset()) return false;
    object = offered;
    return true;
  }

  absl::StatusOr<bool> Append(const ContributionKey& key, const Chunk& chunk)
      ABSL_LOCKS_EXCLUDED(mu) {
    absl::MutexLock lock(&mu);
    const uint64_t begin = assembler.next_offset();
    if (chunk.offset != begin || verified) {
      return absl::UnavailableError(absl::StrCat(
          "the upload of island ", key.island_id, " continues at offset ",
          begin, ", but a chunk of offset ", chunk.offset,
          " came; offer the contribution again"));
    }
    if (!IsOpen(object) && chunk.size() > object.encoded_bytes() - begin) {
      return absl::InvalidArgumentError(absl::StrCat(
          "chunk of ", chunk.size(), " bytes at offset ", begin,
          " goes beyond the object's ", object.encoded_bytes(), " bytes"));
    }
    // Verify() reports errors of the encoding.
    const auto read = [this](absl::string_view bytes)
                          ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
                            reader.Read(bytes).IgnoreError();
                          };
    const absl::Status added = assembler.Add(chunk, read);
    if (!added.ok()) {
      reader.GoBack(absl::string_view(buffer.bytes.data(), begin));
      return added;
    }
    return !IsOpen(object) && assembler.next_offset() == object.encoded_bytes();
  }

  // See Staging::Verify. UNAVAILABLE and FAILED_PRECONDITION leave the upload
  // as it is; after any other error nothing can be appended.
  absl::StatusOr<double> Verify(const ContributionKey& key,
                                const v1::EncodedObject& described,
                                absl::Span<const uint64_t> ends,
                                std::vector<StripRun>* runs)
      ABSL_LOCKS_EXCLUDED(mu) {
    absl::MutexLock lock(&mu);
    const uint64_t received = assembler.next_offset();
    if (IsOpen(object)) {
      RETURN_IF_ERROR(CheckTrailer(described, object));
    } else if (!IsSame(object, described)) {
      return NoUpload(key);
    } else if (received < described.encoded_bytes()) {
      return absl::FailedPreconditionError(absl::StrCat(
          "the upload of island ", key.island_id, " to fragment ", key.fragment,
          " has ", received, " of ", described.encoded_bytes(), " bytes"));
    }
    RETURN_IF_ERROR(CheckArrival(described, received, assembler.digest()));
    const absl::StatusOr<double> norm = reader.Norm();
    if (runs != nullptr && (norm.ok() || absl::IsOutOfRange(norm.status()))) {
      *runs = reader.Runs(ends);
    }
    RETURN_IF_ERROR(norm.status());
    object = described;
    verified = true;
    return norm;
  }

  bool IsVerified() ABSL_LOCKS_EXCLUDED(mu) {
    absl::MutexLock lock(&mu);
    return verified;
  }
};

absl::StatusOr<uint64_t> Staging::Begin(const ContributionKey& key,
                                        const v1::EncodedObject& object,
                                        uint64_t max_bytes) {
  absl::MutexLock lock(&mu_);
  const auto found = uploads_.find(key);
  if (found != uploads_.end()) {
    Upload& present = *found->second;
    if (present.Adopt(object)) {
      Account(present, object.encoded_bytes());
      absl::MutexLock upload_lock(&present.mu);
      return present.assembler.next_offset();
    }
    if (present.IsVerified()) {
      return absl::FailedPreconditionError(absl::StrCat(
          "island ", key.island_id, " (incarnation ", key.incarnation,
          ") has already sent other bytes for fragment ", key.fragment,
          " at version ", key.base_version,
          "; a contribution must not change"));
    }
    EraseLocked(found);
  }
  const uint64_t bytes = IsOpen(object) ? max_bytes : object.encoded_bytes();
  if (bytes > capacity_ - used_) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "the memory for uploads is full (", used_, " of ", capacity_,
        " bytes, ", bytes, " more asked for); retry later"));
  }
  uint64_t codes = CodeBytes(SpecOf(object), object.size());
  if (codes > codes_capacity_ - codes_used_) codes = 0;
  codes_used_ += codes;
  auto upload = std::make_shared<Upload>(object, max_bytes,
                                         pool_.Take(max_bytes + codes));
  Account(*upload, bytes);
  uploads_.emplace(key, std::move(upload));
  return 0;
}

absl::StatusOr<bool> Staging::Append(const ContributionKey& key,
                                     const Chunk& chunk) {
  const std::shared_ptr<Upload> upload = Find(key);
  if (upload == nullptr) return NoUpload(key);
  return upload->Append(key, chunk);
}

absl::StatusOr<double> Staging::Verify(const ContributionKey& key,
                                       const v1::EncodedObject& object,
                                       absl::Span<const uint64_t> ends,
                                       std::vector<StripRun>* runs) {
  const std::shared_ptr<Upload> upload = Find(key);
  if (upload == nullptr) return NoUpload(key);
  const absl::StatusOr<double> norm = upload->Verify(key, object, ends, runs);
  if (IsForLater(norm.status())) return norm;
  absl::MutexLock lock(&mu_);
  const auto found = uploads_.find(key);
  if (found == uploads_.end() || found->second != upload) return NoUpload(key);
  if (norm.ok()) {
    Account(*upload, object.encoded_bytes());
  } else {
    EraseLocked(found);
  }
  return norm;
}

absl::StatusOr<StagedEncoding> Staging::Get(const ContributionKey& key) const {
  {
    absl::MutexLock lock(&mu_);
    const auto kept = kept_.find(key);
    if (kept != kept_.end()) return kept->second;
  }
  const std::shared_ptr<Upload> upload = Find(key);
  if (upload == nullptr) return NoUpload(key);
  absl::MutexLock lock(&upload->mu);
  const uint64_t received = upload->assembler.next_offset();
  if (!upload->verified) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the upload of island ", key.island_id, " to fragment ", key.fragment,
        " has ", received, " bytes so far, not verified"));
  }
  return StagedEncoding{
      .bytes = absl::string_view(upload->buffer.bytes.data(), received),
      .codes = upload->codes,
      .owner = upload->buffer.owner};
}

void Staging::Discard(const ContributionKey& key) {
  absl::MutexLock lock(&mu_);
  kept_.erase(key);
  const auto found = uploads_.find(key);
  if (found != uploads_.end()) EraseLocked(found);
}

void Staging::DiscardBefore(uint32_t fragment, uint64_t version) {
  absl::MutexLock lock(&mu_);
  const ContributionKey begin{.fragment = fragment};
  const ContributionKey end{.fragment = fragment, .base_version = version};
  kept_.erase(kept_.lower_bound(begin), kept_.lower_bound(end));
  auto upload = uploads_.lower_bound(begin);
  const auto last = uploads_.lower_bound(end);
  while (upload != last) upload = EraseLocked(upload);
}

std::shared_ptr<Staging::Upload> Staging::Find(
    const ContributionKey& key) const {
  absl::MutexLock lock(&mu_);
  const auto found = uploads_.find(key);
  return found == uploads_.end() ? nullptr : found->second;
}

void Staging::Account(Upload& upload, uint64_t bytes) {
  used_ += bytes - upload.accounted;
  upload.accounted = bytes;
}

Staging::Uploads::iterator Staging::EraseLocked(Uploads::iterator upload) {
  Account(*upload->second, 0);
  codes_used_ -= upload->second->codes.size();
  return uploads_.erase(upload);
}

uint64_t Staging::used_bytes() const {
  absl::MutexLock lock(&mu_);
  return used_;
}

}  // namespace causeway
