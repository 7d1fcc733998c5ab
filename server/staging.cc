// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/staging.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
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

}  // namespace

absl::StatusOr<uint64_t> Staging::Begin(const ContributionKey& key,
                                        const v1::EncodedObject& object) {
  absl::MutexLock lock(&mu_);
  const auto found = uploads_.find(key);
  if (found != uploads_.end()) {
    const v1::EncodedObject& present = found->second->object;
    if (IsSame(present, object)) return found->second->assembler.next_offset();
    if (found->second->verified) {
      return absl::FailedPreconditionError(absl::StrCat(
          "island ", key.island_id, " (incarnation ", key.incarnation,
          ") has handed in other bytes for fragment ", key.fragment,
          " at version ", key.base_version,
          "; a contribution does not change"));
    }
    EraseLocked(found);
  }
  if (object.encoded_bytes() > capacity_ - used_) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "the memory for uploads is full (", used_, " of ", capacity_,
        " bytes, ", object.encoded_bytes(), " more asked for); retry later"));
  }
  used_ += object.encoded_bytes();
  uploads_.emplace(key, std::make_unique<Upload>(object));
  return 0;
}

absl::StatusOr<bool> Staging::Append(const ContributionKey& key,
                                     const v1::Chunk& chunk) {
  absl::MutexLock lock(&mu_);
  const auto found = uploads_.find(key);
  if (found == uploads_.end()) return NoUpload(key);
  ChunkAssembler& assembler = found->second->assembler;
  if (chunk.offset() != assembler.next_offset()) {
    return absl::UnavailableError(absl::StrCat(
        "the upload of island ", key.island_id, " goes on at offset ",
        assembler.next_offset(), ", but a chunk of offset ", chunk.offset(),
        " came; offer the contribution again"));
  }
  RETURN_IF_ERROR(assembler.Add(chunk));
  return assembler.complete();
}

absl::Status Staging::Verify(const ContributionKey& key,
                             const v1::EncodedObject& object) {
  ASSIGN_OR_RETURN(const std::shared_ptr<const std::string> bytes, Get(key));
  // Outside the lock: this reads every byte.
  const absl::Status verified = VerifyEncoding(object, *bytes);
  absl::MutexLock lock(&mu_);
  const auto found = uploads_.find(key);
  if (found == uploads_.end() || found->second->bytes != bytes ||
      !IsSame(found->second->object, object)) {
    return NoUpload(key);
  }
  if (!verified.ok()) {
    EraseLocked(found);
    return verified;
  }
  found->second->verified = true;
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const std::string>> Staging::Get(
    const ContributionKey& key) const {
  absl::MutexLock lock(&mu_);
  const auto found = uploads_.find(key);
  if (found == uploads_.end()) return NoUpload(key);
  const Upload& upload = *found->second;
  if (!upload.assembler.complete()) {
    return absl::FailedPreconditionError(
        absl::StrCat("the upload of island ", key.island_id, " to fragment ",
                     key.fragment, " has ", upload.assembler.next_offset(),
                     " of ", upload.object.encoded_bytes(), " bytes"));
  }
  return std::shared_ptr<const std::string>(upload.bytes);
}

void Staging::Discard(const ContributionKey& key) {
  absl::MutexLock lock(&mu_);
  const auto found = uploads_.find(key);
  if (found != uploads_.end()) EraseLocked(found);
}

void Staging::DiscardBefore(uint32_t fragment, uint64_t version) {
  absl::MutexLock lock(&mu_);
  auto upload = uploads_.lower_bound({.fragment = fragment});
  const auto end =
      uploads_.lower_bound({.fragment = fragment, .base_version = version});
  while (upload != end) upload = EraseLocked(upload);
}

Staging::Uploads::iterator Staging::EraseLocked(Uploads::iterator upload) {
  used_ -= upload->second->object.encoded_bytes();
  return uploads_.erase(upload);
}

uint64_t Staging::used_bytes() const {
  absl::MutexLock lock(&mu_);
  return used_;
}

}  // namespace causeway
