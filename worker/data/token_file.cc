// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/data/token_file.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/checksum.h"
#include "common/config/run_config.h"
#include "common/foreign/file.h"
#include "common/printable.h"
#include "common/status_macros.h"
#include "glog/logging.h"

namespace causeway {
namespace {

// Calls visit(pointer to the payload's tokens in their type). The payload
// starts at a page or kTokenFileHeaderBytes after it, so it is aligned for
// every type.
template <typename Visitor>
auto VisitTokens(absl::string_view payload, int token_bytes, Visitor visit) {
  switch (token_bytes) {
    case 1:
      return visit(reinterpret_cast<const uint8_t*>(payload.data()));
    case 2:
      return visit(reinterpret_cast<const uint16_t*>(payload.data()));
    default:
      CHECK_EQ(token_bytes, 4);
      return visit(reinterpret_cast<const uint32_t*>(payload.data()));
  }
}

// Compilers vectorize this plain loop over a local maximum.
template <typename Token>
Token Largest(const Token* tokens, int64_t size) {
  Token largest = 0;
  for (int64_t i = 0; i < size; ++i) {
    largest = tokens[i] > largest ? tokens[i] : largest;
  }
  return largest;
}

// Returns whether a file begins with text, which has none of the control
// characters that are in every long file of ids.
bool IsText(absl::string_view file) {
  constexpr size_t kLeast = 64;
  constexpr size_t kMost = 1 << 16;
  size_t size = std::min(file.size(), kMost);
  // Do not cut within a character.
  while (size > 0 && size < file.size() &&
         (static_cast<uint8_t>(file[size]) & 0xc0) == 0x80) {
    --size;
  }
  const absl::string_view start = file.substr(0, size);
  return size >= kLeast &&
         absl::c_none_of(start,
                         [](unsigned char byte) {
                           return absl::ascii_iscntrl(byte) &&
                                  !absl::ascii_isspace(byte);
                         }) &&
         IsUtf8(start);
}

}  // namespace

absl::StatusOr<TokenFile> TokenFile::Open(const std::string& path,
                                          v1::DataConfig::Tokenizer tokenizer) {
  ASSIGN_OR_RETURN(MappedFile mapped, OpenForeignFile(path));
  if (mapped.bytes().empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": the file is empty; give a file with data"));
  }
  TokenFile file(std::move(mapped));
  if (HasTokenFileHeader(file.file_.bytes())) {
    RETURN_IF_ERROR(file.OpenHeader());
  } else if (tokenizer == v1::DataConfig::BYTES) {
    file.payload_ = file.file_.bytes();
    file.size_ = static_cast<int64_t>(file.payload_.size());
    // Text needs no scan.
    file.vocabulary_ = kByteVocabulary;
    return file;
  } else {
    RETURN_IF_ERROR(file.OpenFlat());
  }
  const int64_t largest_id_plus_1 =
      VisitTokens(file.payload_, file.token_bytes_, [&](const auto* tokens) {
        return int64_t{Largest(tokens, file.size_)} + 1;
      });
  file.vocabulary_ = largest_id_plus_1;
  if (file.prepared_.has_value()) {
    RETURN_IF_ERROR(file.CheckPrepared(tokenizer, largest_id_plus_1));
    file.vocabulary_ = file.prepared_->vocabulary;
  }
  return file;
}

absl::Status TokenFile::OpenHeader() {
  const absl::string_view bytes = file_.bytes();
  ASSIGN_OR_RETURN(
      TokenFileHeader header,
      ParseTokenFileHeader(bytes, static_cast<int64_t>(bytes.size()), path()));
  if (header.tokens == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        path(), ": the file holds no tokens; give a file with data"));
  }
  payload_ = bytes.substr(kTokenFileHeaderBytes);
  token_bytes_ = header.token_bytes;
  size_ = header.tokens;
  prepared_ = std::move(header.prepared);
  return absl::OkStatus();
}

absl::Status TokenFile::OpenFlat() {
  payload_ = file_.bytes();
  token_bytes_ = 2;
  const bool is_text = IsText(payload_);
  if (is_text || payload_.size() % 2 != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        path(), ": ",
        is_text
            ? "this is text"
            : absl::StrCat(payload_.size(),
                           " bytes are not a whole number of uint16 token ids"),
        "; give a flat uint16 file, an llm.c file or one from `causeway "
        "prepare` (text itself is read with data.tokenizer: BYTES)"));
  }
  size_ = static_cast<int64_t>(payload_.size() / 2);
  return absl::OkStatus();
}

absl::Status TokenFile::CheckPrepared(v1::DataConfig::Tokenizer tokenizer,
                                      int64_t largest_id_plus_1) const {
  if (tokenizer != v1::DataConfig::PRETOKENIZED &&
      tokenizer != prepared_->tokenizer) {
    return absl::InvalidArgumentError(
        absl::StrCat(path(), ": prepared with tokenizer ",
                     v1::DataConfig::Tokenizer_Name(prepared_->tokenizer),
                     ", but the run's data.tokenizer is ",
                     v1::DataConfig::Tokenizer_Name(tokenizer),
                     "; prepare the text with the run's tokenizer"));
  }
  if (const std::string digest = Digest128(payload_);
      digest != prepared_->tokens_digest) {
    return absl::DataLossError(absl::StrCat(
        path(), ": the tokens have digest ", DigestToHex(digest),
        ", the header says ", DigestToHex(prepared_->tokens_digest),
        "; run `causeway prepare` again"));
  }
  if (largest_id_plus_1 > prepared_->vocabulary) {
    return absl::DataLossError(absl::StrCat(
        path(), ": the largest token id is ", largest_id_plus_1 - 1,
        ", but the header says that the vocabulary has ", prepared_->vocabulary,
        "; run `causeway prepare` again"));
  }
  return absl::OkStatus();
}

void TokenFile::Copy(int64_t begin, absl::Span<int32_t> tokens) const {
  CHECK_GE(begin, 0);
  CHECK_LE(begin, size_);
  CHECK_LE(static_cast<int64_t>(tokens.size()), size_ - begin);
  VisitTokens(payload_, token_bytes_, [&](const auto* source) {
    for (size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = static_cast<int32_t>(source[begin + static_cast<int64_t>(i)]);
    }
  });
}

absl::Status TokenFile::OpenMask() {
  ASSIGN_OR_RETURN(mask_, MappedFile::Open(path() + ".mask"));
  const int64_t bytes = static_cast<int64_t>(mask_->bytes().size());
  if (bytes != (size_ + 7) / 8) {
    return absl::InvalidArgumentError(absl::StrCat(
        mask_->path(), ": ", bytes, " bytes; the ", size_, " tokens of ",
        path(), " need ", (size_ + 7) / 8, ", one bit for each token"));
  }
  return absl::OkStatus();
}

void TokenFile::HideMasked(int64_t begin, absl::Span<int32_t> tokens) const {
  const absl::string_view bits = mask_->bytes();
  for (size_t i = 0; i < tokens.size(); ++i) {
    const size_t at = static_cast<size_t>(begin) + i;
    if ((bits[at / 8] >> at % 8 & 1) == 0) tokens[i] = kNoTarget;
  }
}

int64_t TokenFile::FindOutside(int64_t vocabulary) const {
  return VisitTokens(payload_, token_bytes_, [&](const auto* tokens) {
    return std::find_if(tokens, tokens + size_,
                        [&](int64_t id) { return id >= vocabulary; }) -
           tokens;
  });
}

}  // namespace causeway
