// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/storage/quarantine_store.h"

#include "absl/strings/str_cat.h"
#include "common/file.h"
#include "common/status_macros.h"

namespace causeway {

std::string QuarantineStore::File(uint64_t id) const {
  return absl::StrCat(path_, "/", id);
}

absl::Status QuarantineStore::Write(uint64_t id,
                                    absl::string_view encoded) const {
  RETURN_IF_ERROR(CreateDirectory(path_));
  return WriteFileAtomically(File(id), {encoded});
}

absl::StatusOr<std::string> QuarantineStore::Read(uint64_t id) const {
  return ReadFile(File(id));
}

absl::Status QuarantineStore::Remove(uint64_t id) const {
  const absl::Status removed = RemoveFile(File(id));
  return absl::IsNotFound(removed) ? absl::OkStatus() : removed;
}

}  // namespace causeway
