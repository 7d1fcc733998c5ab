// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The tokenizer of a SentencePiece model file. libsentencepiece runs in its own
// process while the tokenizer lives; sentencepiece_protocol.h gives the reason.
//
//   ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer,
//                    LoadSentencePiece("english.model",
//                                      DefaultSentencePieceTool()));
#ifndef WORKER_DATA_SENTENCEPIECE_TOKENIZER_H_
#define WORKER_DATA_SENTENCEPIECE_TOKENIZER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "worker/data/tokenizer.h"

namespace causeway {

// Returns the path of the installed tool: causeway-sentencepiece in the
// directory of the running program.
std::string DefaultSentencePieceTool();

// Loads the `.model` file of spm_train into a new process of the program
// `tool_path`. Encode returns the library's ids; the model decides whether the
// library puts a space before the text. Concurrent calls wait for one another.
//   NOT_FOUND, PERMISSION_DENIED, ...  model or tool cannot be read.
//   INVALID_ARGUMENT                   it is not a SentencePiece model.
//   INTERNAL                           the process ended.
absl::StatusOr<std::unique_ptr<Tokenizer>> LoadSentencePiece(
    const std::string& model_path, const std::string& tool_path);

}  // namespace causeway

#endif  // WORKER_DATA_SENTENCEPIECE_TOKENIZER_H_
