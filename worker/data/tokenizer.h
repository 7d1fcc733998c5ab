// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Tokenizers, which convert text to token ids and back.
//
//   const std::unique_ptr<Tokenizer> tokenizer = MakeByteTokenizer();
//   std::vector<int32_t> ids;
//   RETURN_IF_ERROR(tokenizer->Encode("Hello", ids));
//
// sentencepiece_tokenizer.h has another kind. Training needs no tokenizer: it
// reads text as bytes in place, and otherwise the files of `causeway prepare`.
#ifndef WORKER_DATA_TOKENIZER_H_
#define WORKER_DATA_TOKENIZER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/config/run_config.h"
#include "proto/run_config.pb.h"

namespace causeway {

// The special tokens of the byte tokenizer.
inline constexpr int32_t kBeginOfText = 256;
inline constexpr int32_t kEndOfText = 257;
static_assert(kEndOfText + 1 == kByteVocabulary);

// Thread-safe.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  virtual v1::DataConfig::Tokenizer kind() const = 0;

  // Returns the number of ids, which are 0 .. vocabulary() - 1.
  virtual int64_t vocabulary() const = 0;

  // Returns the token to put between documents, if the tokenizer has one.
  virtual std::optional<int32_t> end_of_text() const = 0;

  // Returns the XXH3-128 of the model file; 16 zero bytes if tokens are bytes.
  virtual const std::string& digest() const = 0;

  // Appends the ids of `text` to `ids`, without special tokens.
  //   INVALID_ARGUMENT  the tokenizer's library refuses the text.
  //   INTERNAL          the library's process ended.
  virtual absl::Status Encode(absl::string_view text,
                              std::vector<int32_t>& ids) const = 0;

  // Returns the text of `ids`; special tokens have none.
  //   INVALID_ARGUMENT  an id is outside the vocabulary.
  //   INTERNAL          as for Encode.
  virtual absl::StatusOr<std::string> Decode(
      absl::Span<const int32_t> ids) const = 0;
};

// Checks that all ids are in 0 .. vocabulary - 1.
//   INVALID_ARGUMENT  one is not; names index and value of the first.
absl::Status CheckIds(absl::Span<const int32_t> ids, int64_t vocabulary);

// Returns a tokenizer whose tokens are byte values. Any byte string
// round-trips.
std::unique_ptr<Tokenizer> MakeByteTokenizer();

}  // namespace causeway

#endif  // WORKER_DATA_TOKENIZER_H_
