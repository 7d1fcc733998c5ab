// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/replication/copy_stream.h"

#include <cstdint>
#include <optional>
#include <vector>

#include "common/testing/status_matchers.h"
#include "common/transport/chunk.h"
#include "common/transport/chunk_message.h"
#include "gmock/gmock.h"
#include "grpcpp/support/byte_buffer.h"
#include "gtest/gtest.h"
#include "proto/replication.pb.h"
#include "server/replication/testing/follower_test_base.h"

namespace causeway {
namespace {

using CopyStreamTest = FollowerTest;

// A stream that held all states from its beginning would keep a second copy of
// the model in memory.
TEST_F(CopyStreamTest, StatesAreTheNewestWhenItIsTheirTurn) {
  StartLeader();
  v1::FollowRequest::Hello hello;
  hello.set_name("f");
  ASSERT_OK_AND_ASSIGN(CopyStream stream,
                       CopyStream::Begin(driver_.engine().followed(), hello));
  std::vector<uint64_t> versions;
  while (versions.size() < 2) {
    Train();
    ASSERT_OK_AND_ASSIGN(std::optional<grpc::ByteBuffer> next, stream.Next());
    ASSERT_TRUE(next.has_value());
    v1::FollowResponse response;
    Chunk chunk;
    ASSERT_OK(ParseByteBuffer(*next, v1::FollowResponse::kChunkFieldNumber,
                              response, chunk));
    if (response.object().kind() == v1::ReplicatedObject::STATE) {
      versions.push_back(response.object().head().version());
    }
  }
  // The run comes first, and chunks of the first state before the second one.
  EXPECT_THAT(versions, testing::ElementsAre(2, testing::Gt(2)));
}

}  // namespace
}  // namespace causeway
