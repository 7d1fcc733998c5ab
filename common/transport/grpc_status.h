// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Converts between absl::Status and grpc::Status, whose codes are the same
// numbers. A message longer than kMaxErrorBytes is cut: a status travels in
// HTTP/2 headers, where a byte may take three, and a peer that receives more
// than 8 KiB of headers sees another code. A message that comes from a peer is
// made printable.
#ifndef COMMON_TRANSPORT_GRPC_STATUS_H_
#define COMMON_TRANSPORT_GRPC_STATUS_H_

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "common/printable.h"
#include "grpcpp/support/status.h"

namespace causeway {

inline constexpr size_t kMaxErrorBytes = 2048;

inline grpc::Status ToGrpcStatus(const absl::Status& status) {
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()),
                      std::string(status.message().substr(0, kMaxErrorBytes)));
}

inline absl::Status FromGrpcStatus(const grpc::Status& status) {
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                      Printable(status.error_message()));
}

}  // namespace causeway

#endif  // COMMON_TRANSPORT_GRPC_STATUS_H_
