// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Writes a prepared token file (token_file_format.h), piece by piece.
//
//   ASSIGN_OR_RETURN(TokenFileWriter writer,
//                    TokenFileWriter::Create("english.bin", *tokenizer));
//   RETURN_IF_ERROR(writer.Append(ids));
//   RETURN_IF_ERROR(writer.Commit());
//
// The header counts and hashes the ids that follow it, so Commit writes it
// last. A file at `path` is replaced as a whole or not at all. Not thread-safe.
#ifndef WORKER_DATA_TOKEN_FILE_WRITER_H_
#define WORKER_DATA_TOKEN_FILE_WRITER_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/checksum.h"
#include "common/os/file.h"
#include "worker/data/token_file_format.h"
#include "worker/data/tokenizer.h"

namespace causeway {

class TokenFileWriter {
 public:
  // Creates a writer. Ids take 2 bytes if the vocabulary allows, otherwise 4.
  //   NOT_FOUND, PERMISSION_DENIED, ...  as for AtomicFileWriter::Create.
  static absl::StatusOr<TokenFileWriter> Create(const std::string& path,
                                                const Tokenizer& tokenizer);

  // Appends ids, which must be in the tokenizer's vocabulary.
  //   RESOURCE_EXHAUSTED  the disk is full.
  //   OUT_OF_RANGE        more than kMaxTokensPerFile tokens.
  absl::Status Append(absl::Span<const int32_t> ids);

  // Makes the file durable and visible. Call at most once.
  //   INVALID_ARGUMENT    there are no tokens.
  //   RESOURCE_EXHAUSTED  the disk is full.
  absl::Status Commit();

  // Returns the number of tokens appended so far.
  int64_t tokens() const { return header_.tokens; }

 private:
  TokenFileWriter(std::string path, AtomicFileWriter file,
                  TokenFileHeader header);

  std::string path_;
  AtomicFileWriter file_;
  TokenFileHeader header_;
  // The digest of the ids' bytes.
  Digest128Stream digest_;
  // The ids of one Append in the file's encoding.
  std::string encoded_;
};

}  // namespace causeway

#endif  // WORKER_DATA_TOKEN_FILE_WRITER_H_
