// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "cli/prepare.h"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/foreign/file.h"
#include "common/os/file.h"
#include "common/status_macros.h"
#include "worker/data/sentencepiece_tokenizer.h"
#include "worker/data/token_file_format.h"
#include "worker/data/token_file_writer.h"
#include "worker/data/tokenizer.h"

namespace causeway {
namespace {

absl::Status CheckOut(const PrepareOptions& options) {
  std::error_code error;
  if (!options.force && std::filesystem::exists(options.out, error)) {
    return absl::AlreadyExistsError(
        absl::StrCat(options.out,
                     " exists; name another file, or give --force to replace "
                     "it"));
  }
  for (const std::string& text : options.texts) {
    if (std::filesystem::equivalent(text, options.out, error)) {
      return absl::InvalidArgumentError(
          absl::StrCat(text, " is both an input and the output file"));
    }
  }
  return absl::OkStatus();
}

// Opens all texts before any is tokenized, so that a wrong name is reported at
// once, not after hours.
absl::StatusOr<std::vector<MappedFile>> OpenTexts(
    const std::vector<std::string>& paths) {
  if (paths.empty()) {
    return absl::InvalidArgumentError("no text is given; name at least 1");
  }
  std::vector<MappedFile> texts;
  for (const std::string& path : paths) {
    ASSIGN_OR_RETURN(MappedFile text, OpenForeignFile(path));
    if (text.bytes().empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": the file is empty; leave it out"));
    }
    if (HasTokenFileHeader(text.bytes())) {
      return absl::InvalidArgumentError(absl::StrCat(
          path, ": a token file, not text; islands read it as it is"));
    }
    texts.push_back(std::move(text));
  }
  return texts;
}

absl::StatusOr<std::unique_ptr<Tokenizer>> MakeTokenizer(
    const PrepareOptions& options) {
  if (options.sentencepiece_model.empty()) return MakeByteTokenizer();
  return LoadSentencePiece(options.sentencepiece_model,
                           options.sentencepiece_tool);
}

absl::Status WriteTexts(const std::vector<MappedFile>& texts,
                        const Tokenizer& tokenizer, TokenFileWriter& writer,
                        Progress& progress) {
  const std::optional<int32_t> end_of_text = tokenizer.end_of_text();
  std::vector<int32_t> ids;
  for (const MappedFile& text : texts) {
    absl::string_view rest = text.bytes();
    while (!rest.empty()) {
      const absl::string_view piece = FirstPiece(rest, kPieceBytes);
      rest.remove_prefix(piece.size());
      ids.clear();
      if (absl::Status status = tokenizer.Encode(piece, ids); !status.ok()) {
        return absl::Status(status.code(),
                            absl::StrCat(text.path(), ": ", status.message()));
      }
      if (rest.empty() && end_of_text.has_value()) ids.push_back(*end_of_text);
      RETURN_IF_ERROR(writer.Append(ids));
      progress.Add(piece.size());
    }
  }
  return writer.Commit();
}

}  // namespace

absl::string_view FirstPiece(absl::string_view text, size_t max_bytes) {
  if (text.size() <= max_bytes) return text;
  const size_t newline = text.substr(0, max_bytes).rfind('\n');
  if (newline != absl::string_view::npos) return text.substr(0, newline + 1);
  size_t end = max_bytes;
  // Continuation bytes of UTF-8 are 10xxxxxx. Text that is not UTF-8 may be cut
  // anywhere.
  while (end > 0 && max_bytes - end < 3 &&
         (static_cast<uint8_t>(text[end]) & 0xc0) == 0x80) {
    --end;
  }
  return text.substr(0, end > 0 ? end : max_bytes);
}

absl::Status RunPrepare(const PrepareOptions& options, std::ostream& out) {
  RETURN_IF_ERROR(CheckOut(options));
  ASSIGN_OR_RETURN(const std::vector<MappedFile> texts,
                   OpenTexts(options.texts));
  ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer,
                   MakeTokenizer(options));
  ASSIGN_OR_RETURN(TokenFileWriter writer,
                   TokenFileWriter::Create(options.out, *tokenizer));
  uint64_t bytes = 0;
  for (const MappedFile& text : texts) bytes += text.bytes().size();
  {
    Progress progress("bytes", bytes, options.progress, out);
    RETURN_IF_ERROR(WriteTexts(texts, *tokenizer, writer, progress));
  }
  out << absl::StrFormat(
      "%s: %d tokens of a vocabulary of %d from %d bytes of text "
      "(%.2f bytes per token)\n",
      options.out, writer.tokens(), tokenizer->vocabulary(), bytes,
      static_cast<double>(bytes) / static_cast<double>(writer.tokens()));
  out.flush();
  return absl::OkStatus();
}

Command PrepareCommand(ProgressEnvironment progress) {
  const auto options = std::make_shared<PrepareOptions>();
  options->progress = std::move(progress);
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
