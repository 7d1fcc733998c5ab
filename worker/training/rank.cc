// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/training/rank.h"

#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/status_macros.h"
#include "glog/logging.h"
#include "worker/collective/collective_diagnosis.h"
#include "worker/training/transformer_gradients.h"

namespace causeway {
namespace {

// Long enough to tell a habit from an incident.
constexpr absl::Duration kDiagnosisPeriod = absl::Seconds(5);

}  // namespace

// What rank 0 broadcasts.
struct Rank::Order {
  enum class What : uint64_t {
    // The parameters follow in a broadcast of their own.
    kParameters,
    kStep,
    // Compare what is seen of the communication.
    kDiagnose,
    // Every rank saves.
    kSave,
    // The state follows.
    kRestore,
    // Go on waiting.
    kWait,
    kEnd,
  };
  What what = What::kWait;
  // Of kStep.
  uint64_t run_step = 0;
};

absl::StatusOr<std::unique_ptr<Rank>> Rank::Create(
    const Options& options, std::unique_ptr<Communicator> communicator) {
  auto rank = absl::WrapUnique(new Rank(options, std::move(communicator)));
  const absl::Status allocated = rank->Allocate(options);
  if (!allocated.ok()) {
    rank->communicator_->Abort(allocated);
    return allocated;
  }
  return rank;
}

Rank::Rank(const Options& options, std::unique_ptr<Communicator> communicator)
    : device_(options.device),
      layout_(MakeModelLayout(options.config.model())),
      communicator_(std::move(communicator)),
      now_(options.now),
      diagnosed_at_(options.now()) {}

absl::Status Rank::Allocate(const Options& options) {
  RETURN_IF_ERROR(CheckDeviceModel(device_, options.config.model()));
  ASSIGN_OR_RETURN(ops_, MakeDeviceOps(device_, options.threads));
  ASSIGN_OR_RETURN(communication_ops_, MakeDeviceOps(device_, 1));
  if (!device_.is_host()) {
    if (communicator_->size() > 1) {
      return absl::UnimplementedError(
          "an island on CUDA has one rank: start an island for each GPU");
    }
    host_parameters_.resize(static_cast<size_t>(layout_.size));
  }
  ASSIGN_OR_RETURN(gradients_,
                   MakeTransformerGradients(options.config, options.dataset,
                                            options.shard, ops_.get()));
  ASSIGN_OR_RETURN(
      trainer_,
      MakeRankTrainer(
          {.training = options.config.training(),
           .layout = &layout_,
           .communicator = communicator_.get(),
           .gradients = gradients_.get(),
           .ops = ops_.get(),
           .communication_ops = communication_ops_.get(),
           .accumulate = options.config.training().fixed_micro_batches()
                             ? AccumulateShare
                             : AccumulateWhileCommunicating,
           .now = options.now}));
  return absl::OkStatus();
}

absl::Span<float> Rank::parameters() {
  if (device_.is_host()) return trainer_->parameters();
  if (std::exchange(device_is_newer_, false)) {
    ops_->CopyToHost(trainer_->parameters().data(),
                     host_parameters_.size() * sizeof(float),
                     host_parameters_.data());
  }
  return absl::MakeSpan(host_parameters_);
}

absl::Status Rank::ShareParameters() {
  Order order = {.what = Order::What::kParameters};
  RETURN_IF_ERROR(Exchange(order));
  return ExchangeParameters();
}

absl::StatusOr<InnerStepResult> Rank::Step(uint64_t run_step) {
  Order order = {.what = Order::What::kStep, .run_step = run_step};
  RETURN_IF_ERROR(Exchange(order));
  ASSIGN_OR_RETURN(InnerStepResult result, StepOrAbort(run_step));
  const absl::Time now = now_();
  if (now - diagnosed_at_ >= kDiagnosisPeriod) {
    diagnosed_at_ = now;
    order = {.what = Order::What::kDiagnose};
    RETURN_IF_ERROR(Exchange(order));
    RETURN_IF_ERROR(Diagnose());
  }
  result.trouble = trouble_;
  return result;
}

absl::Status Rank::Save(TrainerState& state) {
  Order order = {.what = Order::What::kSave};
  RETURN_IF_ERROR(Exchange(order));
  return trainer_->Save(state);
}

absl::Status Rank::Restore(TrainerState state) {
  Order order = {.what = Order::What::kRestore};
  RETURN_IF_ERROR(Exchange(order));
  return ExchangeState(state);
}

absl::Status Rank::ShowLife() {
  Order order = {.what = Order::What::kWait};
  return Exchange(order);
}

absl::Status Rank::End() {
  Order order = {.what = Order::What::kEnd};
  return Exchange(order);
}

absl::Status Rank::Follow() {
  while (true) {
    Order order;
    RETURN_IF_ERROR(Exchange(order));
    switch (order.what) {
      case Order::What::kParameters:
        RETURN_IF_ERROR(ExchangeParameters());
        break;
      case Order::What::kStep:
        RETURN_IF_ERROR(StepOrAbort(order.run_step).status());
        break;
      case Order::What::kDiagnose:
        RETURN_IF_ERROR(Diagnose());
        break;
      case Order::What::kSave: {
        // Rank 0 keeps it for all.
        TrainerState state;
        RETURN_IF_ERROR(trainer_->Save(state));
        break;
      }
      case Order::What::kRestore: {
        TrainerState state;
        RETURN_IF_ERROR(ExchangeState(state));
        break;
      }
      case Order::What::kWait:
        break;
      case Order::What::kEnd:
        return absl::OkStatus();
    }
  }
}

absl::Status Rank::Exchange(Order& order) {
  return communicator_
      ->Broadcast(
          0, absl::MakeSpan(reinterpret_cast<char*>(&order), sizeof(order)))
      .Wait();
}

absl::Status Rank::ExchangeParameters() {
  const absl::Span<float> values = parameters();
  RETURN_IF_ERROR(
      communicator_
          ->Broadcast(0, absl::MakeSpan(reinterpret_cast<char*>(values.data()),
                                        values.size() * sizeof(float)))
          .Wait());
  if (!device_.is_host()) {
    ops_->CopyToDevice(values.data(), values.size() * sizeof(float),
                       trainer_->parameters().data());
  }
  trainer_->ParametersChanged();
  return ops_->Synchronize();
}

absl::Status Rank::ExchangeState(TrainerState& state) {
  uint64_t numbers[] = {state.updates, state.next_micro_batch};
  RETURN_IF_ERROR(
      communicator_
          ->Broadcast(0, absl::MakeSpan(reinterpret_cast<char*>(numbers),
                                        sizeof(numbers)))
          .Wait());
  state.updates = numbers[0];
  state.next_micro_batch = numbers[1];
  for (std::vector<float>* moment :
       {&state.first_moment, &state.second_moment}) {
    moment->resize(static_cast<size_t>(layout_.size));
    RETURN_IF_ERROR(
        communicator_
            ->Broadcast(0,
                        absl::MakeSpan(reinterpret_cast<char*>(moment->data()),
                                       moment->size() * sizeof(float)))
            .Wait());
  }
  trainer_->Restore(state);
  return absl::OkStatus();
}

absl::StatusOr<InnerStepResult> Rank::StepOrAbort(uint64_t run_step) {
  device_is_newer_ = true;
  absl::StatusOr<InnerStepResult> result = trainer_->Step(run_step);
  if (result.ok()) return result;
  communicator_->Abort(result.status());
  absl::Status status(
      result.status().code(),
      absl::StrCat("step ", run_step, ": ", result.status().message()));
  // Whom it blames.
  result.status().ForEachPayload(
      [&](absl::string_view type, const absl::Cord& payload) {
        status.SetPayload(type, payload);
      });
  return status;
}

absl::Status Rank::Diagnose() {
  const CollectiveDiagnosis own =
      DiagnoseCollectives(communicator_->rank(), communicator_->TakeTimes());
  ASSIGN_OR_RETURN(const CollectiveDiagnosis worst,
                   WorstOf(own, communicator_.get()));
  v1::RankTrouble trouble = ToRankTrouble(worst);
  if (trouble.kind() != trouble_.kind() || trouble.rank() != trouble_.rank()) {
    LOG(INFO) << "rank " << communicator_->rank() << ": "
              << (trouble.text().empty()
                      ? "no rank and no link is slow any more"
                      : trouble.text());
  }
  trouble_ = std::move(trouble);
  return absl::OkStatus();
}

}  // namespace causeway
