// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/data/dataset.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status_macros.h"

namespace causeway {

void Dataset::CopyWindow(int64_t begin, absl::Span<int32_t> tokens,
                         absl::Span<int32_t> targets) const {
  corpus.Copy(begin, tokens);
  corpus.Copy(begin + 1, targets);
}

absl::StatusOr<Dataset> OpenDataset(const v1::RunConfig& config,
                                    absl::Span<const std::string> paths) {
  ASSIGN_OR_RETURN(Corpus corpus,
                   Corpus::Open(config.data().tokenizer(), paths));
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
  return Dataset{std::move(corpus), *split};
}

}  // namespace causeway
