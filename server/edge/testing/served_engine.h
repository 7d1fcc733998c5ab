// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// An engine for tests that islands and operators call over gRPC.
//
//   ServedEngine driver;
//   ASSERT_OK(driver.Start(TestRunConfig()));
//   ASSERT_OK(driver.Serve());
//   const auto stub = v1::Coordinator::NewStub(driver.channel());
#ifndef SERVER_EDGE_TESTING_SERVED_ENGINE_H_
#define SERVER_EDGE_TESTING_SERVED_ENGINE_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/status_macros.h"
#include "common/transport/bulk_stream.h"
#include "common/transport/grpc_status.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/grpcpp.h"
#include "server/edge/server.h"
#include "server/testing/engine_driver.h"

namespace causeway {

class ServedEngine : public EngineDriver {
 public:
  // Serves the started engine, in place of an earlier server: on a loopback
  // port and with a real clock, unless `options` say otherwise. Stop serving
  // before restarting the engine.
  absl::Status Serve(CoordinatorServer::Options options = {}) {
    StopServing();
    if (options.address.empty()) options.address = "127.0.0.1:0";
    if (options.now == nullptr) options.now = SteadyWallClock();
    ASSIGN_OR_RETURN(server_, CoordinatorServer::Start(&engine(), options));
    channel_ =
        grpc::CreateChannel(address(), grpc::InsecureChannelCredentials());
    return absl::OkStatus();
  }
  void StopServing() { server_.reset(); }

  CoordinatorServer& server() const { return *server_; }
  std::string address() const {
    return absl::StrCat("127.0.0.1:", server_->port());
  }
  // Returns a channel without TLS, the same one at each call.
  const std::shared_ptr<grpc::Channel>& channel() const { return channel_; }

  // Calls a method, "Service/Method", with these messages, and returns how the
  // call ends.
  absl::Status Send(const std::string& method,
                    const std::vector<std::string>& messages) const {
    grpc::GenericStub raw(channel_);
    grpc::ClientContext context;
    BulkStream stream(raw, "/causeway.v1." + method, &context);
    for (const std::string& message : messages) {
      const grpc::Slice slice(message);
      stream.Write(grpc::ByteBuffer(&slice, 1));
    }
    stream.WritesDone();
    return FromGrpcStatus(stream.Finish());
  }

 private:
  std::unique_ptr<CoordinatorServer> server_;
  std::shared_ptr<grpc::Channel> channel_;
};

}  // namespace causeway

#endif  // SERVER_EDGE_TESTING_SERVED_ENGINE_H_
