// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/data/corpus.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "glog/logging.h"
#include "worker/data/tokenizer.h"

namespace causeway {
namespace {

absl::Status CheckSameTokenizer(const TokenFile& first,
                                const TokenFile& other) {
  if (first.prepared().has_value() && other.prepared().has_value() &&
      first.prepared()->tokenizer_digest !=
          other.prepared()->tokenizer_digest) {
    return absl::InvalidArgumentError(absl::StrCat(
        other.path(), " and ", first.path(),
        " were prepared with different SentencePiece models; prepare all "
        "files with the same"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Corpus> Corpus::Open(v1::DataConfig::Tokenizer tokenizer,
                                    absl::Span<const std::string> paths,
                                    bool masked) {
  if (paths.empty()) {
    return absl::InvalidArgumentError("no data file is given; name at least 1");
  }
  Corpus corpus;
  corpus.masked_ = masked;
  for (const std::string& path : paths) {
    ASSIGN_OR_RETURN(TokenFile file, TokenFile::Open(path, tokenizer));
    if (masked) RETURN_IF_ERROR(file.OpenMask());
    for (const Part& part : corpus.parts_) {
      RETURN_IF_ERROR(CheckSameTokenizer(part.file, file));
    }
    if (!corpus.parts_.empty()) {
      const TokenFile& previous = corpus.parts_.back().file;
      const bool both_text =
          previous.token_bytes() == 1 && file.token_bytes() == 1;
      if (both_text) ++corpus.size_;
    }
    const int64_t begin = corpus.size_;
    corpus.size_ += file.size();
    corpus.vocabulary_ = std::max(corpus.vocabulary_, file.vocabulary());
    corpus.parts_.push_back({std::move(file), begin});
  }
  return corpus;
}

absl::Status Corpus::CheckFits(const v1::ModelConfig& model) const {
  for (const Part& part : parts_) {
    if (part.file.vocabulary() <= model.vocab_size()) continue;
    const int64_t index = part.file.FindOutside(model.vocab_size());
    if (index < part.file.size()) {
      return absl::InvalidArgumentError(absl::StrCat(
          part.file.path(), ": token ", index,
          " is outside the model's "
          "vocabulary: allowed ids: 0 to ",
          model.vocab_size() - 1, "; the data need model.vocab_size ",
          vocabulary_,
          " (if the file is text, set data.tokenizer: BYTES or prepare it)"));
    }
    return absl::InvalidArgumentError(absl::StrCat(
        part.file.path(), ": its tokenizer has ", part.file.vocabulary(),
        " ids, but model.vocab_size is ", model.vocab_size(), "; set it to ",
        vocabulary_, " or more"));
  }
  const int64_t window = int64_t{model.sequence_length()} + 1;
  if (size_ < window) {
    return absl::InvalidArgumentError(absl::StrCat(
        parts_.front().file.path(),
        parts_.size() > 1 ? " and the other files have " : " has ", size_,
        " tokens, less than one training sequence (model.sequence_length + 1 "
        "= ",
        window, "); give more data"));
  }
  return absl::OkStatus();
}

template <typename Visitor>
void Corpus::ForEachFile(int64_t begin, absl::Span<int32_t> tokens,
                         const Visitor& visit) const {
  CHECK_GE(begin, 0);
  CHECK_LE(begin, size_);
  CHECK_LE(static_cast<int64_t>(tokens.size()), size_ - begin);
  // Start with the last part that begins at or before `begin`.
  auto part = std::upper_bound(
      parts_.begin(), parts_.end(), begin,
      [](int64_t index, const Part& p) { return index < p.begin; });
  for (--part; !tokens.empty(); ++part) {
    const int64_t end = part->begin + part->file.size();
    const size_t count = std::min(
        tokens.size(), static_cast<size_t>(std::max<int64_t>(0, end - begin)));
    if (count > 0) visit(part->file, begin - part->begin, tokens.first(count));
    tokens.remove_prefix(count);
    begin += static_cast<int64_t>(count);
    // Adds the separator, if there is one before the next part.
    if (!tokens.empty() && begin < (part + 1)->begin) {
      tokens.front() = kEndOfText;
      tokens.remove_prefix(1);
      ++begin;
    }
  }
}

void Corpus::Copy(int64_t begin, absl::Span<int32_t> tokens) const {
  ForEachFile(begin, tokens,
              [](const TokenFile& file, int64_t at, absl::Span<int32_t> part) {
                file.Copy(at, part);
              });
}

void Corpus::CopyTargets(int64_t begin, absl::Span<int32_t> targets) const {
  ForEachFile(
      begin, targets,
      [this](const TokenFile& file, int64_t at, absl::Span<int32_t> part) {
        file.Copy(at, part);
        if (masked_) file.HideMasked(at, part);
      });
}

}  // namespace causeway
