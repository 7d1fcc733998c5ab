// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// One rank of an island that only runs collective operations, for
// processes_test.cc to stop and kill.
//
//   rank_program RANK SIZE ADDRESS TIMEOUT_SECONDS
//
// Rank 0 listens on ADDRESS and prints "port N". Each rank prints "running"
// after its first operations and continues until one fails; then it prints the
// error.
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/status_macros.h"
#include "glog/logging.h"
#include "worker/collective/communicator.h"
#include "worker/collective/culprit.h"
#include "worker/collective/gloo_transport.h"
#include "worker/collective/grpc_rendezvous.h"
#include "worker/collective/message_communicator.h"

namespace causeway {
namespace {

// Runs operations until one fails.
absl::Status Operate(Communicator& communicator) {
  std::vector<float> values(1 << 20);
  for (int i = 0;; ++i) {
    RETURN_IF_ERROR(communicator.ReduceScatter(absl::MakeSpan(values)));
    RETURN_IF_ERROR(communicator.AllGather(absl::MakeSpan(values)));
    if (i == 0) {
      std::puts("running");
      std::fflush(stdout);
    }
  }
}

absl::Status Run(int rank, int size, const std::string& address,
                 absl::Duration timeout) {
  std::unique_ptr<RendezvousServer> server;
  std::unique_ptr<Rendezvous> client;
  if (rank == 0) {
    ASSIGN_OR_RETURN(server, RendezvousServer::Start(address));
    std::printf("port %d\n", server->port());
    std::fflush(stdout);
  } else {
    ASSIGN_OR_RETURN(client, ConnectRendezvous(address, absl::Minutes(1)));
  }
  Rendezvous* const rendezvous = rank == 0 ? server->table() : client.get();
  ASSIGN_OR_RETURN(
      std::unique_ptr<Transport> transport,
      ConnectGloo({.rank = rank, .size = size, .host = "127.0.0.1"},
                  rendezvous));
  const std::unique_ptr<Communicator> communicator =
      MakeMessageCommunicator({.timeout = timeout, .now = SteadyWallClock()},
                              std::move(transport), rendezvous);
  const absl::Status status = Operate(*communicator);
  if (rank == 0) absl::SleepFor(kReportsNeeded);
  return status;
}

}  // namespace
}  // namespace causeway

int main(int argc, char** argv) {
  CHECK_EQ(argc, 5);
  const absl::Status status =
      causeway::Run(std::atoi(argv[1]), std::atoi(argv[2]), argv[3],
                    absl::Seconds(std::atoi(argv[4])));
  std::printf("%s\n", status.ToString().c_str());
  return 1;
}
