// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/training_progress.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/os/machine.h"
#include "glog/logging.h"

namespace causeway {
namespace {

// The shortest period over which speed is measured.
constexpr absl::Duration kRateWindow = absl::Seconds(2);

// Returns the part of a progress line about several ranks.
std::string RankReport(const InnerStepResult& result) {
  std::string report;
  if (result.rank_micro_batches.size() > 1) {
    absl::StrAppend(&report, "  micro-batches ",
                    absl::StrJoin(result.rank_micro_batches, "+"));
  }
  if (result.communication > absl::ZeroDuration()) {
    absl::StrAppendFormat(
        &report, "  communication %.3f s, %.1f %% hidden",
        absl::ToDoubleSeconds(result.communication),
        100 - 100 * absl::FDivDuration(result.exposed_communication,
                                       result.communication));
  }
  return report;
}

double MiB(uint64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

}  // namespace

TrainingProgress::TrainingProgress(CoordinatorClient* client,
                                   const SharedOuterLoop* loop, Clock now,
                                   absl::Duration log_interval)
    : client_(client),
      loop_(loop),
      now_(std::move(now)),
      log_interval_(log_interval) {}

v1::IslandProgress TrainingProgress::Report() {
  absl::MutexLock lock(&mu_);
  if (loss_count_ > 0) {
    progress_.set_loss(loss_sum_ / static_cast<double>(loss_count_));
    loss_sum_ = 0;
    loss_count_ = 0;
  }
  progress_.set_bytes_up(client_->bytes_up());
  progress_.set_bytes_down(client_->bytes_down());
  client_->ReportLinks(progress_);
  progress_.set_memory_bytes(ResidentBytes());
  ReadLoop();
  trouble_is_new_ = false;
  return progress_;
}

v1::IslandProgress TrainingProgress::Current() {
  absl::MutexLock lock(&mu_);
  return progress_;
}

void TrainingProgress::SetRun(const v1::RunConfig& config) {
  absl::MutexLock lock(&mu_);
  total_steps_ = config.training().total_steps();
  alone_ = together_ = "training";
  // Runs that are defined by tensors have foreign trainers.
  if (config.has_tensors()) return;
  const auto algorithm = config.training().inner_algorithm();
  absl::StrAppend(&together_, " (",
                  v1::TrainingConfig::InnerAlgorithm_Name(algorithm), ")");
  if (algorithm != v1::TrainingConfig::DDP) alone_ = together_;
}

void TrainingProgress::SetTrouble(const v1::RankTrouble& trouble) {
  absl::MutexLock lock(&mu_);
  v1::RankTrouble& reported = *progress_.mutable_rank_trouble();
  if (std::exchange(trouble_is_new_, true)) {
    absl::StrAppend(reported.mutable_text(), "; ", trouble.text());
  } else {
    reported = trouble;
  }
}

void TrainingProgress::SetData(std::string digest) {
  absl::MutexLock lock(&mu_);
  progress_.set_data_digest(std::move(digest));
}

void TrainingProgress::RecordValidation(uint64_t version,
                                        const ValidationLoss& measured,
                                        absl::Duration duration) {
  LOG(INFO) << absl::StrFormat(
      "version %d of the model: validation loss %.4f over %d tokens, %.3f s",
      version, measured.loss, measured.tokens, absl::ToDoubleSeconds(duration));
  // Impossible values are sent, too: the coordinator ignores them.
  absl::MutexLock lock(&mu_);
  v1::Validation& validation = *progress_.mutable_validation();
  validation.set_version(version);
  validation.set_loss(measured.loss);
  validation.set_tokens(measured.tokens);
  validation.set_seconds(absl::ToDoubleSeconds(duration));
}

absl::Duration TrainingProgress::waited() const {
  return loop_->Read(
      [](const OuterLoop& core, absl::Time now) { return core.waited(now); });
}

void TrainingProgress::ReadLoop() {
  bool is_training = false;
  loop_->Read([&](const OuterLoop& core, absl::Time now) {
    mu_.AssertHeld();
    is_training = core.is_training();
    progress_.set_activity(core.Activity());
    *progress_.mutable_wait() = core.wait(now);
    progress_.set_run_step(core.step());
    progress_.set_ready(core.membership().ready());
    progress_.set_overlap_steps(core.overlap_steps());
    progress_.set_uplink_bits(core.uplink_bits());
    progress_.set_own_uplink_bits(core.has_own_uplink_bits());
    progress_.set_wait_seconds(absl::ToDoubleSeconds(core.waited(now)));
    progress_.set_late_updates(core.lateness().updates);
    progress_.set_overrun_steps(core.lateness().steps);
  });
  if (progress_.wait().reason() == v1::Wait::REASON_UNSPECIFIED) {
    progress_.clear_wait();
  }
  if (!is_training) return;
  progress_.set_activity(progress_.ranks_size() > 1 ? together_ : alone_);
  if (progress_.has_rank_trouble()) {
    absl::StrAppend(progress_.mutable_activity(), "; ",
                    progress_.rank_trouble().text());
  }
}

void TrainingProgress::RecordRanks(const InnerStepResult& result) {
  uint64_t micro_batches = 0;
  for (const int64_t count : result.rank_micro_batches) micro_batches += count;
  for (size_t rank = 0; rank < result.rank_micro_batches.size(); ++rank) {
    while (progress_.ranks_size() <= static_cast<int>(rank)) {
      progress_.add_ranks();
    }
    v1::RankProgress& done = *progress_.mutable_ranks(static_cast<int>(rank));
    const uint64_t count = result.rank_micro_batches[rank];
    done.set_micro_batches(done.micro_batches() + count);
    // All micro-batches have the same size.
    done.set_tokens(done.tokens() + result.tokens / micro_batches * count);
  }
  progress_.set_communication_seconds(
      progress_.communication_seconds() +
      absl::ToDoubleSeconds(result.communication));
  progress_.set_exposed_communication_seconds(
      progress_.exposed_communication_seconds() +
      absl::ToDoubleSeconds(result.exposed_communication));
  if (trouble_is_new_) return;
  if (result.trouble.kind() == v1::RankTrouble::KIND_UNSPECIFIED) {
    progress_.clear_rank_trouble();
  } else {
    *progress_.mutable_rank_trouble() = result.trouble;
  }
}

void TrainingProgress::UpdateRate(uint64_t tokens, absl::Duration duration,
                                  absl::Time now) {
  rate_.tokens += tokens;
  rate_.step_time += duration;
  ++rate_.steps;
  // The first step warms up; the measurement starts after it.
  const bool first = rate_.since == absl::InfinitePast();
  if (!first && now - rate_.since < kRateWindow) return;
  if (!first) {
    progress_.set_tokens_per_second(static_cast<double>(rate_.tokens) /
                                    absl::ToDoubleSeconds(now - rate_.since));
    progress_.set_step_seconds(absl::ToDoubleSeconds(rate_.step_time) /
                               static_cast<double>(rate_.steps));
  }
  rate_ = {.since = now};
}

void TrainingProgress::Record(uint64_t step, const InnerStepResult& result,
                              absl::Duration duration) {
  const absl::Time now = now_();
  absl::MutexLock lock(&mu_);
  progress_.set_tokens(progress_.tokens() + result.tokens);
  ReadLoop();
  // The loop learns of the step after this returns.
  progress_.set_run_step(std::max<uint64_t>(progress_.run_step(), step));
  RecordRanks(result);
  if (std::isfinite(result.loss)) {
    loss_sum_ += result.loss;
    ++loss_count_;
  }
  // NaN means that the loss is unknown.
  LOG_IF(WARNING, std::isinf(result.loss))
      << "the loss of step " << step << " is " << result.loss;
  UpdateRate(result.tokens, duration, now);
  if (now - logged_at_ < log_interval_ && step != total_steps_) return;
  logged_at_ = now;
  LOG(INFO) << absl::StrFormat(
      "step %d/%d  loss %.4f  gradient %.3f  lr %.2e  %.0f tokens/s  up %.1f "
      "MiB  down %.1f MiB  waited %.3f s%s",
      step, total_steps_, result.loss, result.gradient_norm,
      result.learning_rate, progress_.tokens_per_second(),
      MiB(client_->bytes_up()), MiB(client_->bytes_down()),
      progress_.wait_seconds(), RankReport(result));
}

}  // namespace causeway
