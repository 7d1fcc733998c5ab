// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/embedding/tensor_exchange.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "common/as_bytes.h"
#include "common/status_macros.h"

namespace causeway {
namespace {

size_t CountValues(absl::Span<const Slice> slices) {
  int64_t values = 0;
  for (const Slice& slice : slices) values += slice.size();
  return static_cast<size_t>(values);
}

// Calls copy(slice, position) for each slice of `part`, until a call fails;
// `position` is the index of the slice's first value in `whole`, which contains
// `part`.
template <typename Copy>
absl::Status ForEach(absl::Span<const Slice> part,
                     absl::Span<const Slice> whole, Copy copy) {
  int64_t position = 0;
  auto outer = whole.begin();
  for (const Slice& slice : part) {
    for (; outer->end < slice.end; ++outer) position += outer->size();
    RETURN_IF_ERROR(copy(
        slice, static_cast<size_t>(position + slice.begin - outer->begin)));
  }
  return absl::OkStatus();
}

// Exchanges vectors between ranks, by rank; both sides know the sizes.
absl::Status Exchange(Communicator* communicator,
                      const std::vector<std::vector<float>>& to,
                      std::vector<std::vector<float>>& from) {
  std::vector<absl::Span<const char>> outgoing;
  for (const std::vector<float>& values : to) {
    outgoing.push_back(AsBytes(absl::MakeConstSpan(values)));
  }
  std::vector<absl::Span<char>> incoming;
  for (std::vector<float>& values : from) {
    incoming.push_back(AsBytes(absl::MakeSpan(values)));
  }
  return communicator->AllToAll(std::move(outgoing), std::move(incoming));
}

}  // namespace

Slices Intersect(absl::Span<const Slice> a, absl::Span<const Slice> b) {
  Slices both;
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    const Slice overlap = {std::max(a[i].begin, b[j].begin),
                           std::min(a[i].end, b[j].end)};
    if (overlap.begin < overlap.end) both.push_back(overlap);
    a[i].end < b[j].end ? ++i : ++j;
  }
  return both;
}

Slices Subtract(absl::Span<const Slice> a, absl::Span<const Slice> b) {
  Slices rest;
  size_t j = 0;
  for (Slice slice : a) {
    for (; j < b.size() && b[j].end <= slice.begin; ++j) {
    }
    for (size_t k = j; k < b.size() && b[k].begin < slice.end; ++k) {
      if (slice.begin < b[k].begin) rest.push_back({slice.begin, b[k].begin});
      slice.begin = std::min(b[k].end, slice.end);
    }
    if (slice.begin < slice.end) rest.push_back(slice);
  }
  return rest;
}

TensorExchange::TensorExchange(int rank, const std::vector<Slices>& held,
                               const std::vector<Slices>& trained)
    : rank_(rank), held_(held[rank]) {
  const int ranks = static_cast<int>(held.size());
  fetched_from_.resize(ranks);
  fetched_by_.resize(ranks);
  for (int to = 0; to < ranks; ++to) {
    Slices missing = held[to];
    // Ask the rank itself first.
    for (int i = 0; i < ranks && !missing.empty(); ++i) {
      const int from = i == 0 ? to : i <= to ? i - 1 : i;
      Slices found = Intersect(missing, trained[from]);
      missing = Subtract(missing, found);
      fetches_ |= from != to && !found.empty();
      if (from == rank) fetched_by_[to] = found;
      if (to == rank) fetched_from_[from] = std::move(found);
    }
  }
  for (int other = 0; other < ranks; ++other) {
    brought_to_.push_back(Intersect(held[rank], trained[other]));
    brought_by_.push_back(Intersect(held[other], trained[rank]));
    for (int from = 0; from < ranks && !brings_; ++from) {
      brings_ = from != other && !Intersect(held[from], trained[other]).empty();
    }
  }
}

absl::Status TensorExchange::Fetch(const LocalTensors& tensors,
                                   Communicator* communicator,
                                   absl::Span<float> held) const {
  RETURN_IF_ERROR(
      ForEach(fetched_from_[rank_], held_, [&](const Slice& slice, size_t at) {
        return tensors.Read(slice, held.subspan(at, slice.size()));
      }));
  if (!fetches_) return absl::OkStatus();
  std::vector<std::vector<float>> to(fetched_by_.size());
  std::vector<std::vector<float>> from(to.size());
  for (size_t other = 0; other < to.size(); ++other) {
    if (other == static_cast<size_t>(rank_)) continue;
    from[other].resize(CountValues(fetched_from_[other]));
    to[other].resize(CountValues(fetched_by_[other]));
    const absl::Span<float> outgoing = absl::MakeSpan(to[other]);
    RETURN_IF_ERROR(ForEach(fetched_by_[other], fetched_by_[other],
                            [&](const Slice& slice, size_t at) {
                              return tensors.Read(
                                  slice, outgoing.subspan(at, slice.size()));
                            }));
  }
  RETURN_IF_ERROR(Exchange(communicator, to, from));
  for (size_t other = 0; other < from.size(); ++other) {
    if (other == static_cast<size_t>(rank_)) continue;
    const float* next = from[other].data();
    RETURN_IF_ERROR(ForEach(fetched_from_[other], held_,
                            [&](const Slice& slice, size_t at) {
                              std::copy_n(next, slice.size(), held.data() + at);
                              next += slice.size();
                              return absl::OkStatus();
                            }));
  }
  return absl::OkStatus();
}

absl::Status TensorExchange::Bring(absl::Span<const float> held,
                                   Communicator* communicator,
                                   LocalTensors& tensors) const {
  RETURN_IF_ERROR(
      ForEach(brought_to_[rank_], held_, [&](const Slice& slice, size_t at) {
        return tensors.Write(slice, held.subspan(at, slice.size()));
      }));
  if (!brings_) return absl::OkStatus();
  std::vector<std::vector<float>> to(brought_to_.size());
  std::vector<std::vector<float>> from(to.size());
  for (size_t other = 0; other < to.size(); ++other) {
    if (other == static_cast<size_t>(rank_)) continue;
    from[other].resize(CountValues(brought_by_[other]));
    RETURN_IF_ERROR(
        ForEach(brought_to_[other], held_, [&](const Slice& slice, size_t at) {
          to[other].insert(to[other].end(), held.begin() + at,
                           held.begin() + at + slice.size());
          return absl::OkStatus();
        }));
  }
  RETURN_IF_ERROR(Exchange(communicator, to, from));
  for (size_t other = 0; other < from.size(); ++other) {
    if (other == static_cast<size_t>(rank_)) continue;
    const absl::Span<const float> incoming = from[other];
    RETURN_IF_ERROR(ForEach(brought_by_[other], brought_by_[other],
                            [&](const Slice& slice, size_t at) {
                              return tensors.Write(
                                  slice, incoming.subspan(at, slice.size()));
                            }));
  }
  return absl::OkStatus();
}

}  // namespace causeway
