// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// One rank of an island that only runs collective operations, for
// processes_test.cc to stop and kill.
//
//   rank_program RANK SIZE ADDRESS TIMEOUT_SECONDS SECRET
//
// Rank 0 listens on ADDRESS and prints "address HOST:PORT". Each rank prints
// "running" after its first operations and continues until one fails; then it
// prints the error.
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
#include "worker/collective/message_communicator.h"
#include "worker/collective/tcp_rendezvous.h"
#include "worker/collective/tcp_transport.h"

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
                 absl::Duration timeout, const std::string& secret) {
  const Clock now = SteadyWallClock();
  const RendezvousOptions options{
      .address = address, .secret = secret, .now = now};
  std::unique_ptr<RendezvousServer> server;
  std::unique_ptr<Rendezvous> client;
  if (rank == 0) {
    ASSIGN_OR_RETURN(server, RendezvousServer::Start(options));
    std::printf("address %s\n", server->address().c_str());
    std::fflush(stdout);
  } else {
    ASSIGN_OR_RETURN(client, ConnectRendezvous(options, absl::Minutes(1)));
  }
  Rendezvous* const rendezvous = rank == 0 ? server->table() : client.get();
  ASSIGN_OR_RETURN(std::unique_ptr<Transport> transport,
                   ConnectTcp({.rank = rank,
                               .size = size,
                               .host = "127.0.0.1",
                               .encrypt = true,
                               .now = now},
                              rendezvous));
  const std::unique_ptr<Communicator> communicator = MakeMessageCommunicator(
      {.timeout = timeout, .now = now}, std::move(transport), rendezvous);
  const absl::Status status = Operate(*communicator);
  if (rank == 0) absl::SleepFor(kReportsNeeded);
  return status;
}

}  // namespace
}  // namespace causeway

int main(int argc, char** argv) {
  CHECK_EQ(argc, 6);
  const absl::Status status =
      causeway::Run(std::atoi(argv[1]), std::atoi(argv[2]), argv[3],
                    absl::Seconds(std::atoi(argv[4])), argv[5]);
  std::printf("%s\n", status.ToString().c_str());
  return 1;
}
