// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/training/rank.h"

#include <string>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/status_macros.h"
#include "glog/logging.h"
#include "outer_optimizer/fragment_plan.h"
#include "worker/collective/collective_diagnosis.h"
#include "worker/replica/device/cuda_queue.h"
#include "worker/replica/device/device_fragment_part.h"
#include "worker/replica/host_fragment_part.h"
#include "worker/training/memory_advice.h"
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
    // What rank 0 was told when it joined follows, in so many `bytes`.
    kReplica,
    kSnapshot,
    kApply,
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
  // Of kReplica.
  uint64_t bytes = 0;
  // Of kSnapshot and kApply.
  uint32_t fragment = 0;
  uint32_t eager = 0;
  UpdateUse use;
};

absl::StatusOr<std::unique_ptr<Rank>> Rank::Create(
    const Options& options, Communicators communicators) {
  auto rank = absl::WrapUnique(new Rank(options, std::move(communicators)));
  const absl::Status allocated = rank->AllocateOrAdvise(options);
  if (!allocated.ok()) {
    rank->Abort(allocated);
    return allocated;
  }
  return rank;
}

Rank::Rank(const Options& options, Communicators communicators)
    : device_(options.device),
      layout_(MakeModelLayout(options.config.model())),
      communicator_(std::move(communicators.training)),
      replica_communicator_(std::move(communicators.replica)),
      anchors_on_device_(options.anchors_on_device),
      now_(options.now),
      diagnosed_at_(options.now()) {}

absl::Status Rank::AllocateOrAdvise(const Options& options) {
  RETURN_IF_ERROR(CheckDeviceModel(device_, options.config.model()));
  ASSIGN_OR_RETURN(ops_, MakeDeviceOps(device_, options.threads));
  const int64_t free_bytes = ops_->FreeBytes();
  const absl::Status status = Allocate(options);
  if (!absl::IsResourceExhausted(status)) return status;
  return absl::ResourceExhaustedError(
      absl::StrCat(status.message(), "; ",
                   MemoryAdvice(options.config,
                                {.ranks = communicator_->size(),
                                 .anchors_on_device = anchors_on_device_,
                                 .bf16_gradients = options.bf16_gradients},
                                free_bytes, ops_.get())));
}

absl::Status Rank::Allocate(const Options& options) {
  ASSIGN_OR_RETURN(communication_ops_, MakeDeviceOps(device_, 1));
  ASSIGN_OR_RETURN(
      gradients_,
      MakeTransformerGradients(options.config, options.dataset, options.shard,
                               options.stochastic_rounding, ops_.get()));
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
           .bf16_gradients = options.bf16_gradients,
           .now = options.now}));
  return absl::OkStatus();
}

Rank::~Rank() = default;

absl::Status Rank::ShareParameters(std::vector<float> parameters) {
  CHECK_EQ(parameters.size(), static_cast<size_t>(layout_.size));
  Order order = {.what = Order::What::kParameters};
  RETURN_IF_ERROR(Exchange(order));
  return ExchangeParameters(std::move(parameters));
}

absl::StatusOr<std::vector<std::unique_ptr<FragmentReplica>>> Rank::MakeReplica(
    const v1::JoinResponse& joined, ReplicaHooks hooks) {
  std::string text = joined.SerializeAsString();
  Order order = {.what = Order::What::kReplica, .bytes = text.size()};
  RETURN_IF_ERROR(Exchange(order));
  RETURN_IF_ERROR(ExchangeBytes(absl::MakeSpan(&text[0], text.size())));
  RETURN_IF_ERROR(MakeOwnReplica(joined));
  return replica_->Fragments(std::move(hooks));
}

absl::Status Rank::TakeSnapshot(uint32_t fragment, bool eager) {
  Order order = {
      .what = Order::What::kSnapshot, .fragment = fragment, .eager = eager};
  RETURN_IF_ERROR(Exchange(order));
  return TakeOwnSnapshot(order);
}

absl::Status Rank::Apply(uint32_t fragment, const UpdateUse& use) {
  Order order = {.what = Order::What::kApply, .fragment = fragment, .use = use};
  RETURN_IF_ERROR(Exchange(order));
  return ApplyOwn(order);
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
  return SaveWithOthers(state);
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

void Rank::Abort(const absl::Status& reason) {
  communicator_->Abort(reason);
  if (replica_ != nullptr) {
    replica_->Abort(reason);
  } else {
    replica_communicator_->Abort(reason);
  }
}

absl::Status Rank::Follow() {
  const absl::Status status = FollowOrders();
  if (!status.ok()) Abort(status);
  return status;
}

absl::Status Rank::FollowOrders() {
  while (true) {
    Order order;
    RETURN_IF_ERROR(Exchange(order));
    switch (order.what) {
      case Order::What::kParameters:
        RETURN_IF_ERROR(ExchangeParameters({}));
        break;
      case Order::What::kReplica: {
        std::string text(order.bytes, 0);
        RETURN_IF_ERROR(ExchangeBytes(absl::MakeSpan(&text[0], text.size())));
        v1::JoinResponse joined;
        if (!joined.ParseFromString(text)) {
          return absl::DataLossError("what rank 0 says of the run is damaged");
        }
        RETURN_IF_ERROR(MakeOwnReplica(joined));
        break;
      }
      case Order::What::kSnapshot:
        RETURN_IF_ERROR(TakeOwnSnapshot(order));
        break;
      case Order::What::kApply:
        RETURN_IF_ERROR(ApplyOwn(order));
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
        RETURN_IF_ERROR(SaveWithOthers(state));
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
  return ExchangeBytes(
      absl::MakeSpan(reinterpret_cast<char*>(&order), sizeof(order)));
}

absl::Status Rank::ExchangeBytes(absl::Span<char> bytes) {
  return communicator_->Broadcast(0, bytes).Wait();
}

absl::Status Rank::ExchangeParameters(std::vector<float> parameters) {
  parameters.resize(static_cast<size_t>(layout_.size));
  const size_t bytes = parameters.size() * sizeof(float);
  RETURN_IF_ERROR(ExchangeBytes(
      absl::MakeSpan(reinterpret_cast<char*>(parameters.data()), bytes)));
  ops_->CopyToDevice(parameters.data(), bytes, trainer_->parameters().data());
  trainer_->ParametersWritten();
  // The first step, too, computes with what ranks give one another.
  changed_ = communicator_->rounds();
  return ops_->Synchronize();
}

absl::Status Rank::MakeOwnReplica(const v1::JoinResponse& joined) {
  ASSIGN_OR_RETURN(FragmentMap map,
                   FragmentMap::Create(layout_, joined.plan()));
  if (!device_.is_host()) {
    PartDevice::Options part_device = {.anchors_on_device = anchors_on_device_};
    ASSIGN_OR_RETURN(part_device.training,
                     NewCudaQueue(device_.index, QueuePriority::kHigh));
    ASSIGN_OR_RETURN(part_device.background,
                     NewCudaQueue(device_.index, QueuePriority::kLow));
    ASSIGN_OR_RETURN(part_device_, PartDevice::Create(std::move(part_device)));
  }
  ReplicaRank::Options options{
      .map = std::move(map),
      .replica = MakeReplicaOptions(joined),
      .make_part = [this](uint32_t fragment, const FragmentShare& share,
                          const ReplicaOptions& part_options,
                          const float* master)
          -> absl::StatusOr<std::unique_ptr<FragmentPart>> {
        if (part_device_ != nullptr) {
          return MakeDeviceFragmentPart(fragment, share, part_options, master,
                                        part_device_.get(), &snapshots_);
        }
        return MakeHostFragmentPart(fragment, share, part_options, master,
                                    &snapshots_);
      },
      .communicator = replica_communicator_.get()};
  for (int rank = 0; rank < communicator_->size(); ++rank) {
    options.shards.push_back(communicator_->shard(layout_.size, rank));
  }
  ASSIGN_OR_RETURN(replica_, ReplicaRank::Create(std::move(options),
                                                 trainer_->master().data()));
  return absl::OkStatus();
}

absl::Status Rank::TakeOwnSnapshot(const Order& order) {
  const bool eager = order.eager != 0;
  changed_ = changed_ || eager;
  return replica_->TakeSnapshot(order.fragment, eager,
                                trainer_->master().data());
}

absl::Status Rank::ApplyOwn(const Order& order) {
  changed_ = true;
  return replica_->Apply(order.fragment, order.use, trainer_->master().data());
}

absl::Status Rank::TakeChange() {
  if (!std::exchange(changed_, false)) return absl::OkStatus();
  return trainer_->MastersChanged();
}

absl::Status Rank::SaveWithOthers(TrainerState& state) {
  RETURN_IF_ERROR(trainer_->Save(state));
  const absl::Span<const float> master = trainer_->master();
  state.parameters.resize(static_cast<size_t>(layout_.size));
  ops_->CopyToHost(master.data(), master.size() * sizeof(float),
                   state.parameters.data() + trainer_->shard().begin);
  // What a device that has failed leaves there must not be kept.
  RETURN_IF_ERROR(ops_->Synchronize());
  return GatherShards(communicator_.get(), absl::MakeSpan(state.parameters));
}

absl::Status Rank::ExchangeState(TrainerState& state) {
  uint64_t numbers[] = {state.updates, state.next_micro_batch};
  RETURN_IF_ERROR(ExchangeBytes(
      absl::MakeSpan(reinterpret_cast<char*>(numbers), sizeof(numbers))));
  state.updates = numbers[0];
  state.next_micro_batch = numbers[1];
  for (std::vector<float>* moment :
       {&state.first_moment, &state.second_moment}) {
    moment->resize(static_cast<size_t>(layout_.size));
    RETURN_IF_ERROR(
        ExchangeBytes(absl::MakeSpan(reinterpret_cast<char*>(moment->data()),
                                     moment->size() * sizeof(float))));
  }
  trainer_->Restore(state);
  return absl::OkStatus();
}

absl::StatusOr<InnerStepResult> Rank::StepOrAbort(uint64_t run_step) {
  RETURN_IF_ERROR(TakeChange());
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
