// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/collective/await_ranks.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "worker/collective/culprit.h"

namespace causeway {
namespace {

// Operations of communicators begin at higher ones.
constexpr uint64_t kTag = 0;

// A message to or from a peer.
struct Word {
  char text = 'r';
  std::unique_ptr<Transfer> transfer;
};

absl::Status Blame(int rank, int peer, absl::Duration timeout,
                   const absl::Status& status, Rendezvous* rendezvous) {
  const bool stuck = absl::IsDeadlineExceeded(status);
  const std::string seen = absl::StrCat(
      "rank ", rank,
      stuck ? absl::StrCat(" has waited ", absl::FormatDuration(timeout),
                           " for it")
            : " has lost its connection to it",
      " before training");
  return FindCulprit(
      rank, peer,
      stuck ? absl::DeadlineExceededError(seen) : absl::UnavailableError(seen),
      rendezvous);
}

}  // namespace

absl::Status AwaitRanks(Transport* transport, absl::Duration timeout,
                        const Clock& now, Rendezvous* rendezvous) {
  const absl::Time deadline = now() + timeout;
  // Their addresses stay.
  std::vector<Word> received(transport->size());
  std::vector<Word> sent(transport->size());
  for (int peer = 0; peer < transport->size(); ++peer) {
    if (peer == transport->rank()) continue;
    received[peer].transfer =
        transport->Receive(peer, kTag, absl::MakeSpan(&received[peer].text, 1));
    sent[peer].transfer =
        transport->Send(peer, kTag, absl::MakeConstSpan(&sent[peer].text, 1));
  }
  for (std::vector<Word>* words : {&received, &sent}) {
    for (int peer = 0; peer < transport->size(); ++peer) {
      Transfer* const transfer = (*words)[peer].transfer.get();
      if (transfer == nullptr) continue;
      const absl::Status status = transfer->Wait(deadline - now());
      if (status.ok()) continue;
      const absl::Status blame =
          Blame(transport->rank(), peer, timeout, status, rendezvous);
      transport->Close();
      return blame;
    }
  }
  return absl::OkStatus();
}

}  // namespace causeway
