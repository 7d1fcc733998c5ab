// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "cli/evaluate.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <memory>
#include <numbers>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/human.h"
#include "common/run_config.h"
#include "common/status_macros.h"
#include "nlohmann/json.hpp"
#include "worker/data/dataset.h"

namespace causeway {
namespace {

// The sequences that go through the model at once: enough for efficient matrix
// products, few enough for the memory.
constexpr int64_t kBatch = 8;

struct EvaluateFlags {
  std::vector<std::string> paths;
  uint64_t threads = 1;
  uint64_t max_sequences = 0;
  bool json = false;
};

bool IsBytes(const TrainedModel& model) {
  return model.config.data().tokenizer() == v1::DataConfig::BYTES;
}

double BitsPerToken(const Evaluation& evaluation) {
  return evaluation.loss / std::numbers::ln2;
}

// A line on a terminal, redrawn once a second at most.
class ProgressLine {
 public:
  ProgressLine(int64_t total, std::function<absl::Time()> now,
               std::ostream& out)
      : total_(total), now_(std::move(now)), start_(now_()), out_(out) {}

  ~ProgressLine() {
    if (shown_ != start_) out_ << "\r\x1b[K" << std::flush;
  }

  void operator()(int64_t done) {
    const absl::Time now = now_();
    if (now - std::max(shown_, start_) < absl::Seconds(1)) return;
    shown_ = now;
    const absl::Duration left = (now - start_) * (total_ - done) / done;
    out_ << absl::StrFormat("\r%d of %d sequences, %s left\x1b[K", done, total_,
                            HumanDuration(left))
         << std::flush;
  }

 private:
  const int64_t total_;
  const std::function<absl::Time()> now_;
  const absl::Time start_;
  absl::Time shown_ = start_;
  std::ostream& out_;
};

absl::Status RunEvaluate(const EvaluateFlags& flags,
                         const EvaluateEnvironment& environment,
                         const Invocation& call) {
  ASSIGN_OR_RETURN(const TrainedModel model,
                   LoadTrainedModel(call.arguments[0]));
  ASSIGN_OR_RETURN(const Dataset dataset,
                   OpenDataset(model.config, flags.paths));
  const ValidationSet validation(&dataset,
                                 static_cast<int64_t>(flags.max_sequences));
  if (validation.size() == 0) {
    return absl::FailedPreconditionError(
        "the run holds no data out (data.validation_fraction is 0), so there "
        "is nothing to evaluate on");
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<Inference> inference,
                   Inference::Create(model, kBatch, flags.threads));
  Evaluation evaluation;
  {
    ProgressLine line(validation.size(), environment.now, call.err);
    ASSIGN_OR_RETURN(
        evaluation,
        EvaluateLoss(
            validation, model.config.model().sequence_length(), kBatch,
            [&](absl::Span<const int32_t> tokens,
                absl::Span<const int32_t> targets) {
              return inference->Loss(tokens, targets);
            },
            environment.terminal ? std::ref(line)
                                 : std::function<void(int64_t)>()));
  }
  if (!std::isfinite(evaluation.loss)) {
    return absl::DataLossError(absl::StrCat(
        DescribeVersions(model.run_id, model.versions),
        " has a loss that is not finite: the training has diverged"));
  }
  if (flags.json) {
    call.out << EvaluationJson(model, evaluation) << "\n";
  } else {
    PrintEvaluation(model, evaluation, call.out);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Evaluation> EvaluateLoss(
    const ValidationSet& validation, int64_t sequence_length, int64_t batch,
    const LossFunction& loss, const std::function<void(int64_t)>& progress) {
  std::vector<int32_t> tokens(static_cast<size_t>(batch * sequence_length));
  std::vector<int32_t> targets(tokens.size());
  double sum = 0;
  int64_t counted = 0;
  for (int64_t first = 0; first < validation.size(); first += batch) {
    const int64_t rows = std::min(batch, validation.size() - first);
    const size_t values = static_cast<size_t>(rows * sequence_length);
    const auto batch_tokens = absl::MakeSpan(tokens).first(values);
    const auto batch_targets = absl::MakeSpan(targets).first(values);
    validation.Fill(first, batch_tokens, batch_targets);
    ASSIGN_OR_RETURN(const double mean, loss(batch_tokens, batch_targets));
    sum += mean * static_cast<double>(values);
    counted +=
        static_cast<int64_t>(values) - absl::c_count(batch_targets, kNoTarget);
    if (progress != nullptr) progress(first + rows);
  }
  if (counted == 0) {
    return absl::FailedPreconditionError(
        "the masks hide every token of the validation split, so there is "
        "nothing to evaluate on");
  }
  return Evaluation{.loss = sum / static_cast<double>(counted),
                    .sequences = validation.size(),
                    .tokens = counted};
}

void PrintEvaluation(const TrainedModel& model, const Evaluation& evaluation,
                     std::ostream& out) {
  out << DescribeVersions(model.run_id, model.versions) << "\n"
      << absl::StrFormat("validation     %d sequences, %s tokens\n",
                         evaluation.sequences,
                         HumanCount(static_cast<double>(evaluation.tokens)))
      << absl::StrFormat("loss           %.4f nats per token\n",
                         evaluation.loss)
      << absl::StrFormat("perplexity     %.4g\n", std::exp(evaluation.loss));
  if (IsBytes(model)) {
    out << absl::StrFormat("bits per byte  %.4f\n", BitsPerToken(evaluation));
  }
}

std::string EvaluationJson(const TrainedModel& model,
                           const Evaluation& evaluation) {
  nlohmann::ordered_json json = {{"run_id", model.run_id},
                                 {"versions", model.versions},
                                 {"sequences", evaluation.sequences},
                                 {"tokens", evaluation.tokens},
                                 {"loss", evaluation.loss},
                                 {"perplexity", std::exp(evaluation.loss)},
                                 {"bits_per_byte", nullptr}};
  // Each byte is a token. The end-of-text tokens between documents cost bits as
  // well, but too few to count separately.
  if (IsBytes(model)) json["bits_per_byte"] = BitsPerToken(evaluation);
  return json.dump();
}

Command EvaluateCommand(EvaluateEnvironment environment) {
  const auto flags = std::make_shared<EvaluateFlags>();
  flags->threads = environment.threads;
  Command command{
      .name = "evaluate",
      .arguments = "STATE_DIR",
      .summary = "Measures a run's model on the validation split.",
      .details =
          "STATE_DIR is the coordinator's state directory; the coordinator may "
          "be running. The command evaluates the merged model. The data must "
          "be the files that the run is trained on, in the same order: the "
          "validation split is a part of them that training never touches."};
  command.flags.Add("data", "FILE...",
                    "Token files that the run is trained on.", &flags->paths);
  command.flags.Add("text", "FILE...",
                    "Text files, for a run with tokenizer BYTES.",
                    &flags->paths);
  command.flags.Add("threads", "N", "Threads to compute with.",
                    &flags->threads);
  command.flags.Add("max_sequences", "N",
                    "Evaluates at most this many sequences, spread evenly over "
                    "the split; 0 for all.",
                    &flags->max_sequences);
  command.flags.Add("json", "", "Prints one line of JSON.", &flags->json);
  command.run = [=](const Invocation& call) {
    return RunEvaluate(*flags, environment, call);
  };
  return command;
}

}  // namespace causeway
