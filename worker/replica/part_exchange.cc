// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/replica/part_exchange.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/as_bytes.h"
#include "common/status_macros.h"
#include "glog/logging.h"
#include "worker/replica/anchor_digest.h"

namespace causeway {
namespace {

absl::Span<const float> Of(absl::Span<const float> values, const Slice& slice) {
  return values.subspan(slice.begin, slice.size());
}

}  // namespace

absl::Status PartExchange::ExchangeEdges(FragmentPart& part) const {
  const FragmentShare& own = own_share();
  std::vector<float> out(own.edge_out());
  std::vector<float> in(own.edge_in());
  std::vector<absl::Span<const char>> to(ranks());
  std::vector<absl::Span<char>> from(ranks());
  int64_t moved = 0;
  int64_t received = 0;
  for (int other = 0; other < ranks(); ++other) {
    const FragmentShare& theirs = shares_[other];
    const int64_t edge = theirs.edge_out();
    moved += edge;
    if (edge == 0 || EncoderOf(shares_, theirs.held.begin) != rank()) continue;
    from[other] = AsBytes(absl::MakeSpan(in).subspan(received, edge));
    received += edge;
  }
  // All ranks know whether there is anything to move.
  if (moved == 0) return absl::OkStatus();
  if (!out.empty()) {
    RETURN_IF_ERROR(part.TakeEdge(absl::MakeSpan(out)));
    to[EncoderOf(shares_, own.held.begin)] = AsBytes(absl::MakeConstSpan(out));
  }
  RETURN_IF_ERROR(communicator_->AllToAll(std::move(to), std::move(from)));
  CHECK_EQ(received, own.edge_in());
  return in.empty() ? absl::OkStatus() : part.AddEdge(in);
}

absl::StatusOr<uint64_t> PartExchange::GatherEncoded(
    absl::Span<char> buffer) const {
  // The sizes are small enough for exact doubles.
  std::vector<double> sizes(ranks());
  RETURN_IF_ERROR(communicator_->AllReduce(absl::MakeSpan(sizes)));
  std::vector<absl::Span<char>> from(ranks());
  uint64_t received = 0;
  for (int other = 1; other < ranks(); ++other) {
    const auto size = static_cast<uint64_t>(sizes[other]);
    if (size > buffer.size() - received) {
      return absl::InternalError(absl::StrCat("rank ", other, " has encoded ",
                                              size, " bytes, too many"));
    }
    from[other] = buffer.subspan(received, size);
    received += size;
  }
  RETURN_IF_ERROR(communicator_->AllToAll({}, std::move(from)));
  return received;
}

absl::Status PartExchange::SendEncoded(absl::string_view encoded) const {
  std::vector<double> sizes(ranks());
  sizes[rank()] = static_cast<double>(encoded.size());
  RETURN_IF_ERROR(communicator_->AllReduce(absl::MakeSpan(sizes)));
  std::vector<absl::Span<const char>> to(ranks());
  to[0] = absl::MakeConstSpan(encoded.data(), encoded.size());
  return communicator_->AllToAll(std::move(to), {});
}

absl::StatusOr<std::string> PartExchange::ScatterStrips(
    absl::Span<const absl::string_view> strips) const {
  std::vector<uint64_t> sizes(ranks());
  for (size_t other = 0; other < strips.size(); ++other) {
    sizes[other] = strips[other].size();
  }
  RETURN_IF_ERROR(communicator_->Broadcast(0, AsBytes(absl::MakeSpan(sizes))));
  std::vector<absl::Span<const char>> to(ranks());
  std::vector<absl::Span<char>> from(ranks());
  std::string received;
  if (rank() > 0) {
    received.resize(sizes[rank()]);
    from[0] = absl::MakeSpan(&received[0], received.size());
  } else {
    for (int other = 1; other < ranks(); ++other) {
      to[other] = absl::MakeConstSpan(strips[other].data(), sizes[other]);
    }
  }
  RETURN_IF_ERROR(communicator_->AllToAll(std::move(to), std::move(from)));
  return received;
}

absl::StatusOr<std::string> PartExchange::DigestNewAnchor(
    FragmentPart& part) const {
  AnchorDigest digest;
  for (int turn = 0; turn < ranks(); ++turn) {
    if (shares_[turn].held.size() == 0) continue;
    if (turn == rank()) RETURN_IF_ERROR(part.Digest(digest));
    std::string state = digest.Save();
    RETURN_IF_ERROR(communicator_->Broadcast(
        turn, absl::MakeSpan(&state[0], state.size())));
    digest.Restore(state);
  }
  return digest.Finish();
}

absl::StatusOr<std::vector<float>> PartExchange::ScatterHeld(
    absl::Span<const float> values) const {
  std::vector<float> own(own_share().held.size());
  std::vector<absl::Span<const char>> to(ranks());
  std::vector<absl::Span<char>> from(ranks());
  if (rank() > 0) {
    from[0] = AsBytes(absl::MakeSpan(own));
  } else {
    for (int other = 1; other < ranks(); ++other) {
      to[other] = AsBytes(Of(values, shares_[other].held));
    }
    const absl::Span<const float> kept = Of(values, own_share().held);
    own.assign(kept.begin(), kept.end());
  }
  RETURN_IF_ERROR(communicator_->AllToAll(std::move(to), std::move(from)));
  return own;
}

absl::Status PartExchange::GatherHeld(absl::Span<const float> own,
                                      absl::Span<float> values) const {
  std::vector<absl::Span<const char>> to(ranks());
  std::vector<absl::Span<char>> from(ranks());
  if (rank() > 0) {
    to[0] = AsBytes(own);
  } else {
    for (int other = 1; other < ranks(); ++other) {
      const Slice& held = shares_[other].held;
      from[other] = AsBytes(values.subspan(held.begin, held.size()));
    }
    std::copy(own.begin(), own.end(), values.begin());
  }
  return communicator_->AllToAll(std::move(to), std::move(from));
}

absl::Status PartExchange::AwaitOthers() const {
  return communicator_->AllToAll({}, {});
}

}  // namespace causeway
