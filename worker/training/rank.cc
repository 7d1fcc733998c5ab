// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/training/rank.h"

#include <string>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/checksum.h"
#include "common/restated.h"
#include "common/status_macros.h"
#include "glog/logging.h"
#include "outer_optimizer/fragment_plan.h"
#include "worker/collective/collective_diagnosis.h"
#include "worker/collective/rank_stamps.h"
#include "worker/replica/device/device_fragment_part.h"
#include "worker/replica/device/device_queue.h"
#include "worker/replica/host_fragment_part.h"
#include "worker/training/memory_advice.h"
#include "worker/training/transformer_gradients.h"

namespace causeway {
namespace {

// Long enough to distinguish lasting trouble from a single incident.
constexpr absl::Duration kDiagnosisPeriod = absl::Seconds(5);
constexpr int kDiagnosisSteps = 4;

}  // namespace

absl::StatusOr<std::unique_ptr<Rank>> Rank::Create(
    const Options& options, RankCommunicators communicators) {
  auto rank = absl::WrapUnique(new Rank(options, std::move(communicators)));
  RETURN_IF_ERROR(rank->orders_.Fail(rank->AllocateOrAdvise(options)));
  return rank;
}

Rank::Rank(const Options& options, RankCommunicators communicators)
    : others_(options.others),
      device_(options.device),
      config_(options.config),
      layout_(MakeModelLayout(config_.model())),
      dataset_(options.dataset),
      data_digest_(options.data_digest),
      orders_(std::move(communicators), options.pulse),
      beside_other_gpus_(options.beside_other_gpus),
      now_(options.now),
      diagnosed_(options.diagnosed),
      diagnosed_at_(options.now()) {}

absl::Status Rank::AllocateOrAdvise(const Options& options) {
  RETURN_IF_ERROR(CheckDeviceModel(device_, options.config.model()));
  ASSIGN_OR_RETURN(ops_, MakeDeviceOps(device_, options.threads));
  free_bytes_ = ops_->FreeBytes();
  anchors_on_device_ = options.anchors_on_device.value_or(
      !device_.is_host() &&
      TrainingBytes(config_, Share(/*anchors_on_device=*/true), ops_.get()) <=
          free_bytes_ / 4 * 3);
  return WithAdvice(Allocate(options));
}

RankShare Rank::Share(bool anchors_on_device) const {
  return {.ranks = size(),
          .anchors_on_device = anchors_on_device,
          .reserves = beside_other_gpus_};
}

absl::Status Rank::WithAdvice(absl::Status status) const {
  if (!absl::IsResourceExhausted(status)) return status;
  const RankShare share = Share(anchors_on_device_);
  // If the rank fits, the host's pinned memory ran out.
  const bool fits = TrainingBytes(config_, share, ops_.get()) <= free_bytes_;
  if (fits && !device_.is_host()) return status;
  return Restated(
      status, status.code(),
      absl::StrCat(status.message(), "; ",
                   MemoryAdvice(config_, share, free_bytes_, ops_.get())));
}

absl::Status Rank::Allocate(const Options& options) {
  ASSIGN_OR_RETURN(communication_ops_, MakeDeviceOps(device_, 1));
  ASSIGN_OR_RETURN(
      gradients_,
      MakeTransformerGradients(options.config, options.dataset, options.shard,
                               options.data_order, ops_.get()));
  ASSIGN_OR_RETURN(
      trainer_,
      MakeRankTrainer(
          {.training = options.config.training(),
           .layout = &layout_,
           .communicator = communicator(),
           .gradients = gradients_.get(),
           .ops = ops_.get(),
           .communication_ops = communication_ops_.get(),
           .accumulate = options.config.training().fixed_micro_batches()
                             ? AccumulateShare
                             : AccumulateWhileCommunicating,
           .now = options.now}));
  return absl::OkStatus();
}

Rank::~Rank() = default;

absl::Status Rank::ShareParameters(std::vector<float> parameters) {
  CHECK_EQ(parameters.size(), static_cast<size_t>(layout_.size));
  return orders_.Lead({.what = Order::What::kShareParameters}, [&] {
    return ExchangeParameters(std::move(parameters));
  });
}

absl::StatusOr<std::vector<std::unique_ptr<FragmentReplica>>> Rank::MakeReplica(
    const v1::JoinResponse& joined) {
  std::string text = joined.SerializeAsString();
  const Order order = {.what = Order::What::kMakeReplica, .bytes = text.size()};
  RETURN_IF_ERROR(orders_.Lead(
      order, [&] { return WithAdvice(MakeOwnReplica(std::move(text))); }));
  return replica_->Fragments();
}

absl::StatusOr<InnerStepResult> Rank::Step(uint64_t run_step) {
  const absl::Time now = now_();
  const Order order = {.what = Order::What::kStep,
                       .run_step = run_step,
                       .diagnose = ++undiagnosed_steps_ >= kDiagnosisSteps &&
                                   now - diagnosed_at_ >= kDiagnosisPeriod};
  if (order.diagnose) {
    diagnosed_at_ = now;
    undiagnosed_steps_ = 0;
  }
  InnerStepResult result;
  RETURN_IF_ERROR(orders_.Lead(order, [&]() -> absl::Status {
    ASSIGN_OR_RETURN(result, MakeStep(order));
    return absl::OkStatus();
  }));
  result.trouble = trouble_;
  return result;
}

absl::Status Rank::Save(TrainerState& state) {
  return orders_.Lead({.what = Order::What::kSave},
                      [&] { return SaveOwn(state); });
}

absl::Status Rank::Restore(TrainerState state) {
  CHECK_EQ(state.parameters.size(), static_cast<size_t>(layout_.size));
  return orders_.Lead({.what = Order::What::kRestore},
                      [&] { return RestoreOwn(std::move(state)); });
}

absl::StatusOr<ValidationLoss> Rank::Validate(std::vector<float> parameters,
                                              uint32_t max_sequences) {
  CHECK_EQ(parameters.size(), static_cast<size_t>(layout_.size));
  const Order order = {.what = Order::What::kValidate,
                       .max_sequences = max_sequences};
  ValidationLoss result;
  RETURN_IF_ERROR(orders_.Lead(order, [&]() -> absl::Status {
    ASSIGN_OR_RETURN(result, Measure(std::move(parameters), max_sequences));
    return absl::OkStatus();
  }));
  return result;
}

absl::Status Rank::Follow() {
  LOG(INFO) << "rank " << rank() << " of " << size() << " follows rank 0";
  return orders_.Follow([this](const Order& order) { return CarryOut(order); });
}

absl::Status Rank::CarryOut(const Order& order) {
  // Rank 0 keeps the state for all ranks.
  TrainerState state;
  switch (order.what) {
    case Order::What::kShareParameters:
      return ExchangeParameters({});
    case Order::What::kMakeReplica:
      return WithAdvice(MakeOwnReplica(std::string(order.bytes, 0)));
    case Order::What::kStep:
      return MakeStep(order).status();
    case Order::What::kValidate:
      return Measure({}, order.max_sequences).status();
    case Order::What::kSave:
      return SaveOwn(state);
    case Order::What::kRestore:
      return RestoreOwn({});
    default:
      return replica_->Follow(order);
  }
}

absl::Status Rank::ExchangeBytes(absl::Span<char> bytes) {
  return communicator()->Broadcast(0, bytes);
}

absl::Status Rank::ExchangeVector(std::vector<float> values, float* to) {
  values.resize(static_cast<size_t>(layout_.size));
  const size_t bytes = values.size() * sizeof(float);
  RETURN_IF_ERROR(ExchangeBytes(
      absl::MakeSpan(reinterpret_cast<char*>(values.data()), bytes)));
  ops_->CopyToDevice(values.data(), bytes, to);
  return ops_->Synchronize();
}

absl::Status Rank::ExchangeParameters(std::vector<float> parameters) {
  RETURN_IF_ERROR(
      ExchangeVector(std::move(parameters), trainer_->parameters().data()));
  trainer_->ParametersWritten();
  return ops_->Synchronize();
}

absl::Status Rank::CheckData() {
  if (size() == 1) return absl::OkStatus();
  const std::string own = Digest128(
      absl::StrCat(data_digest_, absl::StrJoin(dataset_->weights, ",")));
  std::string first = own;
  RETURN_IF_ERROR(ExchangeBytes(absl::MakeSpan(&first[0], first.size())));
  if (own == first) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "rank ", rank(),
      " reads other data than rank 0: give all processes of the island the "
      "same files (--data) in the same order, and the same --data_weights"));
}

absl::Status Rank::MakeOwnReplica(std::string text) {
  RETURN_IF_ERROR(CheckData());
  RETURN_IF_ERROR(ExchangeBytes(absl::MakeSpan(&text[0], text.size())));
  v1::JoinResponse joined;
  if (!joined.ParseFromString(text)) {
    return absl::DataLossError("rank 0's description of the run is damaged");
  }
  ASSIGN_OR_RETURN(FragmentMap map,
                   FragmentMap::Create(layout_, joined.plan()));
  if (!device_.is_host()) {
    PartDevice::Options part_device = {.anchors_on_device = anchors_on_device_,
                                       .reserves = beside_other_gpus_};
    ASSIGN_OR_RETURN(part_device.training,
                     NewCudaQueue(device_.index, QueuePriority::kHigh));
    ASSIGN_OR_RETURN(part_device.background,
                     NewCudaQueue(device_.index, QueuePriority::kLow));
    ASSIGN_OR_RETURN(part_device_, PartDevice::Create(std::move(part_device)));
  }
  ReplicaRank::Options options{
      .map = std::move(map),
      .replica = MakeReplicaOptions(joined.config().synchronization()),
      .make_part = [this](uint32_t /*fragment*/, const FragmentShare& share,
                          const ReplicaOptions& part_options,
                          const float* master)
          -> absl::StatusOr<std::unique_ptr<FragmentPart>> {
        if (part_device_ != nullptr) {
          return MakeDeviceFragmentPart(share, part_options, master,
                                        part_device_.get());
        }
        return MakeHostFragmentPart(share, part_options, master, &snapshots_);
      },
      .masters =
          [this](bool changes) {
            changed_ = changed_ || changes;
            return trainer_->master().data();
          },
      .orders = &orders_};
  for (int rank = 0; rank < size(); ++rank) {
    options.shards.push_back(communicator()->shard(layout_.size, rank));
  }
  ASSIGN_OR_RETURN(replica_, ReplicaRank::Create(std::move(options)));
  return absl::OkStatus();
}

absl::StatusOr<ValidationLoss> Rank::Measure(std::vector<float> parameters,
                                             uint32_t max_sequences) {
  float* const measured = trainer_->scratch().data();
  RETURN_IF_ERROR(ExchangeVector(std::move(parameters), measured));
  ASSIGN_OR_RETURN(
      const HeldOutLoss own,
      gradients_->MeasureHeldOut(measured, max_sequences, rank(), size()));
  double sums[] = {own.sum, static_cast<double>(own.tokens)};
  RETURN_IF_ERROR(communicator()->AllReduce(absl::MakeSpan(sums)));
  if (sums[1] == 0) return ValidationLoss();
  return ValidationLoss{.loss = sums[0] / sums[1],
                        .tokens = static_cast<uint64_t>(sums[1])};
}

absl::Status Rank::SaveOwn(TrainerState& state) {
  RETURN_IF_ERROR(trainer_->Save(state));
  const absl::Span<const float> master = trainer_->master();
  state.parameters.resize(master.size());
  ops_->CopyToHost(master.data(), master.size() * sizeof(float),
                   state.parameters.data());
  // Fails if the device has failed, before its values are kept.
  RETURN_IF_ERROR(ops_->Synchronize());
  return GatherShards(communicator(), layout_.size, state.parameters);
}

absl::Status Rank::RestoreOwn(TrainerState state) {
  uint64_t numbers[] = {state.optimizer.updates, state.next_micro_batch,
                        state.micro_batch_size};
  RETURN_IF_ERROR(ExchangeBytes(
      absl::MakeSpan(reinterpret_cast<char*>(numbers), sizeof(numbers))));
  state.optimizer.updates = numbers[0];
  state.next_micro_batch = numbers[1];
  state.micro_batch_size = numbers[2];
  std::vector<float> parameters = std::move(state.parameters);
  RETURN_IF_ERROR(trainer_->Restore(std::move(state)));
  return ExchangeParameters(std::move(parameters));
}

absl::StatusOr<InnerStepResult> Rank::MakeStep(const Order& order) {
  // Updates the parameters of all ranks from the masters.
  if (std::exchange(changed_, false)) {
    RETURN_IF_ERROR(trainer_->MastersChanged());
  }
  absl::StatusOr<InnerStepResult> result = trainer_->Step(order.run_step);
  if (result.ok()) {
    if (order.diagnose) RETURN_IF_ERROR(Diagnose());
    StampStep(rank(), order.run_step);
    return result;
  }
  return WithAdvice(Restated(
      result.status(), result.status().code(),
      absl::StrCat("step ", order.run_step, ": ", result.status().message())));
}

absl::Status Rank::Diagnose() {
  const CollectiveDiagnosis own =
      DiagnoseCollectives(rank(), communicator()->TakeTimes());
  ASSIGN_OR_RETURN(const CollectiveDiagnosis worst,
                   WorstOf(own, communicator()));
  v1::RankTrouble trouble = ToRankTrouble(worst);
  if (trouble.kind() != trouble_.kind() || trouble.rank() != trouble_.rank()) {
    LOG(INFO) << "rank " << rank() << ": "
              << (trouble.text().empty()
                      ? "no rank and no link is slow any more"
                      : trouble.text());
  }
  trouble_ = std::move(trouble);
  if (rank() == 0 && diagnosed_ != nullptr) diagnosed_(worst);
  return absl::OkStatus();
}

}  // namespace causeway
