// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/data/dataset.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "absl/numeric/int128.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "common/as_bytes.h"
#include "common/checksum.h"
#include "common/status_macros.h"
#include "glog/logging.h"

namespace causeway {

void Dataset::CopyWindows(absl::FunctionRef<int64_t()> next,
                          absl::Span<int32_t> tokens,
                          absl::Span<int32_t> targets) const {
  const auto length = static_cast<size_t>(split.sequence_length());
  CHECK_EQ(tokens.size(), targets.size());
  CHECK_EQ(tokens.size() % length, 0u);
  for (size_t row = 0; row < tokens.size(); row += length) {
    const int64_t begin = next();
    corpus.Copy(begin, tokens.subspan(row, length));
    corpus.CopyTargets(begin + 1, targets.subspan(row, length));
  }
}

std::string Dataset::Digest() const {
  constexpr int64_t kPieces = 1024;
  std::vector<int32_t> piece(4096);
  const int64_t size = corpus.size();
  const auto tokens = static_cast<int64_t>(piece.size());
  const bool is_short = size <= kPieces * tokens;
  const int64_t pieces = is_short ? (size + tokens - 1) / tokens : kPieces;
  std::string digests = absl::StrCat(size);
  for (int64_t i = 0; i < pieces; ++i) {
    const int64_t begin =
        is_short ? i * tokens
                 : static_cast<int64_t>(absl::int128(size - tokens) * i /
                                        (pieces - 1));
    const auto part = absl::MakeSpan(piece).first(
        static_cast<size_t>(std::min(tokens, size - begin)));
    const absl::string_view bytes = AsStringView(part);
    corpus.Copy(begin, part);
    digests += Digest128(bytes);
    corpus.CopyTargets(begin, part);
    digests += Digest128(bytes);
  }
  return Digest128(digests);
}

absl::StatusOr<Dataset> OpenDataset(const v1::RunConfig& config,
                                    absl::Span<const std::string> paths,
                                    std::vector<double> weights) {
  if (!weights.empty() && weights.size() != paths.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(weights.size(), " weights for ", paths.size(),
                     " data files; give one for each file, or none"));
  }
  ASSIGN_OR_RETURN(Corpus corpus, Corpus::Open(config.data().tokenizer(), paths,
                                               config.data().loss_masks()));
  RETURN_IF_ERROR(corpus.CheckFits(config.model()));
  absl::StatusOr<Split> split =
      Split::Create({.tokens = corpus.size(),
                     .sequence_length = config.model().sequence_length(),
                     .validation_fraction = config.data().validation_fraction(),
                     .shards = config.data().shards()});
  if (!split.ok()) {
    return absl::Status(split.status().code(),
                        absl::StrCat(absl::StrJoin(paths, ", "), ": ",
                                     split.status().message()));
  }
  return Dataset{std::move(corpus), *split, std::move(weights)};
}

}  // namespace causeway
