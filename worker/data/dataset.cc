// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/data/dataset.h"

#include <cstddef>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
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
