// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// One stream of tokens from one or more token files.
//
// Text files are documents: the stream inserts an end-of-text token (257)
// between them. Files of ids contain their own separators and follow one
// another directly.
//
//   ASSIGN_OR_RETURN(Corpus corpus, Corpus::Open(config.data().tokenizer(),
//                                                {"a.txt", "b.txt"}));
//   RETURN_IF_ERROR(corpus.CheckFits(config.model()));
//   corpus.Copy(begin, absl::MakeSpan(window));
//
// Immutable after Open, thread-safe.
#ifndef WORKER_DATA_CORPUS_H_
#define WORKER_DATA_CORPUS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/run_config.pb.h"
#include "worker/data/token_file.h"

namespace causeway {

class Corpus {
 public:
  // Opens every file, and with `masked` its mask, with the errors of
  // TokenFile::Open and TokenFile::OpenMask.
  //   INVALID_ARGUMENT  also: no path is given, or files were prepared with
  //                     different SentencePiece models.
  static absl::StatusOr<Corpus> Open(v1::DataConfig::Tokenizer tokenizer,
                                     absl::Span<const std::string> paths,
                                     bool masked = false);

  Corpus(Corpus&&) = default;
  Corpus& operator=(Corpus&&) = default;

  // Returns the number of tokens.
  int64_t size() const { return size_; }

  // Returns a number that is greater than every id: the vocabulary that a model
  // of this corpus needs.
  int64_t vocabulary() const { return vocabulary_; }

  // Checks that `model`, which must be resolved (common/config/run_config.h),
  // can be trained on the corpus.
  //   INVALID_ARGUMENT  a token id is not less than vocab_size (the message
  //                     names file and token), or the corpus is shorter than
  //                     one sequence.
  absl::Status CheckFits(const v1::ModelConfig& model) const;

  // Writes tokens begin .. begin + tokens.size() - 1 of the stream, which must
  // be in range, to `tokens`. Requires a successful CheckFits.
  void Copy(int64_t begin, absl::Span<int32_t> tokens) const;

  // Does the same, but writes kNoTarget for tokens that a mask hides.
  // Separators are never hidden.
  void CopyTargets(int64_t begin, absl::Span<int32_t> targets) const;

  // Returns the number of files, and the index in the stream of a file's first
  // token.
  size_t files() const { return parts_.size(); }
  int64_t file_begin(size_t file) const { return parts_[file].begin; }
  const std::string& file_path(size_t file) const {
    return parts_[file].file.path();
  }

 private:
  struct Part {
    TokenFile file;
    // The index in the stream of the file's first token.
    int64_t begin;
  };

  Corpus() = default;

  // Calls visit(file, begin in the file, tokens) for each file's part of the
  // tokens, and writes the separators between files.
  template <typename Visitor>
  void ForEachFile(int64_t begin, absl::Span<int32_t> tokens,
                   const Visitor& visit) const;

  std::vector<Part> parts_;
  int64_t size_ = 0;
  int64_t vocabulary_ = 0;
  bool masked_ = false;
};

}  // namespace causeway

#endif  // WORKER_DATA_CORPUS_H_
