// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "cli/prepare_command.h"

#include <memory>
#include <utility>

#include "cli/prepare.h"
#include "worker/data/sentencepiece_tokenizer.h"

namespace causeway {

Command PrepareCommand(std::function<absl::Time()> now, bool terminal) {
  const auto options = std::make_shared<PrepareOptions>();
  options->now = std::move(now);
  options->terminal = terminal;
  Command command{
      .name = "prepare",
      .arguments = "TEXT...",
      .summary = "Turns text files into one file of tokens.",
      .details =
          "Each TEXT becomes one document. Without --sentencepiece, every byte "
          "is a token; a run with such tokens can also read the texts as they "
          "are, without this command. Islands map the file into memory."};
  command.flags.AddRequired("out", "FILE", "The token file to write.",
                            &options->out);
  command.flags.Add("sentencepiece", "MODEL",
                    "The SentencePiece model to tokenize with.",
                    &options->sentencepiece_model);
  command.flags.Add("force", "", "Replaces an existing file.", &options->force);
  command.run = [=](const Invocation& call) {
    PrepareOptions prepare = *options;
    prepare.texts = call.arguments;
    if (!prepare.sentencepiece_model.empty()) {
      prepare.sentencepiece_tool = DefaultSentencePieceTool();
    }
    return RunPrepare(prepare, call.err);
  };
  return command;
}

}  // namespace causeway
