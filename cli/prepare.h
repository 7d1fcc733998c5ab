// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// `causeway prepare`: turns text files into one token file, which an island
// reads in place (worker/data/token_file_format.h).
//
// Each text is a document. The tokenizer's end-of-text token follows each, so
// that prepared files can be concatenated. Texts are read through memory maps
// and tokenized in pieces of about kPieceBytes that end with a line, so memory
// does not grow with the text. A SentencePiece model that puts a space before a
// text does so before each piece.
#ifndef CLI_PREPARE_H_
#define CLI_PREPARE_H_

#include <cstddef>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "cli/command_line.h"
#include "cli/progress.h"

namespace causeway {

struct PrepareOptions {
  // The token file to write.
  std::string out;
  // The texts, in order; at least one.
  std::vector<std::string> texts;
  // A SentencePiece model file; empty to tokenize by bytes.
  std::string sentencepiece_model;
  // The causeway-sentencepiece program; used only with a model.
  std::string sentencepiece_tool;
  // If true, an existing `out` may be replaced.
  bool force = false;
  ProgressEnvironment progress;
};

inline constexpr size_t kPieceBytes = 64 << 10;

// Writes the token file and blocks until it is durable. `out` is untouched
// unless the result is OK. Shows progress and a summary on `out`.
//   NOT_FOUND, PERMISSION_DENIED, ...  a file cannot be read or made.
//   ALREADY_EXISTS      `out` exists and `force` is not set.
//   INVALID_ARGUMENT    a text is empty, a token file, or `out` itself; or the
//                       SentencePiece model is not one, or refuses a text.
//   RESOURCE_EXHAUSTED  the disk is full.
//   OUT_OF_RANGE        there are more tokens than one file can hold.
absl::Status RunPrepare(const PrepareOptions& options, std::ostream& out);

// Returns the first piece of `text`: all of it if it is not longer than
// `max_bytes`; otherwise up to the last end of a line among the first
// `max_bytes`, or if there is none, up to the last whole UTF-8 character. Not
// empty unless `text` is.
absl::string_view FirstPiece(absl::string_view text, size_t max_bytes);

// Returns the command. Progress goes to Invocation::err.
Command PrepareCommand(ProgressEnvironment progress);

}  // namespace causeway

#endif  // CLI_PREPARE_H_
