// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/replica/part_exchange.h"

#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/collective/rendezvous.h"
#include "worker/replica/fragment_share.h"
#include "worker/replica/testing/local_communicators.h"

namespace causeway {
namespace {

TEST(PartExchangeTest, EncodingsThatDoNotFitAreRefused) {
  LocalRendezvous rendezvous;
  auto ranks = LocalCommunicators(2, &rendezvous);
  const std::vector<FragmentShare> shares(2);
  std::thread other([&] {
    const PartExchange exchange(ranks[1].replica.get(), shares);
    exchange.GatherEncoded("0123456789", {}).IgnoreError();
  });
  const PartExchange exchange(ranks[0].replica.get(), shares);
  std::string buffer(9, '\0');
  const absl::Status status =
      exchange.GatherEncoded("", absl::MakeSpan(&buffer[0], buffer.size()))
          .status();
  ranks[0].replica->Abort(status);
  other.join();
  EXPECT_THAT(status, IsInternal("rank 1 has encoded 10"));
}

}  // namespace
}  // namespace causeway
