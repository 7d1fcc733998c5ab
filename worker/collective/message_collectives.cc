// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/collective/message_collectives.h"

#include <algorithm>

#include "common/as_bytes.h"
#include "common/status_macros.h"
#include "glog/logging.h"

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
  CHECK_EQ(values.size(), sum.size());
  // A span's bounds checks would keep the compiler from using vectors.
  const float* const from = values.data();
  float* const to = sum.data();
  for (size_t i = 0; i < sum.size(); ++i) to[i] += from[i];
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

absl::Status MessageCollectives::ReduceScatter(absl::Span<float> values,
                                               absl::Span<const Slice> shards,
                                               OperationMessages& messages) {
  const absl::Span<float> own = Part(values, shards[messages.rank()]);
  messages.ForPeers([&](int peer) {
    const absl::Span<float> theirs = Part(values, shards[peer]);
    for (int64_t piece = 0; piece < Pieces(theirs); ++piece) {
      messages.Send(peer, 1 + piece, AsBytes(Piece(theirs, piece)));
    }
  });
  const int size = messages.size();
  staging_.resize(size > 1 ? size * kPiecesAhead * kPieceValues : 0);
  std::vector<std::unique_ptr<Transfer>> receives(size * kPiecesAhead);
  const auto receive = [&](int64_t piece) {
    if (piece >= Pieces(own)) return;
    messages.ForPeers([&](int peer) {
      receives[Slot(peer, piece)] = ReceiveData(
          peer, 1 + piece,
          AsBytes(Staging(peer, piece, Piece(own, piece).size())), messages);
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
  const auto contribution = [&](int peer) {
    return peer == messages.rank() ? own : Staging(peer, piece, own.size());
  };
  const absl::Span<float> sum = contribution(0);
  for (int peer = 1; peer < messages.size(); ++peer) {
    Add(contribution(peer), sum);
  }
  if (messages.rank() != 0) std::copy(sum.begin(), sum.end(), own.begin());
}

absl::Status MessageCollectives::AllGather(absl::Span<float> values,
                                           absl::Span<const Slice> shards,
                                           OperationMessages& messages) {
  std::vector<std::unique_ptr<Transfer>> receives(messages.size());
  messages.ForPeers([&](int peer) {
    receives[peer] =
        ReceiveData(peer, 1, AsBytes(Part(values, shards[peer])), messages);
  });
  const absl::Span<float> own = Part(values, shards[messages.rank()]);
  messages.ForPeers([&](int peer) { messages.Send(peer, 1, AsBytes(own)); });
  return messages.ForEachPeer(
      [&](int peer) { return messages.AwaitData(receives[peer].get(), peer); });
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
