// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/load/joiner.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/checksum.h"
#include "common/grpc_status.h"
#include "common/status_macros.h"
#include "grpcpp/grpcpp.h"
#include "proto/coordinator.grpc.pb.h"

namespace causeway {
namespace {

absl::StatusOr<uint64_t> Download(v1::Coordinator::Stub& stub,
                                  const v1::IslandIdentity& identity,
                                  const v1::FragmentHead& head, double limit) {
  v1::FetchParametersRequest request;
  *request.mutable_identity() = identity;
  request.set_fragment(head.fragment());
  request.set_version(head.version());
  request.mutable_stream()->set_pace_bytes_per_second(limit);
  grpc::ClientContext context;
  const auto stream = stub.FetchParameters(&context, request);
  v1::FetchParametersResponse response;
  Digest128Stream digest;
  uint64_t bytes = 0;
  while (stream->Read(&response)) {
    digest.Update(response.chunk().data());
    bytes += response.chunk().data().size();
  }
  RETURN_IF_ERROR(FromGrpcStatus(stream->Finish()));
  if (digest.Finish() == head.digest()) return bytes;
  return absl::DataLossError(
      absl::StrCat("fragment ", head.fragment(), " at version ", head.version(),
                   " came with another digest than was announced"));
}

}  // namespace

absl::StatusOr<uint64_t> JoinAndLeave(const JoinerOptions& options) {
  grpc::ChannelArguments arguments;
  // Each joiner has its own connection, like an island.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  const std::unique_ptr<v1::Coordinator::Stub> stub =
      v1::Coordinator::NewStub(grpc::CreateCustomChannel(
          options.address, grpc::InsecureChannelCredentials(), arguments));
  v1::JoinRequest request;
  request.set_island_id(options.name);
  request.set_instance_id(options.instance_id);
  request.set_description("joiner of the load test");
  v1::JoinResponse joined;
  {
    grpc::ClientContext context;
    context.set_wait_for_ready(true);
    RETURN_IF_ERROR(FromGrpcStatus(stub->Join(&context, request, &joined)));
  }
  uint64_t bytes = 0;
  for (const v1::FragmentHead& head : joined.heads()) {
    ASSIGN_OR_RETURN(const uint64_t received,
                     Download(*stub, joined.identity(), head, options.limit));
    bytes += received;
  }
  v1::LeaveRequest leave;
  *leave.mutable_identity() = joined.identity();
  leave.set_reason("has what it came for");
  v1::LeaveResponse left;
  grpc::ClientContext context;
  RETURN_IF_ERROR(FromGrpcStatus(stub->Leave(&context, leave, &left)));
  return bytes;
}

}  // namespace causeway
