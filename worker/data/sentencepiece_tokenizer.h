// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The tokenizer of a SentencePiece model file. libsentencepiece runs in a
// process of its own, for as long as the tokenizer lives; the reason is in
// sentencepiece_protocol.h.
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

// Where the tool is installed: causeway-sentencepiece in the directory of the
// running program.
std::string DefaultSentencePieceTool();

// Loads the `.model` file of spm_train into a new process of the program
// `tool_path`. Encode gives the ids of the library, which may put a space
// before the text, as the model says. Concurrent calls wait for one another.
//   NOT_FOUND, PERMISSION_DENIED, ...  model or tool cannot be read.
//   INVALID_ARGUMENT                   it is not a SentencePiece model.
//   INTERNAL                           the process ended.
absl::StatusOr<std::unique_ptr<Tokenizer>> LoadSentencePiece(
    const std::string& model_path, const std::string& tool_path);

}  // namespace causeway

#endif  // WORKER_DATA_SENTENCEPIECE_TOKENIZER_H_
