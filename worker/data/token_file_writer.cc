// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/data/token_file_writer.h"

#include <cstddef>
#include <cstring>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "common/checksum.h"
#include "common/status_macros.h"
#include "glog/logging.h"

namespace causeway {
namespace {

std::string IdsPath(const std::string& path) { return path + ".ids"; }

}  // namespace

absl::StatusOr<TokenFileWriter> TokenFileWriter::Create(
    const std::string& path, const Tokenizer& tokenizer) {
  ASSIGN_OR_RETURN(AtomicFileWriter ids,
                   AtomicFileWriter::Create(IdsPath(path)));
  TokenFileHeader header = {
      .token_bytes = tokenizer.vocabulary() <= 1 << 16 ? 2 : 4,
      .prepared = PreparedInfo{.vocabulary = tokenizer.vocabulary(),
                               .tokenizer = tokenizer.kind(),
                               .tokenizer_digest = tokenizer.digest()}};
  return TokenFileWriter(path, std::move(ids), std::move(header));
}

TokenFileWriter::TokenFileWriter(std::string path, AtomicFileWriter ids,
                                 TokenFileHeader header)
    : path_(std::move(path)),
      ids_(std::move(ids)),
      header_(std::move(header)) {}

absl::Status TokenFileWriter::Append(absl::Span<const int32_t> ids) {
  const int64_t count = static_cast<int64_t>(ids.size());
  if (count > kMaxTokensPerFile - header_.tokens) {
    return absl::OutOfRangeError(absl::StrCat(
        path_, ": more than the ", kMaxTokensPerFile,
        " tokens that one token file can hold; prepare several files"));
  }
  const size_t width = static_cast<size_t>(header_.token_bytes);
  encoded_.resize(ids.size() * width);
  for (size_t i = 0; i < ids.size(); ++i) {
    DCHECK_GE(ids[i], 0);
    DCHECK_LT(ids[i], header_.prepared->vocabulary);
    // Little-endian: the low bytes of the id come first.
    std::memcpy(encoded_.data() + i * width, &ids[i], width);
  }
  RETURN_IF_ERROR(ids_.Append(encoded_));
  header_.tokens += count;
  return absl::OkStatus();
}

absl::Status TokenFileWriter::Commit() {
  if (header_.tokens == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(path_, ": nothing to write: there are no tokens"));
  }
  const absl::Cleanup remove_ids = [this] {
    // Commit may have failed before the file had this name.
    RemoveFile(IdsPath(path_)).IgnoreError();
  };
  RETURN_IF_ERROR(ids_.Commit());
  ASSIGN_OR_RETURN(const MappedFile ids, MappedFile::Open(IdsPath(path_)));
  header_.prepared->tokens_digest = Digest128(ids.bytes());
  return WriteFileAtomically(path_,
                             {SerializeTokenFileHeader(header_), ids.bytes()});
}

}  // namespace causeway
