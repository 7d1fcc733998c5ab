// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// `causeway evaluate`: measures how well a run's outer parameters predict the
// validation split, which training never touches.
#ifndef CLI_EVALUATE_H_
#define CLI_EVALUATE_H_

#include <cstdint>
#include <ostream>
#include <string>

#include "absl/status/statusor.h"
#include "cli/command_line.h"
#include "cli/progress.h"
#include "cli/trained_model.h"

namespace causeway {

// The command's environment.
struct EvaluateEnvironment {
  // Progress goes to Invocation::err.
  ProgressEnvironment progress;
  // The default of --threads: one for each processor.
  uint64_t threads = 1;
};

Command EvaluateCommand(EvaluateEnvironment environment);

// Returns how many sequences the model takes at once: enough for efficient
// matrix products, few enough for the memory.
int64_t EvaluationBatch(int64_t sequence_length);

struct Evaluation {
  // The mean negative log likelihood, in nats per token.
  double loss = 0;
  int64_t sequences = 0;
  int64_t tokens = 0;
};

// Prints loss, perplexity, bits per byte for byte data, and what was evaluated.
void PrintEvaluation(const TrainedModel& model, const Evaluation& evaluation,
                     std::ostream& out);

// Returns the same as one line of JSON: run_id, versions, sequences, tokens,
// loss (nats per token), perplexity, bits_per_byte (null unless tokens are
// bytes).
std::string EvaluationJson(const TrainedModel& model,
                           const Evaluation& evaluation);

}  // namespace causeway

#endif  // CLI_EVALUATE_H_
