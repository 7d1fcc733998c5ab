// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/transport/grpc_status.h"

#include <string>

#include "gtest/gtest.h"

namespace causeway {
namespace {

TEST(GrpcStatusTest, ThereAndBackItIsTheSame) {
  const absl::Status status = absl::AbortedError("join again");
  EXPECT_EQ(FromGrpcStatus(ToGrpcStatus(status)), status);
  EXPECT_TRUE(ToGrpcStatus(absl::OkStatus()).ok());
}

TEST(GrpcStatusTest, APeersMessageIsPrintable) {
  const grpc::Status status(grpc::StatusCode::ABORTED, "a\nb\x1b[2J");
  EXPECT_EQ(FromGrpcStatus(status), absl::AbortedError("a\\x0ab\\x1b[2J"));
}

TEST(GrpcStatusTest, ALongMessageIsCutAndKeepsItsCode) {
  const grpc::Status status =
      ToGrpcStatus(absl::NotFoundError(std::string(1 << 20, 'x')));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(status.error_message(), std::string(kMaxErrorBytes, 'x'));
}

}  // namespace
}  // namespace causeway
