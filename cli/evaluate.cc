// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "cli/evaluate.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numbers>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/types/span.h"
#include "cli/human.h"
#include "common/foreign/file.h"
#include "common/status_macros.h"
#include "nlohmann/json.hpp"
#include "worker/data/dataset.h"
#include "worker/data/held_out_loss.h"
#include "worker/data/sampler.h"
#include "worker/model/device.h"

namespace causeway {
namespace {

struct EvaluateFlags {
  std::vector<std::string> paths;
  std::string device = "cpu";
  uint64_t ranks = 0;
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

// The ranks that evaluate together, each on a thread of its own.
struct Ranks {
  std::vector<Device> devices;
  uint64_t count = 1;
  // The compute threads of each rank.
  uint64_t threads = 1;
};

absl::StatusOr<Ranks> FindRanks(const EvaluateFlags& flags,
                                uint64_t all_threads) {
  constexpr uint64_t kMostRanks = 1024;
  Ranks ranks;
  ASSIGN_OR_RETURN(const DeviceChoice choice,
                   AsUsageError(ParseDevices(flags.device)));
  ASSIGN_OR_RETURN(ranks.devices, FindDevices(choice));
  ranks.count = flags.ranks == 0 ? ranks.devices.size() : flags.ranks;
  if (ranks.count > kMostRanks) {
    return UsageError(absl::StrCat("ranks is ", ranks.count,
                                   "; allowed: up to ", kMostRanks));
  }
  const uint64_t threads = flags.threads == 0 ? all_threads : flags.threads;
  ranks.threads = std::max<uint64_t>(1, threads / ranks.count);
  return ranks;
}

absl::StatusOr<HeldOutLoss> EvaluateShare(const TrainedModel& model,
                                          const ValidationSet& validation,
                                          const Ranks& ranks, uint64_t rank,
                                          Progress& progress) {
  const int64_t batch = EvaluationBatch(model.config.model().sequence_length());
  ASSIGN_OR_RETURN(const std::unique_ptr<Inference> inference,
                   Inference::Create(model, batch,
                                     ranks.devices[rank % ranks.devices.size()],
                                     ranks.threads));
  return SumHeldOutLoss(
      validation,
      {.batch = batch,
       .rank = static_cast<int>(rank),
       .ranks = static_cast<int>(ranks.count)},
      [&](absl::Span<const int32_t> tokens, absl::Span<const int32_t> targets) {
        return inference->Loss(tokens, targets);
      },
      [&](int64_t rows) { progress.Add(static_cast<uint64_t>(rows)); });
}

// Returns the loss of all of `validation`, and the error of the first rank that
// fails.
absl::StatusOr<Evaluation> EvaluateOnRanks(const TrainedModel& model,
                                           const ValidationSet& validation,
                                           const Ranks& ranks,
                                           Progress& progress) {
  std::vector<absl::StatusOr<HeldOutLoss>> parts(ranks.count);
  std::vector<std::thread> threads;
  for (uint64_t rank = 0; rank < ranks.count; ++rank) {
    threads.emplace_back([&, rank] {
      parts[rank] = EvaluateShare(model, validation, ranks, rank, progress);
    });
  }
  for (std::thread& thread : threads) thread.join();
  Evaluation evaluation;
  for (const absl::StatusOr<HeldOutLoss>& part : parts) {
    RETURN_IF_ERROR(part.status());
    evaluation.loss += part->sum;
    evaluation.sequences += part->sequences;
    evaluation.tokens += part->tokens;
  }
  if (evaluation.tokens == 0) {
    return absl::FailedPreconditionError(
        "the masks hide every token of the validation split, so there is "
        "nothing to evaluate on");
  }
  evaluation.loss /= static_cast<double>(evaluation.tokens);
  return evaluation;
}

absl::Status RunEvaluate(const EvaluateFlags& flags,
                         const EvaluateEnvironment& environment,
                         const Invocation& call) {
  // Check flags and files first: loading repeats merges, which may take long.
  if (flags.paths.empty()) {
    return UsageError(
        "--data or --text is missing: the files that the run is trained on");
  }
  for (const std::string& path : flags.paths) {
    RETURN_IF_ERROR(OpenForeignFile(path).status());
  }
  ASSIGN_OR_RETURN(const Ranks ranks, FindRanks(flags, environment.threads));
  ASSIGN_OR_RETURN(const TrainedModel model,
                   LoadTrainedModel(call.arguments[0]));
  ASSIGN_OR_RETURN(const Dataset dataset,
                   OpenDataset(model.config, flags.paths));
  constexpr uint64_t kMost = std::numeric_limits<int64_t>::max();
  const ValidationSet validation(
      &dataset, static_cast<int64_t>(std::min(flags.max_sequences, kMost)));
  if (validation.size() == 0) {
    return absl::FailedPreconditionError(
        "the run holds no data out (data.validation_fraction is 0), so there "
        "is nothing to evaluate on");
  }
  if (!model.data_digest.empty() && model.data_digest != dataset.Digest()) {
    call.err << "warning: these are not the run's data. Other files, or the "
                "same files in another order, are split differently: what is "
                "evaluated may have been trained on\n";
  }
  Evaluation evaluation;
  {
    Progress progress("sequences", static_cast<uint64_t>(validation.size()),
                      environment.progress, call.err);
    ASSIGN_OR_RETURN(evaluation,
                     EvaluateOnRanks(model, validation, ranks, progress));
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

int64_t EvaluationBatch(int64_t sequence_length) {
  constexpr int64_t kTokens = 16384;
  return std::clamp<int64_t>(kTokens / sequence_length, 1, 8);
}

void PrintEvaluation(const TrainedModel& model, const Evaluation& evaluation,
                     std::ostream& out) {
  out << DescribeVersions(model.run_id, model.versions) << "\n"
      << absl::StrFormat("validation     %d sequences, %s tokens\n",
                         evaluation.sequences, HumanCount(evaluation.tokens))
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
  command.flags.Add("device", "DEVICES",
                    "Devices to compute on: cpu, cuda (all GPUs), cuda:N, or "
                    "several as cuda:0,2.",
                    &flags->device);
  command.flags.Add("ranks", "N",
                    "Ranks that share the work, assigned to the devices in "
                    "turn; each has a model and, on the CPU, an equal share of "
                    "--threads. 0: one for each device.",
                    &flags->ranks);
  command.flags.Add("threads", "N",
                    "Computing threads of all ranks together. 0: one for each "
                    "processor.",
                    &flags->threads, CheckThreads);
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
