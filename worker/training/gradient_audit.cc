// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/training/gradient_audit.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/checksum.h"
#include "common/status_macros.h"
#include "worker/collective/culprit.h"

namespace causeway {
namespace {

// The number of values that the host digests at a time.
constexpr size_t kPiece = size_t{1} << 22;
// The payload of a status that says that ranks disagree.
constexpr char kAuditUrl[] = "causeway/audit";

std::string DigestOf(absl::Span<const float> values, Ops& ops) {
  Digest128Stream digest;
  std::vector<float> piece(std::min(kPiece, values.size()));
  for (size_t begin = 0; begin < values.size(); begin += kPiece) {
    const absl::Span<const float> next = values.subspan(begin, kPiece);
    ops.CopyToHost(next.data(), next.size() * sizeof(float), piece.data());
    digest.Update(absl::MakeConstSpan(piece.data(), next.size()));
  }
  return digest.Finish();
}

// Returns the digests of all ranks. A double carries each byte exactly.
absl::StatusOr<std::vector<AuditedRank>> Exchange(const AuditedRank& own,
                                                  Communicator& communicator) {
  const std::string bytes = absl::StrCat(own.parameters, own.gradient);
  std::vector<double> all(communicator.size() * bytes.size());
  std::transform(bytes.begin(), bytes.end(),
                 all.begin() + communicator.rank() * bytes.size(),
                 [](char byte) { return static_cast<uint8_t>(byte); });
  RETURN_IF_ERROR(communicator.AllReduce(absl::MakeSpan(all)));
  std::vector<AuditedRank> ranks(communicator.size());
  auto next = all.begin();
  for (AuditedRank& rank : ranks) {
    for (std::string* const digest : {&rank.parameters, &rank.gradient}) {
      std::transform(next, next + kDigestBytes, std::back_inserter(*digest),
                     [](double byte) { return static_cast<uint8_t>(byte); });
      next += kDigestBytes;
    }
  }
  return ranks;
}

// Returns the verdict without its payload.
absl::Status VerdictOn(absl::Span<const AuditedRank> ranks) {
  const bool same_parameters =
      std::all_of(ranks.begin(), ranks.end(), [&](const AuditedRank& rank) {
        return rank.parameters == ranks[0].parameters;
      });
  const char* const what = same_parameters
                               ? "another gradient of the same parameters"
                               : "other parameters";
  std::map<std::string, std::vector<int>> agreeing;
  for (size_t i = 0; i < ranks.size(); ++i) {
    agreeing[same_parameters ? ranks[i].gradient : ranks[i].parameters]
        .push_back(static_cast<int>(i));
  }
  if (agreeing.size() == 1) return absl::OkStatus();
  if (agreeing.size() == 2 && ranks.size() > 2) {
    for (const auto& [digest, group] : agreeing) {
      if (group.size() > 1) continue;
      return BlameCorruptRank(group[0],
                              absl::StrCat("in an audit it has ", what,
                                           ", on which all other ranks agree"));
    }
  }
  std::vector<std::string> groups;
  groups.reserve(agreeing.size());
  for (const auto& [digest, group] : agreeing) {
    groups.push_back(absl::StrCat("{", absl::StrJoin(group, ", "), "}"));
  }
  std::sort(groups.begin(), groups.end());
  return absl::DataLossError(absl::StrCat(
      "in an audit some ranks had ", what,
      " than others: ", absl::StrJoin(groups, " "),
      "; which of them are wrong is not known: test their processors"));
}

}  // namespace

bool IsFoundByAudit(const absl::Status& status) {
  return status.GetPayload(kAuditUrl).has_value();
}

absl::Status CompareRanks(absl::Span<const AuditedRank> ranks) {
  absl::Status verdict = VerdictOn(ranks);
  if (!verdict.ok()) verdict.SetPayload(kAuditUrl, absl::Cord());
  return verdict;
}

absl::Status AuditGradients(int64_t micro_batch,
                            absl::Span<const float> parameters,
                            absl::Span<float> scratch,
                            GradientSource* gradients, Ops* ops,
                            Communicator* communicator) {
  ops->Zero(static_cast<int64_t>(scratch.size()), scratch.data());
  RETURN_IF_ERROR(
      gradients->Accumulate(micro_batch, parameters.data(), scratch.data()));
  RETURN_IF_ERROR(gradients->TakeLoss().status());
  const AuditedRank own = {.parameters = DigestOf(parameters, *ops),
                           .gradient = DigestOf(scratch, *ops)};
  RETURN_IF_ERROR(ops->Synchronize());
  ASSIGN_OR_RETURN(const std::vector<AuditedRank> ranks,
                   Exchange(own, *communicator));
  return CompareRanks(ranks);
}

}  // namespace causeway
