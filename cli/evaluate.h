// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// `causeway evaluate`: how well a run's outer parameters predict the validation
// split, which training never touches.
#ifndef CLI_EVALUATE_H_
#define CLI_EVALUATE_H_

#include <cstdint>
#include <functional>
#include <ostream>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "cli/command_line.h"
#include "cli/trained_model.h"
#include "worker/data/validation_set.h"

namespace causeway {

// What the command needs of the world.
struct EvaluateEnvironment {
  std::function<absl::Time()> now;
  // Whether Invocation::err is a terminal, where progress is shown.
  bool terminal = false;
  // Default of --threads.
  uint64_t threads = 1;
};

Command EvaluateCommand(EvaluateEnvironment environment);

struct Evaluation {
  // Mean negative log likelihood, in nats per token.
  double loss = 0;
  int64_t sequences = 0;
  int64_t tokens = 0;
};

// Mean loss of some sequences: their tokens, and the token after each.
using LossFunction = std::function<absl::StatusOr<double>(
    absl::Span<const int32_t> tokens, absl::Span<const int32_t> targets)>;

// The mean over all of `validation`, in batches of at most `batch` sequences.
// `progress`, if not null, is called with the number of sequences done after
// each batch. Errors of `loss`.
absl::StatusOr<Evaluation> EvaluateLoss(
    const ValidationSet& validation, int64_t sequence_length, int64_t batch,
    const LossFunction& loss, const std::function<void(int64_t)>& progress);

// loss, perplexity, for byte data bits per byte, and what was evaluated.
void PrintEvaluation(const TrainedModel& model, const Evaluation& evaluation,
                     std::ostream& out);

// The same as one line of JSON: run_id, versions, sequences, tokens, loss (nats
// per token), perplexity, bits_per_byte (null unless tokens are bytes).
std::string EvaluationJson(const TrainedModel& model,
                           const Evaluation& evaluation);

}  // namespace causeway

#endif  // CLI_EVALUATE_H_
