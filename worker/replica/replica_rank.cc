// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/replica/replica_rank.h"

#include <algorithm>
#include <utility>

#include "absl/memory/memory.h"
#include "common/status_macros.h"
#include "common/trace.h"
#include "glog/logging.h"
#include "quantization/codec.h"
#include "quantization/strips/layout.h"

namespace causeway {

// Rank 0's view of a fragment. The parts handle calls from two threads.
class ReplicaRank::Fragment : public FragmentReplica {
 public:
  using What = Order::What;

  Fragment(ReplicaRank* rank, uint32_t fragment)
      : rank_(*rank),
        fragment_(fragment),
        part_(rank->parts_[fragment]),
        reader_(NewEncodingReader(downlink(), size())) {}

  uint64_t size() const override {
    return static_cast<uint64_t>(part_.shares[0].fragment_size);
  }
  std::vector<uint64_t> rank_ends() const override {
    std::vector<uint64_t> ends;
    if (part_.shares.size() == 1 || rank_.options_.mixes_ranks) return ends;
    for (const FragmentShare& share : part_.shares) {
      ends.push_back(static_cast<uint64_t>(share.held.end));
    }
    return ends;
  }

  absl::Status TakeSnapshot() override {
    const TraceSpan span("snapshot", fragment_);
    return Lead({.what = What::kTakeSnapshot});
  }
  absl::Status Apply(bool includes_island) override {
    const TraceSpan span("apply", fragment_);
    return Lead({.what = What::kApply, .includes_island = includes_island});
  }

  absl::Status ReadAnchor(absl::Span<float> values) override {
    return Lead({.what = What::kReadAnchor}, {.anchor = values});
  }

  absl::Status BeginContribution(double ecq_bits) override {
    collected_ = {};
    return Lead({.what = What::kBeginContribution, .ecq_bits = ecq_bits});
  }

  // The first strips are rank 0's: while they are encoded and sent, the other
  // ranks encode theirs.
  absl::StatusOr<EncodedBytes> Encode(uint64_t bytes,
                                      absl::Span<char> buffer) override {
    if (collected_.complete) return collected_;
    const TraceSpan span("encode", fragment_);
    const uint64_t own = MaxEncodedBytes(rank_.options_.replica.uplink,
                                         part_.shares[0].encoded.size());
    ASSIGN_OR_RETURN(EncodedBytes ready,
                     part_.part->Encode(bytes, buffer.subspan(0, own)));
    const bool is_all =
        part_.shares[0].encoded.size() == part_.shares[0].fragment_size;
    if (!ready.complete || is_all) return ready;
    if (ready.ready < bytes) {
      uint64_t others = 0;
      RETURN_IF_ERROR(Lead(
          {.what = What::kCollect},
          {.encoded = buffer.subspan(ready.ready), .encoded_bytes = &others}));
      collected_ = {.ready = ready.ready + others, .complete = true};
      return collected_;
    }
    return EncodedBytes{.ready = ready.ready};
  }

  absl::Status EndContribution(bool merged) override {
    return Lead({.what = What::kEndContribution, .merged = merged});
  }

  absl::Status Decode(absl::string_view received) override {
    const TraceSpan span("decode", fragment_);
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
    const TraceSpan span("digest", fragment_);
    RETURN_IF_ERROR(Lead({.what = What::kFinishUpdate},
                         {.strips = strips, .digest = &digest}));
    RETURN_IF_ERROR(DropUpdate());
    return digest;
  }

  absl::Status DropUpdate() override {
    reader_ = NewEncodingReader(downlink(), size());
    // A finished update stays.
    return part_.part->DropUpdate();
  }

  absl::Status ReplaceAnchor(absl::Span<const float> values) override {
    return Lead({.what = What::kReplaceAnchor}, {.new_anchor = values});
  }

 private:
  const CodecSpec& downlink() const { return rank_.options_.replica.downlink; }

  absl::Status Lead(Order order, const Operands& operands = {}) {
    order.fragment = fragment_;
    return rank_.options_.orders->Lead(
        order, [&] { return rank_.CarryOut(order, operands); });
  }

  // Returns the received bytes of the strips that have values of `share`.
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
  // The whole contribution, once the other ranks' encodings are there.
  EncodedBytes collected_;
  // Finds the strips of the incoming update.
  EncodingReader reader_;
};

absl::StatusOr<std::unique_ptr<ReplicaRank>> ReplicaRank::Create(
    Options options) {
  auto rank = absl::WrapUnique(new ReplicaRank(std::move(options)));
  const Options& own = rank->options_;
  for (uint32_t fragment = 0; fragment < own.map.fragments(); ++fragment) {
    Part& part = rank->parts_.emplace_back();
    ASSIGN_OR_RETURN(part.shares, ShareFragment(own.map, fragment, own.shards));
    ASSIGN_OR_RETURN(part.part,
                     own.make_part(fragment, rank->share(part), own.replica,
                                   own.masters(/*changes=*/false)));
  }
  return rank;
}

std::vector<std::unique_ptr<FragmentReplica>> ReplicaRank::Fragments() {
  CHECK_EQ(rank(), 0);
  std::vector<std::unique_ptr<FragmentReplica>> fragments;
  for (uint32_t fragment = 0; fragment < parts_.size(); ++fragment) {
    fragments.push_back(std::make_unique<Fragment>(this, fragment));
  }
  return fragments;
}

absl::Status ReplicaRank::CarryOut(const Order& order,
                                   const Operands& operands) {
  Part& part = parts_[order.fragment];
  FragmentPart& own = *part.part;
  const PartExchange exchange = ExchangeOf(part);
  switch (order.what) {
    case Order::What::kTakeSnapshot:
      return own.TakeSnapshot(options_.masters(/*changes=*/false));
    case Order::What::kApply:
      return own.Apply(order.includes_island,
                       options_.masters(/*changes=*/true));
    case Order::What::kBeginContribution:
      RETURN_IF_ERROR(own.BeginContribution(order.ecq_bits));
      RETURN_IF_ERROR(exchange.ExchangeEdges(own));
      return rank() > 0 ? EncodeOwn(part) : absl::OkStatus();
    case Order::What::kCollect: {
      ASSIGN_OR_RETURN(
          const uint64_t others,
          exchange.GatherEncoded(
              absl::string_view(part.encoded.get(), part.encoded_bytes.ready),
              operands.encoded));
      if (operands.encoded_bytes != nullptr) *operands.encoded_bytes = others;
      return absl::OkStatus();
    }
    case Order::What::kEndContribution:
      part.encoded.reset();
      return own.EndContribution(order.merged);
    case Order::What::kFinishUpdate: {
      ASSIGN_OR_RETURN(const std::string received,
                       exchange.ScatterStrips(operands.strips));
      // Rank 0 has decoded its strips as they came.
      if (rank() > 0 && share(part).held.size() > 0) {
        RETURN_IF_ERROR(own.Decode(received));
      }
      RETURN_IF_ERROR(own.FinishUpdate());
      // The digest passes through all ranks, so that all are done.
      ASSIGN_OR_RETURN(std::string digest, exchange.DigestNewAnchor(own));
      if (operands.digest != nullptr) *operands.digest = std::move(digest);
      return absl::OkStatus();
    }
    case Order::What::kReplaceAnchor: {
      ASSIGN_OR_RETURN(const std::vector<float> held,
                       exchange.ScatterHeld(operands.new_anchor));
      RETURN_IF_ERROR(own.ReplaceAnchor(held));
      // The other ranks' training does not wait for their replica.
      return exchange.AwaitOthers();
    }
    case Order::What::kReadAnchor: {
      std::vector<float> held(share(part).held.size());
      RETURN_IF_ERROR(own.ReadAnchor(absl::MakeSpan(held)));
      return exchange.GatherHeld(held, operands.anchor);
    }
    default:
      LOG(FATAL) << "no order about a fragment";
  }
}

absl::Status ReplicaRank::EncodeOwn(Part& part) {
  const uint64_t most =
      MaxEncodedBytes(options_.replica.uplink, share(part).encoded.size());
  // The memory is not cleared: only bytes that have been written are read.
  part.encoded.reset(new char[most]);
  ASSIGN_OR_RETURN(
      part.encoded_bytes,
      part.part->Encode(most, absl::MakeSpan(part.encoded.get(), most)));
  return absl::OkStatus();
}

}  // namespace causeway
