// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The header of token files, for the reader (token_file.h) and the writer
// (token_file_writer.h). Three kinds of file hold token ids:
//
// 1. Flat (nanoGPT): uint16 ids, nothing else.
// 2. llm.c: 1024 bytes of header, then the ids. The header is 256 words, each
//    a little-endian int32:
//      word 0  20240520 for uint16 ids, 20240801 for uint32 ids
//      word 1  version: 1 for uint16 ids, 7 for uint32 ids
//      word 2  number of ids
//    llm.c leaves the other words zero and does not read them.
// 3. Prepared (`causeway prepare`): an llm.c file, readable by llm.c, that
//    also says what its ids mean, in words that llm.c ignores:
//      word 3       0x59575343, the bytes "CSWY"
//      word 4       version of words 3 to 15: 1
//      word 5       vocabulary: every id is less
//      word 6       tokenizer, a number of v1::DataConfig::Tokenizer
//      word 7       0
//      words 8-11   XXH3-128 of the SentencePiece model file; 0 if there is
//                   none
//      words 12-15  XXH3-128 of the ids' bytes
//      words 16-255 0
//    Digests are 16 bytes in canonical (big-endian) order.
//
// Ids are little-endian; the code runs on little-endian machines only.
#ifndef WORKER_DATA_TOKEN_FILE_FORMAT_H_
#define WORKER_DATA_TOKEN_FILE_FORMAT_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/run_config.pb.h"

namespace causeway {

inline constexpr size_t kTokenFileHeaderBytes = 1024;
// Word 2 is an int32.
inline constexpr int64_t kMaxTokensPerFile = 0x7fffffff;

// A prepared file's facts about its ids.
struct PreparedInfo {
  // Greater than every id; at most 2^31 - 1.
  int64_t vocabulary = 0;
  v1::DataConfig::Tokenizer tokenizer = v1::DataConfig::BYTES;
  // XXH3-128 of the SentencePiece model file (16 bytes), or 16 zero bytes.
  std::string tokenizer_digest;
  // XXH3-128 of the ids' bytes (16 bytes).
  std::string tokens_digest;
};

struct TokenFileHeader {
  int64_t tokens = 0;
  // The bytes of an id: 2 or 4.
  int token_bytes = 2;
  // Absent in files of llm.c.
  std::optional<PreparedInfo> prepared;
};

// Returns whether a file that starts with `bytes` has a header. Neither text
// nor the ids of any vocabulary up to 55 432 (GPT-2: 50 257) start with its
// magic number.
bool HasTokenFileHeader(absl::string_view bytes);

// Parses the header of a file of `file_bytes` bytes that starts with `bytes`
// and for which HasTokenFileHeader is true. `bytes` may be the whole file.
// `path` is for messages.
//   DATA_LOSS         the file is shorter or longer than its header says, or
//                     the words of a prepared file contradict one another.
//   INVALID_ARGUMENT  a version or width that this build does not know.
absl::StatusOr<TokenFileHeader> ParseTokenFileHeader(absl::string_view bytes,
                                                     int64_t file_bytes,
                                                     absl::string_view path);

// Returns the kTokenFileHeaderBytes bytes for `header`, which must be valid.
std::string SerializeTokenFileHeader(const TokenFileHeader& header);

}  // namespace causeway

#endif  // WORKER_DATA_TOKEN_FILE_FORMAT_H_
