// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/replica/part_exchange.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/as_bytes.h"
#include "common/checksum.h"
#include "common/status_macros.h"
#include "glog/logging.h"

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
    absl::string_view own, absl::Span<char> buffer) const {
  // The sizes are small enough for exact doubles.
  std::vector<double> sizes(ranks());
  sizes[rank()] = static_cast<double>(own.size());
  RETURN_IF_ERROR(communicator_->AllReduce(absl::MakeSpan(sizes)));
  std::vector<absl::Span<char>> parts(ranks());
  uint64_t received = 0;
  for (int other = 1; rank() == 0 && other < ranks(); ++other) {
    const auto size = static_cast<uint64_t>(sizes[other]);
    if (size > buffer.size() - received) {
      return absl::InternalError(absl::StrCat("rank ", other, " has encoded ",
                                              size, " bytes, too many"));
    }
    parts[other] = buffer.subspan(received, size);
    received += size;
  }
  RETURN_IF_ERROR(Gather(own, std::move(parts)));
  return received;
}

absl::StatusOr<std::string> PartExchange::ScatterStrips(
    absl::Span<const absl::string_view> strips) const {
  std::vector<uint64_t> sizes(ranks());
  for (size_t other = 0; other < strips.size(); ++other) {
    sizes[other] = strips[other].size();
  }
  RETURN_IF_ERROR(communicator_->Broadcast(0, AsBytes(absl::MakeSpan(sizes))));
  std::vector<absl::Span<const char>> parts(strips.begin(), strips.end());
  std::string received(rank() > 0 ? sizes[rank()] : 0, '\0');
  RETURN_IF_ERROR(Scatter(std::move(parts), absl::MakeSpan(received)));
  return received;
}

absl::StatusOr<std::string> PartExchange::DigestNewAnchor(
    FragmentPart& part) const {
  Digest128Stream digest;
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
  std::vector<absl::Span<const char>> parts;
  if (rank() == 0) {
    for (const FragmentShare& share : shares_) {
      parts.push_back(AsBytes(Of(values, share.held)));
    }
    const absl::Span<const float> kept = Of(values, own_share().held);
    own.assign(kept.begin(), kept.end());
  }
  RETURN_IF_ERROR(Scatter(std::move(parts), AsBytes(absl::MakeSpan(own))));
  return own;
}

absl::Status PartExchange::GatherHeld(absl::Span<const float> own,
                                      absl::Span<float> values) const {
  std::vector<absl::Span<char>> parts;
  if (rank() == 0) {
    for (const FragmentShare& share : shares_) {
      parts.push_back(AsBytes(values.subspan(
          share.held.begin, static_cast<size_t>(share.held.size()))));
    }
    std::copy(own.begin(), own.end(), values.begin());
  }
  const absl::Span<const char> bytes = AsBytes(own);
  return Gather(absl::string_view(bytes.data(), bytes.size()),
                std::move(parts));
}

absl::Status PartExchange::Scatter(std::vector<absl::Span<const char>> parts,
                                   absl::Span<char> own) const {
  if (rank() == 0) return communicator_->AllToAll(std::move(parts), {});
  return communicator_->AllToAll({}, {own});
}

absl::Status PartExchange::Gather(absl::string_view own,
                                  std::vector<absl::Span<char>> parts) const {
  if (rank() == 0) return communicator_->AllToAll({}, std::move(parts));
  return communicator_->AllToAll({own}, {});
}

absl::Status PartExchange::AwaitOthers() const {
  return communicator_->AllToAll({}, {});
}

}  // namespace causeway
