// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/collective/message_collectives.h"

#include <algorithm>

#include "common/as_bytes.h"
#include "common/status_macros.h"
#include "quantization/formats/dense_kernels_cpu.h"

namespace causeway {
namespace {

// A reduce-scatter receives in pieces, so that it needs little memory and adds
// one piece while the next arrives.
constexpr int64_t kPieceValues = 256 << 10;
constexpr int kPiecesAhead = 2;

absl::Span<float> Part(absl::Span<float> values, const Slice& shard) {
  return values.subspan(shard.begin, shard.size());
}

absl::Span<float> Piece(absl::Span<float> shard, int64_t piece) {
  return shard.subspan(piece * kPieceValues, kPieceValues);
}

int64_t Pieces(absl::Span<float> shard) {
  return (static_cast<int64_t>(shard.size()) + kPieceValues - 1) / kPieceValues;
}

// Returns the place of one of a rank's pieces in transit.
int64_t Slot(int peer, int64_t piece) {
  return peer * kPiecesAhead + piece % kPiecesAhead;
}

void Add(absl::Span<const float> values, absl::Span<float> sum) {
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += values[i];
}

// Receives data, and counts its bytes.
std::unique_ptr<Transfer> ReceiveData(int peer, int64_t message,
                                      absl::Span<char> bytes,
                                      OperationMessages& messages) {
  messages.times(peer).bytes += static_cast<int64_t>(bytes.size());
  return messages.Receive(peer, message, bytes);
}

}  // namespace

absl::Span<float> MessageCollectives::Staging(int peer, int64_t piece,
                                              size_t values) {
  return absl::MakeSpan(staging_).subspan(Slot(peer, piece) * kPieceValues,
                                          values);
}

absl::Span<char> MessageCollectives::StagedBytes(int peer, int64_t piece,
                                                 size_t values) {
  return AsBytes(Staging(peer, piece, values))
      .subspan(0, values * (rounds_ ? kRoundedBytes : sizeof(float)));
}

void MessageCollectives::BeginRounded(absl::Span<const float> values) {
  values_ = values.data();
  if (rounded_.size() < values.size() * kRoundedBytes) {
    rounded_.resize(values.size() * kRoundedBytes);
  }
}

absl::Span<char> MessageCollectives::Rounded(absl::Span<const float> part) {
  if (part.empty()) return {};
  return absl::MakeSpan(rounded_).subspan(
      static_cast<size_t>(part.data() - values_) * kRoundedBytes,
      part.size() * kRoundedBytes);
}

void MessageCollectives::Restore(absl::Span<float> part) {
  DecodeBf16(Rounded(part).data(), part.size(), part.data());
}

absl::Span<const char> MessageCollectives::Outgoing(absl::Span<float> part) {
  if (!rounds_) return AsBytes(part);
  const absl::Span<char> rounded = Rounded(part);
  EncodeBf16(part.data(), part.size(), rounded.data());
  return rounded;
}

absl::Span<char> MessageCollectives::Incoming(absl::Span<float> part) {
  return rounds_ ? Rounded(part) : AsBytes(part);
}

absl::Status MessageCollectives::ReduceScatter(absl::Span<float> values,
                                               absl::Span<const Slice> shards,
                                               OperationMessages& messages) {
  if (rounds_) BeginRounded(values);
  const absl::Span<float> own = Part(values, shards[messages.rank()]);
  messages.ForPeers([&](int peer) {
    const absl::Span<float> theirs = Part(values, shards[peer]);
    for (int64_t piece = 0; piece < Pieces(theirs); ++piece) {
      messages.Send(peer, 1 + piece, Outgoing(Piece(theirs, piece)));
    }
  });
  const int size = messages.size();
  staging_.resize(size > 1 ? size * kPiecesAhead * kPieceValues : 0);
  std::vector<std::unique_ptr<Transfer>> receives(size * kPiecesAhead);
  const auto receive = [&](int64_t piece) {
    if (piece >= Pieces(own)) return;
    messages.ForPeers([&](int peer) {
      receives[Slot(peer, piece)] = ReceiveData(
          peer, 1 + piece, StagedBytes(peer, piece, Piece(own, piece).size()),
          messages);
    });
  };
  for (int64_t piece = 0; piece < kPiecesAhead; ++piece) receive(piece);
  for (int64_t piece = 0; piece < Pieces(own); ++piece) {
    RETURN_IF_ERROR(messages.ForEachPeer([&](int peer) {
      return messages.AwaitData(receives[Slot(peer, piece)].get(), peer);
    }));
    AddPiece(piece, messages, Piece(own, piece));
    receive(piece + kPiecesAhead);
  }
  return absl::OkStatus();
}

void MessageCollectives::AddPiece(int64_t piece,
                                  const OperationMessages& messages,
                                  absl::Span<float> own) {
  if (messages.size() == 1) return;
  if (rounds_) return AddRoundedPiece(piece, messages, own);
  const auto contribution = [&](int peer) {
    return peer == messages.rank() ? own : Staging(peer, piece, own.size());
  };
  const absl::Span<float> sum = contribution(0);
  for (int peer = 1; peer < messages.size(); ++peer) {
    Add(contribution(peer), sum);
  }
  if (messages.rank() != 0) std::copy(sum.begin(), sum.end(), own.begin());
}

void MessageCollectives::AddRoundedPiece(int64_t piece,
                                         const OperationMessages& messages,
                                         absl::Span<float> own) {
  // -0 plus any value is that value.
  sum_.assign(own.size(), -0.0f);
  for (int peer = 0; peer < messages.size(); ++peer) {
    if (peer == messages.rank()) {
      Add(own, absl::MakeSpan(sum_));
    } else {
      DecodeAccumulateBf16(StagedBytes(peer, piece, own.size()).data(),
                           own.size(), 1, sum_.data());
    }
  }
  std::copy(sum_.begin(), sum_.end(), own.begin());
}

absl::Status MessageCollectives::AllGather(absl::Span<float> values,
                                           absl::Span<const Slice> shards,
                                           OperationMessages& messages) {
  if (rounds_) BeginRounded(values);
  std::vector<std::unique_ptr<Transfer>> receives(messages.size());
  messages.ForPeers([&](int peer) {
    receives[peer] =
        ReceiveData(peer, 1, Incoming(Part(values, shards[peer])), messages);
  });
  const absl::Span<float> own = Part(values, shards[messages.rank()]);
  const absl::Span<const char> sent = Outgoing(own);
  messages.ForPeers([&](int peer) { messages.Send(peer, 1, sent); });
  if (rounds_) Restore(own);
  return messages.ForEachPeer([&](int peer) -> absl::Status {
    RETURN_IF_ERROR(messages.AwaitData(receives[peer].get(), peer));
    if (rounds_) Restore(Part(values, shards[peer]));
    return absl::OkStatus();
  });
}

absl::Status MessageCollectives::AllReduce(absl::Span<double> values,
                                           OperationMessages& messages) {
  gathered_.resize(values.size() * messages.size());
  const auto contribution = [&](int peer) {
    return absl::MakeSpan(gathered_).subspan(peer * values.size(),
                                             values.size());
  };
  const absl::Span<double> own = contribution(messages.rank());
  std::copy(values.begin(), values.end(), own.begin());
  std::vector<absl::Span<const char>> to(messages.size(), AsBytes(own));
  std::vector<absl::Span<char>> from(messages.size());
  messages.ForPeers(
      [&](int peer) { from[peer] = AsBytes(contribution(peer)); });
  RETURN_IF_ERROR(AllToAll(to, from, messages));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = 0;
    for (int peer = 0; peer < messages.size(); ++peer) {
      values[i] += contribution(peer)[i];
    }
  }
  return absl::OkStatus();
}

absl::Status MessageCollectives::Broadcast(int root, absl::Span<char> bytes,
                                           OperationMessages& messages) {
  if (messages.rank() == root) {
    messages.ForPeers([&](int peer) { messages.Send(peer, 1, bytes); });
    return absl::OkStatus();
  }
  const std::unique_ptr<Transfer> receive =
      ReceiveData(root, 1, bytes, messages);
  return messages.AwaitData(receive.get(), root);
}

absl::Status MessageCollectives::AllToAll(
    absl::Span<const absl::Span<const char>> to,
    absl::Span<const absl::Span<char>> from, OperationMessages& messages) {
  std::vector<std::unique_ptr<Transfer>> receives(messages.size());
  messages.ForPeers([&](int peer) {
    receives[peer] = ReceiveData(peer, 1, from[peer], messages);
    messages.Send(peer, 1, to[peer]);
  });
  return messages.ForEachPeer(
      [&](int peer) { return messages.AwaitData(receives[peer].get(), peer); });
}

}  // namespace causeway
