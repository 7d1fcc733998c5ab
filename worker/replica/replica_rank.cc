// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/replica/replica_rank.h"

#include <algorithm>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/as_bytes.h"
#include "common/status_macros.h"
#include "common/thread_priority.h"
#include "glog/logging.h"
#include "quantization/codec.h"
#include "quantization/strips/layout.h"

namespace causeway {
// What rank 0 broadcasts.
struct ReplicaRank::Order {
  enum class What : uint64_t {
    kBeginContribution,
    // The encodings go to rank 0.
    kCollect,
    kEndContribution,
    kFinishUpdate,
    kReplaceAnchor,
    kSetAnchor,
    kReadAnchor,
    kEnd,
  };
  What what = What::kEnd;
  uint64_t fragment = 0;
  // Of kBeginContribution: of the anchor, and which snapshot it is.
  uint64_t version = 0;
  uint64_t snapshot = 0;
  // Of kEndContribution.
  uint64_t merged = 0;
};

// Rank 0's view. Calls from two threads are for the parts to keep apart.
class ReplicaRank::Fragment : public FragmentReplica {
 public:
  using What = Order::What;

  Fragment(ReplicaRank* rank, uint32_t fragment, const ReplicaHooks* hooks)
      : rank_(*rank),
        fragment_(fragment),
        part_(rank->parts_[fragment]),
        hooks_(hooks),
        reader_(NewEncodingReader(downlink(), size())) {}

  uint64_t size() const override {
    return static_cast<uint64_t>(part_.shares[0].fragment_size);
  }

  absl::Status TakeSnapshot(bool eager) override {
    return hooks_->take_snapshot(fragment_, eager);
  }
  absl::Status Apply(const UpdateUse& use) override {
    return hooks_->apply(fragment_, use);
  }

  absl::Status SetAnchor(absl::Span<const float> values) override {
    return Lead({.what = What::kSetAnchor},
                [&] { return rank_.SetAnchor(part_, values); });
  }
  absl::Status ReadAnchor(absl::Span<float> values) override {
    return Lead({.what = What::kReadAnchor}, [&]() -> absl::Status {
      std::vector<float> own(rank_.share(part_).held.size());
      RETURN_IF_ERROR(part_.part->ReadAnchor(absl::MakeSpan(own)));
      return rank_.ExchangeOf(part_).GatherHeld(own, values);
    });
  }

  absl::Status BeginContribution(uint64_t version) override {
    collected_ = {};
    uint64_t snapshot;
    {
      absl::MutexLock lock(&rank_.mu_);
      snapshot = rank_.snapshots_[fragment_];
    }
    return Lead({.what = What::kBeginContribution,
                 .version = version,
                 .snapshot = snapshot},
                [&] { return rank_.BeginContribution(part_, version); });
  }

  // The first strips are those of rank 0: while they are encoded and sent, the
  // other ranks encode theirs.
  absl::StatusOr<EncodedBytes> Encode(uint64_t bytes,
                                      absl::Span<char> buffer) override {
    if (collected_.complete) return collected_;
    const uint64_t own = MaxEncodedBytes(rank_.options_.replica.uplink,
                                         part_.shares[0].encoded.size());
    ASSIGN_OR_RETURN(EncodedBytes ready,
                     part_.part->Encode(bytes, buffer.subspan(0, own)));
    const bool is_all =
        part_.shares[0].encoded.size() == part_.shares[0].fragment_size;
    if (!ready.complete || is_all) return ready;
    if (ready.ready < bytes) {
      RETURN_IF_ERROR(Lead({.what = What::kCollect}, [&]() -> absl::Status {
        ASSIGN_OR_RETURN(
            const uint64_t others,
            rank_.ExchangeOf(part_).GatherEncoded(buffer.subspan(ready.ready)));
        collected_ = {.ready = ready.ready + others, .complete = true};
        return absl::OkStatus();
      }));
      return collected_;
    }
    return EncodedBytes{.ready = ready.ready};
  }

  absl::Status EndContribution(bool merged) override {
    return Lead({.what = What::kEndContribution, .merged = merged},
                [&] { return part_.part->EndContribution(merged); });
  }

  absl::Status Decode(absl::string_view received) override {
    RETURN_IF_ERROR(reader_.Read(received.substr(reader_.bytes())));
    if (part_.shares[0].held.size() == 0) return absl::OkStatus();
    return part_.part->Decode(StripsOf(part_.shares[0], received));
  }

  absl::StatusOr<std::string> FinishUpdate(
      absl::string_view received) override {
    RETURN_IF_ERROR(Decode(received));
    RETURN_IF_ERROR(reader_.CheckComplete());
    std::vector<absl::string_view> strips;
    for (const FragmentShare& share : part_.shares) {
      strips.push_back(StripsOf(share, received));
    }
    std::string digest;
    RETURN_IF_ERROR(Lead({.what = What::kFinishUpdate}, [&]() -> absl::Status {
      ASSIGN_OR_RETURN(digest, rank_.FinishUpdate(part_, strips));
      return absl::OkStatus();
    }));
    RETURN_IF_ERROR(DropUpdate());
    return digest;
  }

  absl::Status DropUpdate() override {
    reader_ = NewEncodingReader(downlink(), size());
    // What has been finished stays.
    return part_.part->DropUpdate();
  }

  absl::Status ReplaceAnchor(absl::Span<const float> values) override {
    return Lead({.what = What::kReplaceAnchor},
                [&] { return rank_.ReplaceAnchor(part_, values); });
  }

 private:
  const CodecSpec& downlink() const { return rank_.options_.replica.downlink; }

  absl::Status Lead(Order order, absl::FunctionRef<absl::Status()> work) {
    order.fragment = fragment_;
    return rank_.Lead(order, work);
  }

  // What is there of the strips that have values which a rank holds.
  absl::string_view StripsOf(const FragmentShare& share,
                             absl::string_view received) const {
    const uint64_t first = share.held.begin / kStripValues;
    const uint64_t end =
        std::min(StripCount(share.held.end), reader_.complete());
    if (share.held.size() == 0 || first >= end) return absl::string_view();
    const char* const begin = reader_.Strip(received, first).data();
    const absl::string_view last = reader_.Strip(received, end - 1);
    return absl::string_view(begin, last.data() + last.size() - begin);
  }

  ReplicaRank& rank_;
  const uint32_t fragment_;
  Part& part_;
  const ReplicaHooks* const hooks_;
  // Once the other ranks' encodings are there.
  EncodedBytes collected_;
  // Finds the strips of the update that comes in.
  EncodingReader reader_;
};

absl::StatusOr<std::unique_ptr<ReplicaRank>> ReplicaRank::Create(
    Options options, const float* master) {
  auto rank = absl::WrapUnique(new ReplicaRank(std::move(options)));
  const Options& own = rank->options_;
  for (uint32_t fragment = 0; fragment < own.map.fragments(); ++fragment) {
    Part& part = rank->parts_.emplace_back();
    ASSIGN_OR_RETURN(part.shares, ShareFragment(own.map, fragment, own.shards));
    ASSIGN_OR_RETURN(part.part, own.make_part(fragment, rank->share(part),
                                              own.replica, master));
  }
  if (rank->rank() > 0) {
    rank->thread_ = std::thread([rank = rank.get()] { rank->Serve(); });
  }
  return rank;
}

ReplicaRank::ReplicaRank(Options options)
    : options_(std::move(options)), snapshots_(options_.map.fragments()) {}

ReplicaRank::~ReplicaRank() {
  if (rank() == 0) {
    const absl::Status ended =
        Lead({.what = Order::What::kEnd}, [] { return absl::OkStatus(); });
    VLOG(1) << "the replica ends: " << ended;
  }
  if (thread_.joinable()) thread_.join();
}

std::vector<std::unique_ptr<FragmentReplica>> ReplicaRank::Fragments(
    ReplicaHooks hooks) {
  CHECK_EQ(rank(), 0);
  hooks_ = std::move(hooks);
  std::vector<std::unique_ptr<FragmentReplica>> fragments;
  for (uint32_t fragment = 0; fragment < parts_.size(); ++fragment) {
    fragments.push_back(std::make_unique<Fragment>(this, fragment, &hooks_));
  }
  return fragments;
}

absl::Status ReplicaRank::TakeSnapshot(uint32_t fragment, bool eager,
                                       float* master) {
  RETURN_IF_ERROR(parts_[fragment].part->TakeSnapshot(eager, master));
  absl::MutexLock lock(&mu_);
  ++snapshots_[fragment];
  return absl::OkStatus();
}

absl::Status ReplicaRank::Apply(uint32_t fragment, const UpdateUse& use,
                                float* master) {
  return parts_[fragment].part->Apply(use, master);
}

void ReplicaRank::Abort(const absl::Status& reason) {
  {
    absl::MutexLock lock(&mu_);
    if (abort_reason_.ok()) abort_reason_ = reason;
  }
  options_.communicator->Abort(reason);
}

absl::Status ReplicaRank::Explain(absl::Status status) {
  if (status.ok()) return status;
  absl::MutexLock lock(&mu_);
  return abort_reason_.ok() ? status : abort_reason_;
}

absl::Status ReplicaRank::Lead(Order order,
                               absl::FunctionRef<absl::Status()> work) {
  absl::MutexLock lock(&work_mu_);
  RETURN_IF_ERROR(failure_);
  absl::Status status =
      options_.communicator->Broadcast(0, AsBytes(absl::MakeSpan(&order, 1)))
          .Wait();
  if (status.ok()) status = work();
  failure_ = Explain(std::move(status));
  if (!failure_.ok()) options_.communicator->Abort(failure_);
  return failure_;
}

void ReplicaRank::Serve() {
  const absl::Status lowered = LowerThreadPriority();
  LOG_IF(WARNING, !lowered.ok())
      << "rank " << rank() << " encodes and decodes at the same priority as it "
      << "trains: " << lowered.message();
  absl::StatusOr<bool> goes_on = true;
  while (goes_on.ok() && *goes_on) goes_on = ServeOne();
  if (goes_on.ok()) return;
  LOG(WARNING) << "rank " << rank() << " has no part in the outer loop any "
               << "more: " << goes_on.status().message();
  options_.communicator->Abort(goes_on.status());
}

absl::StatusOr<bool> ReplicaRank::ServeOne() {
  Order order;
  RETURN_IF_ERROR(
      options_.communicator->Broadcast(0, AsBytes(absl::MakeSpan(&order, 1)))
          .Wait());
  if (order.what == Order::What::kEnd) return false;
  Part& part = parts_[order.fragment];
  switch (order.what) {
    case Order::What::kBeginContribution:
      RETURN_IF_ERROR(AwaitSnapshot(order));
      RETURN_IF_ERROR(BeginContribution(part, order.version));
      RETURN_IF_ERROR(EncodeOwn(part));
      break;
    case Order::What::kCollect:
      RETURN_IF_ERROR(ExchangeOf(part).SendEncoded(
          absl::string_view(part.encoded.get(), part.encoded_bytes.ready)));
      break;
    case Order::What::kEndContribution:
      RETURN_IF_ERROR(part.part->EndContribution(order.merged != 0));
      part.encoded.reset();
      break;
    case Order::What::kFinishUpdate:
      RETURN_IF_ERROR(FinishUpdate(part, {}).status());
      break;
    case Order::What::kReplaceAnchor:
      RETURN_IF_ERROR(ReplaceAnchor(part, {}));
      break;
    case Order::What::kSetAnchor:
      RETURN_IF_ERROR(SetAnchor(part, {}));
      break;
    case Order::What::kReadAnchor: {
      std::vector<float> own(share(part).held.size());
      RETURN_IF_ERROR(part.part->ReadAnchor(absl::MakeSpan(own)));
      RETURN_IF_ERROR(ExchangeOf(part).GatherHeld(own, {}));
      break;
    }
    case Order::What::kEnd:
      break;
  }
  return true;
}

absl::Status ReplicaRank::AwaitSnapshot(const Order& order) {
  absl::MutexLock lock(&mu_);
  const auto taken = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return !abort_reason_.ok() || snapshots_[order.fragment] >= order.snapshot;
  };
  mu_.Await(absl::Condition(&taken));
  return abort_reason_;
}

absl::Status ReplicaRank::BeginContribution(Part& part, uint64_t version) {
  RETURN_IF_ERROR(part.part->BeginContribution(version));
  return ExchangeOf(part).ExchangeEdges(*part.part);
}

absl::Status ReplicaRank::EncodeOwn(Part& part) {
  const uint64_t most =
      MaxEncodedBytes(options_.replica.uplink, share(part).encoded.size());
  // Not cleared: every byte that is read has been written.
  part.encoded.reset(new char[most]);
  ASSIGN_OR_RETURN(
      part.encoded_bytes,
      part.part->Encode(most, absl::MakeSpan(part.encoded.get(), most)));
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReplicaRank::FinishUpdate(
    Part& part, absl::Span<const absl::string_view> strips) {
  const PartExchange exchange = ExchangeOf(part);
  ASSIGN_OR_RETURN(const std::string received, exchange.ScatterStrips(strips));
  // Rank 0 has decoded them as they came.
  if (rank() > 0 && share(part).held.size() > 0) {
    RETURN_IF_ERROR(part.part->Decode(received));
  }
  RETURN_IF_ERROR(part.part->FinishUpdate());
  return exchange.DigestNewAnchor(*part.part);
}

absl::Status ReplicaRank::ReplaceAnchor(Part& part,
                                        absl::Span<const float> values) {
  ASSIGN_OR_RETURN(const std::vector<float> own,
                   ExchangeOf(part).ScatterHeld(values));
  RETURN_IF_ERROR(part.part->ReplaceAnchor(own));
  return ExchangeOf(part).AwaitOthers();
}

absl::Status ReplicaRank::SetAnchor(Part& part,
                                    absl::Span<const float> values) {
  ASSIGN_OR_RETURN(const std::vector<float> own,
                   ExchangeOf(part).ScatterHeld(values));
  RETURN_IF_ERROR(part.part->SetAnchor(own));
  return ExchangeOf(part).AwaitOthers();
}

}  // namespace causeway
