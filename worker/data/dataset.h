// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The data of a run for an island or a tool: opened, checked against the model
// and divided. Errors in the data are reported here, before training.
//
//   ASSIGN_OR_RETURN(Dataset dataset, OpenDataset(config, paths));
//   ASSIGN_OR_RETURN(Sampler sampler, Sampler::Create(&dataset, ...));
//   const ValidationSet validation(&dataset, /*max_windows=*/0);
#ifndef WORKER_DATA_DATASET_H_
#define WORKER_DATA_DATASET_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/run_config.pb.h"
#include "worker/data/corpus.h"
#include "worker/data/split.h"

namespace causeway {

// Immutable, thread-safe.
struct Dataset {
  Corpus corpus;
  Split split;
  // The relative numbers of sequences that the trainer reads from each file. If
  // empty, files are read in proportion to their sizes.
  std::vector<double> weights;

  // Returns 16 bytes that identify the stream of tokens and its masks: the same
  // tokens in the same order have the same digest. Reads at most 4 Mi tokens,
  // in pieces spread evenly over the stream, and so misses differences between
  // the pieces.
  std::string Digest() const;

  // Writes as many windows as the spans hold: rows of sequence_length tokens,
  // and the token that follows each, or kNoTarget if a mask hides it. next()
  // returns the index in the corpus of each window's first token.
  void CopyWindows(absl::FunctionRef<int64_t()> next,
                   absl::Span<int32_t> tokens,
                   absl::Span<int32_t> targets) const;
};

// Opens `paths` for a run. `config` must be resolved
// (common/config/run_config.h). Reads files of token ids once (token_file.h).
// Errors are those of Corpus::Open, Corpus::CheckFits and Split::Create.
//   INVALID_ARGUMENT  also: there are weights, but not one for each file.
absl::StatusOr<Dataset> OpenDataset(const v1::RunConfig& config,
                                    absl::Span<const std::string> paths,
                                    std::vector<double> weights = {});

}  // namespace causeway

#endif  // WORKER_DATA_DATASET_H_
