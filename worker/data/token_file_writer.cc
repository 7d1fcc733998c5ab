// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/data/token_file_writer.h"

#include <cstddef>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "glog/logging.h"

namespace causeway {

absl::StatusOr<TokenFileWriter> TokenFileWriter::Create(
    const std::string& path, const Tokenizer& tokenizer) {
  ASSIGN_OR_RETURN(AtomicFileWriter file, AtomicFileWriter::Create(path));
  RETURN_IF_ERROR(file.Append(std::string(kTokenFileHeaderBytes, '\0')));
  TokenFileHeader header = {
      .token_bytes = tokenizer.vocabulary() <= 1 << 16 ? 2 : 4,
      .prepared = PreparedInfo{.vocabulary = tokenizer.vocabulary(),
                               .tokenizer = tokenizer.kind(),
                               .tokenizer_digest = tokenizer.digest()}};
  return TokenFileWriter(path, std::move(file), std::move(header));
}

TokenFileWriter::TokenFileWriter(std::string path, AtomicFileWriter file,
                                 TokenFileHeader header)
    : path_(std::move(path)),
      file_(std::move(file)),
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
  RETURN_IF_ERROR(file_.Append(encoded_));
  digest_.Update(encoded_);
  header_.tokens += count;
  return absl::OkStatus();
}

absl::Status TokenFileWriter::Commit() {
  if (header_.tokens == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(path_, ": nothing to write: there are no tokens"));
  }
  header_.prepared->tokens_digest = digest_.Finish();
  RETURN_IF_ERROR(file_.Overwrite(0, SerializeTokenFileHeader(header_)));
  return file_.Commit();
}

}  // namespace causeway
