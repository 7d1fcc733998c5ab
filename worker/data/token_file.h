// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// One file of tokens, mapped into memory and read in place.
//
// Text needs no preparation: each byte is a token (id = byte value). Files of
// ids are nanoGPT's, llm.c's or `causeway prepare`'s (token_file_format.h).
// Opening a file of ids reads all of it once, to find its largest id and to
// check a prepared file's digest, so errors are reported before training.
//
// The file must not be written to while it is open (see common/os/file.h).
// Immutable after Open, thread-safe.
#ifndef WORKER_DATA_TOKEN_FILE_H_
#define WORKER_DATA_TOKEN_FILE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/os/file.h"
#include "proto/run_config.pb.h"
#include "worker/data/token_file_format.h"

namespace causeway {

class TokenFile {
 public:
  // Opens `path` as data for `tokenizer`. A token file header, if there is one,
  // says how to read the file; any other file is text for BYTES, and flat
  // uint16 ids for PRETOKENIZED and SENTENCEPIECE.
  //   NOT_FOUND, PERMISSION_DENIED, ...  the file cannot be read.
  //   INVALID_ARGUMENT  it is empty, has half an id at its end, is text where
  //                     ids are due, has a header of an unknown version, or was
  //                     prepared with another tokenizer.
  //   DATA_LOSS         it is shorter than its header says, or its digest or
  //                     vocabulary does not match.
  static absl::StatusOr<TokenFile> Open(const std::string& path,
                                        v1::DataConfig::Tokenizer tokenizer);

  TokenFile(TokenFile&&) = default;
  TokenFile& operator=(TokenFile&&) = default;

  const std::string& path() const { return file_.path(); }

  // Returns the number of tokens; at least 1.
  int64_t size() const { return size_; }

  // Returns the bytes of a token in the file: 1 (text), 2 or 4.
  int token_bytes() const { return token_bytes_; }

  // Returns a number that is greater than every id: the tokenizer's vocabulary
  // for text and prepared files, otherwise the largest id plus 1. At most 2^32.
  int64_t vocabulary() const { return vocabulary_; }

  // Returns the facts that `causeway prepare` recorded, if it wrote the file.
  const std::optional<PreparedInfo>& prepared() const { return prepared_; }

  // Writes tokens begin .. begin + tokens.size() - 1, which must be in range
  // and below 2^31, to `tokens`.
  void Copy(int64_t begin, absl::Span<int32_t> tokens) const;

  // Opens the file's mask for HideMasked: path() + ".mask", with a bit for each
  // token, the lowest bit of a byte first.
  //   NOT_FOUND, PERMISSION_DENIED, ...  the mask cannot be read.
  //   INVALID_ARGUMENT  it has another number of bytes than the tokens need.
  absl::Status OpenMask();

  // Replaces each of the tokens begin .. begin + tokens.size() - 1 whose bit is
  // 0 by kNoTarget.
  void HideMasked(int64_t begin, absl::Span<int32_t> tokens) const;

  // Returns the index of the first token that is not less than `vocabulary`, or
  // size().
  int64_t FindOutside(int64_t vocabulary) const;

 private:
  explicit TokenFile(MappedFile file) : file_(std::move(file)) {}

  absl::Status OpenHeader();
  absl::Status OpenFlat();
  absl::Status CheckPrepared(v1::DataConfig::Tokenizer tokenizer,
                             int64_t largest_id_plus_1) const;

  MappedFile file_;
  // The bytes of the tokens, within file_.
  absl::string_view payload_;
  int token_bytes_ = 1;
  int64_t size_ = 0;
  int64_t vocabulary_ = 0;
  std::optional<PreparedInfo> prepared_;
  std::optional<MappedFile> mask_;
};

}  // namespace causeway

#endif  // WORKER_DATA_TOKEN_FILE_H_
