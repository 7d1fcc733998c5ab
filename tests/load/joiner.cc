// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/load/joiner.h"

#include <future>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/checksum.h"
#include "common/status_macros.h"
#include "common/transport/grpc_status.h"
#include "grpcpp/grpcpp.h"
#include "proto/coordinator.grpc.pb.h"

namespace causeway {
namespace {

std::unique_ptr<v1::Coordinator::Stub> Connect(const std::string& address) {
  grpc::ChannelArguments arguments;
  // Each joiner has its own connection, like an island.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return v1::Coordinator::NewStub(grpc::CreateCustomChannel(
      address, grpc::InsecureChannelCredentials(), arguments));
}

absl::StatusOr<uint64_t> Download(v1::Coordinator::Stub& stub,
                                  const v1::FragmentHead& head,
                                  v1::FetchParametersRequest request) {
  request.set_fragment(head.fragment());
  request.set_version(head.version());
  grpc::ClientContext context;
  const auto stream = stub.FetchParameters(&context, request);
  v1::FetchParametersResponse response;
  std::string follower;
  Digest128Stream digest;
  uint64_t bytes = 0;
  while (stream->Read(&response)) {
    if (!response.follower().empty()) follower = response.follower();
    digest.Update(response.chunk().data());
    bytes += response.chunk().data().size();
  }
  RETURN_IF_ERROR(FromGrpcStatus(stream->Finish()));
  if (!follower.empty()) {
    request.clear_region();
    return Download(*Connect(follower), head, request);
  }
  if (digest.Finish() == head.digest()) return bytes;
  return absl::DataLossError(
      absl::StrCat("fragment ", head.fragment(), " at version ", head.version(),
                   " came with another digest than was announced"));
}

}  // namespace

absl::StatusOr<uint64_t> JoinAndLeave(const JoinerOptions& options) {
  const std::unique_ptr<v1::Coordinator::Stub> stub = Connect(options.address);
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
  v1::FetchParametersRequest fetch;
  *fetch.mutable_identity() = joined.identity();
  fetch.set_region(options.region);
  fetch.mutable_stream()->set_pace_bytes_per_second(options.limit);
  // All at once, as islands do: a version may be gone a round later.
  std::vector<std::future<absl::StatusOr<uint64_t>>> downloads;
  for (const v1::FragmentHead& head : joined.heads()) {
    downloads.push_back(std::async(std::launch::async, [&stub, &fetch, head] {
      return Download(*stub, head, fetch);
    }));
  }
  for (auto& download : downloads) {
    ASSIGN_OR_RETURN(const uint64_t received, download.get());
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
