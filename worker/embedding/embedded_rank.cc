// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/embedding/embedded_rank.h"

#include <algorithm>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "common/as_bytes.h"
#include "common/printable.h"
#include "common/status_macros.h"
#include "worker/replica/device/device_fragment_part.h"
#include "worker/replica/host_fragment_part.h"

namespace causeway {
namespace {

Slices HeldSlices(const FragmentMap& map, uint32_t fragment,
                  const Slice& shard) {
  Slices fragment_slices;
  for (const FragmentMap::Segment& segment : map.segments(fragment)) {
    fragment_slices.push_back(
        {static_cast<int64_t>(segment.model_offset),
         static_cast<int64_t>(segment.model_offset + segment.size)});
  }
  return Intersect(fragment_slices, {shard});
}

}  // namespace

absl::StatusOr<std::unique_ptr<EmbeddedRank>> EmbeddedRank::Create(
    ModelLayout layout, LocalTensors* tensors, RankCommunicators communicators,
    absl::Duration pulse, std::function<void(const absl::Status&)> on_failure) {
  auto rank = absl::WrapUnique(new EmbeddedRank(std::move(layout), tensors,
                                                std::move(communicators), pulse,
                                                std::move(on_failure)));
  RETURN_IF_ERROR(rank->ExchangeSlices());
  RETURN_IF_ERROR(rank->CheckWhole());
  return rank;
}

EmbeddedRank::EmbeddedRank(ModelLayout layout, LocalTensors* tensors,
                           RankCommunicators communicators,
                           absl::Duration pulse,
                           std::function<void(const absl::Status&)> on_failure)
    : layout_(std::move(layout)),
      tensors_(tensors),
      orders_(std::move(communicators), pulse, std::move(on_failure)) {}

absl::Status EmbeddedRank::ExchangeSlices() {
  // The counts are small enough for exact doubles.
  std::vector<double> counts(size());
  counts[rank()] = static_cast<double>(tensors_->slices().size());
  RETURN_IF_ERROR(communicator()->AllReduce(absl::MakeSpan(counts)));
  trained_.resize(size());
  std::vector<absl::Span<char>> from;
  for (int other = 0; other < size(); ++other) {
    trained_[other].resize(static_cast<size_t>(counts[other]));
    from.push_back(AsBytes(absl::MakeSpan(trained_[other])));
  }
  trained_[rank()] = tensors_->slices();
  return communicator()->AllToAll(
      {static_cast<size_t>(size()),
       AsBytes(absl::MakeConstSpan(tensors_->slices()))},
      std::move(from));
}

absl::Status EmbeddedRank::CheckWhole() const {
  Slices missing = {{0, layout_.size}};
  for (const Slices& trained : trained_) missing = Subtract(missing, trained);
  if (missing.empty()) return absl::OkStatus();
  const auto tensor = std::find_if(
      layout_.tensors.begin(), layout_.tensors.end(), [&](const auto& spec) {
        return missing[0].begin < spec.offset + spec.size;
      });
  return absl::InvalidArgumentError(absl::StrCat(
      "value ", missing[0].begin - tensor->offset, " of tensor \"",
      Printable(tensor->name), "\" is on none of the ", size(), " ranks"));
}

absl::Status EmbeddedRank::ShareParameters(std::vector<float> parameters) {
  return orders_.Lead({.what = Order::What::kShareParameters},
                      [&] { return WriteParameters(std::move(parameters)); });
}

absl::StatusOr<std::vector<std::unique_ptr<FragmentReplica>>>
EmbeddedRank::MakeReplica(const v1::JoinResponse& joined) {
  std::string text = joined.SerializeAsString();
  const Order order = {.what = Order::What::kMakeReplica, .bytes = text.size()};
  RETURN_IF_ERROR(
      orders_.Lead(order, [&] { return MakeOwnReplica(std::move(text)); }));
  return replica_->Fragments();
}

absl::Status EmbeddedRank::Save(TrainerState& state) {
  return orders_.Lead({.what = Order::What::kSave},
                      [&] { return ReadParameters(state.parameters); });
}

absl::Status EmbeddedRank::BeginStep(uint64_t run_step) {
  return orders_.Lead({.what = Order::What::kStep, .run_step = run_step},
                      [] { return absl::OkStatus(); });
}

absl::StatusOr<InnerStepResult> EmbeddedRank::Step(uint64_t /*run_step*/) {
  return absl::UnimplementedError("the training loop makes the steps");
}

void EmbeddedRank::Fail(const absl::Status& status) {
  orders_.Fail(status).IgnoreError();
}

absl::Status EmbeddedRank::Follow(
    absl::FunctionRef<absl::Status(uint64_t run_step)> train,
    absl::FunctionRef<absl::Status()> free, absl::FunctionRef<void()> saved) {
  return orders_.Follow([&](const Order& order) -> absl::Status {
    std::vector<float> none;
    if (!order.is_for_replica()) RETURN_IF_ERROR(free());
    switch (order.what) {
      case Order::What::kShareParameters:
        return WriteParameters({});
      case Order::What::kMakeReplica:
        return MakeOwnReplica(std::string(order.bytes, 0));
      case Order::What::kStep:
        return train(order.run_step);
      case Order::What::kSave:
        RETURN_IF_ERROR(ReadParameters(none));
        saved();
        return absl::OkStatus();
      default:
        return replica_->Follow(order);
    }
  });
}

absl::Status EmbeddedRank::WriteParameters(std::vector<float> parameters) {
  parameters.resize(static_cast<size_t>(layout_.size));
  RETURN_IF_ERROR(
      communicator()->Broadcast(0, AsBytes(absl::MakeSpan(parameters))));
  RETURN_IF_ERROR(tensors_->WriteAll(parameters));
  if (replica_ == nullptr) parameters_ = std::move(parameters);
  return absl::OkStatus();
}

absl::Status EmbeddedRank::ReadParameters(std::vector<float>& parameters) {
  // Other ranks may lack the memory for the whole model.
  std::vector<Slices> held(size());
  held[0] = Slices{{0, layout_.size}};
  if (rank() == 0) parameters.resize(static_cast<size_t>(layout_.size));
  RETURN_IF_ERROR(tensors_->AwaitTraining());
  return TensorExchange(rank(), held, trained_)
      .Fetch(*tensors_, communicator(), absl::MakeSpan(parameters));
}

absl::Status EmbeddedRank::MakeOwnReplica(std::string text) {
  RETURN_IF_ERROR(
      communicator()->Broadcast(0, absl::MakeSpan(&text[0], text.size())));
  v1::JoinResponse joined;
  if (!joined.ParseFromString(text)) {
    return absl::DataLossError("rank 0's description of the run is damaged");
  }
  ASSIGN_OR_RETURN(const FragmentMap map,
                   FragmentMap::Create(layout_, joined.plan()));
  ReplicaRank::Options options{
      .map = map,
      .replica = MakeReplicaOptions(joined.config().synchronization()),
      .make_part =
          [&](uint32_t fragment, const FragmentShare& share,
              const ReplicaOptions& part_options, const float* /*master*/) {
            return MakePart(map, fragment, share, part_options);
          },
      .masters =
          [this](bool) {
            // An error of the device is reported again by the next operation.
            tensors_->AwaitTraining().IgnoreError();
            return tensors_->memory();
          },
      .orders = &orders_};
  for (int other = 0; other < size(); ++other) {
    options.shards.push_back(Shard(other));
    options.mixes_ranks |= !Subtract({Shard(other)}, trained_[other]).empty();
  }
  ASSIGN_OR_RETURN(replica_, ReplicaRank::Create(std::move(options)));
  parameters_ = {};
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<FragmentPart>> EmbeddedRank::MakePart(
    const FragmentMap& map, uint32_t fragment, const FragmentShare& share,
    const ReplicaOptions& options) {
  std::vector<Slices> held;
  for (int other = 0; other < size(); ++other) {
    held.push_back(HeldSlices(map, fragment, Shard(other)));
  }
  FragmentShare own = share;
  own.shard_size = share.held.size();
  if (auto segments = tensors_->DeviceSegments(held[rank()]);
      segments.has_value() && size() == 1) {
    own.segments = *std::move(segments);
    ASSIGN_OR_RETURN(PartDevice* const parts, tensors_->device()->Parts());
    return MakeDeviceFragmentPart(own, options, tensors_->memory(), parts);
  }
  std::vector<float> anchor;
  for (const Slice& slice : held[rank()]) {
    anchor.insert(anchor.end(), parameters_.begin() + slice.begin,
                  parameters_.begin() + slice.end);
  }
  MasterCopy copy = [this, exchange = TensorExchange(rank(), held, trained_)](
                        float* /*master*/, bool to_master,
                        absl::Span<float> values) -> absl::Status {
    if (to_master) return exchange.Bring(values, communicator(), *tensors_);
    RETURN_IF_ERROR(tensors_->AwaitTraining());
    return exchange.Fetch(*tensors_, communicator(), values);
  };
  own.segments = {{.size = anchor.size()}};
  return MakeHostFragmentPart(own, options, anchor.data(), &snapshots_,
                              std::move(copy));
}

}  // namespace causeway
