// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// causeway-worker: one island of a run.
//
// Exit codes: 0 the run is finished, or ended by SIGTERM or SIGINT; 1 failure;
// 2 usage.
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/daemon.h"
#include "common/process_memory.h"
#include "common/run_config.h"
#include "common/status_macros.h"
#include "common/termination.h"
#include "glog/logging.h"
#include "transport/credentials.h"
#include "worker/island.h"
#include "worker/single_rank_trainer.h"
#include "worker/sync/grpc_coordinator_client.h"

ABSL_FLAG(std::string, coordinator, "",
          "Address of the run's coordinator, host:port.");
ABSL_FLAG(std::string, island, "",
          "Name of this island, unique in the run: 1 to 64 of [a-z0-9-].");
ABSL_FLAG(std::vector<std::string>, data, {},
          "Comma-separated files to train on: text for a run with the byte "
          "tokenizer, else token files (see `causeway prepare`).");
ABSL_FLAG(int, threads, 0,
          "Threads that compute. 0 takes one for each processor.");
ABSL_FLAG(std::string, tls_ca, "",
          "PEM file: authorities of the coordinator's certificate. Turns TLS "
          "on; without it everything is plain text.");
ABSL_FLAG(std::string, tls_cert, "",
          "PEM file: this island's certificate, if the coordinator wants one.");
ABSL_FLAG(std::string, tls_key, "", "PEM file: the key of --tls_cert.");
ABSL_FLAG(double, log_seconds, 5, "Seconds between lines of progress.");

namespace causeway {
namespace {

std::string Description(int threads) {
  char host[256] = "unknown host";
  gethostname(host, sizeof(host) - 1);
  return absl::StrCat(host, ", CPU, ", threads,
                      threads == 1 ? " thread" : " threads");
}

absl::Status Run() {
  int threads = absl::GetFlag(FLAGS_threads);
  if (threads == 0) {
    threads =
        std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  }
  const std::vector<std::string> data = absl::GetFlag(FLAGS_data);
  // The configuration that says more about them comes with the join; that they
  // are there at all can be said now.
  for (const std::string& path : data) {
    if (access(path.c_str(), R_OK) != 0) {
      return absl::NotFoundError(
          absl::StrCat("cannot read the data file \"", path, "\" (--data)"));
    }
  }
  std::random_device random;
  const uint64_t instance =
      (uint64_t{random()} << 32 | random()) | 1;  // 0 means none.
  Island::Options options{
      .seed = instance,
      .now = SteadyWallClock(),
      .log_interval = absl::Seconds(absl::GetFlag(FLAGS_log_seconds))};
  options.join.set_island_id(absl::GetFlag(FLAGS_island));
  options.join.set_instance_id(instance);
  options.join.set_description(Description(threads));
  options.make_trainer = [&](const v1::JoinResponse& joined,
                             std::vector<float> parameters) {
    return MakeSingleRankTrainer(
        joined.config(),
        {.data = data, .shard = joined.shard(), .threads = threads},
        std::move(parameters));
  };
  ASSIGN_OR_RETURN(
      const std::shared_ptr<grpc::ChannelCredentials> credentials,
      MakeChannelCredentials({.tls_ca = absl::GetFlag(FLAGS_tls_ca),
                              .tls_cert = absl::GetFlag(FLAGS_tls_cert),
                              .tls_key = absl::GetFlag(FLAGS_tls_key)},
                             options.now()));
  const std::unique_ptr<CoordinatorClient> client =
      NewGrpcCoordinatorClient({.address = absl::GetFlag(FLAGS_coordinator),
                                .credentials = credentials});
  Island island(std::move(options), client.get());

  absl::Notification done;
  std::thread terminator([&] {
    while (!done.HasBeenNotified()) {
      const int signal = AwaitTerminationSignal(absl::Milliseconds(100));
      if (signal == 0) continue;
      LOG(INFO) << "signal " << signal << " received; leaving the run";
      island.Stop();
      return;
    }
  });
  const absl::Status status = island.Run();
  done.Notify();
  terminator.join();
  LOG(INFO) << "peak memory " << (PeakResidentBytes() >> 20) << " MiB";
  // Stopped on request is not a failure.
  return absl::IsCancelled(status) ? absl::OkStatus() : status;
}

}  // namespace
}  // namespace causeway

int main(int argc, char** argv) {
  constexpr char kProgram[] = "causeway-worker";
  const std::vector<std::string> rest = causeway::StartDaemon(
      argc, argv,
      "Trains as one island of a run.\n\n"
      "  causeway-worker --coordinator HOST:PORT --island NAME --data FILE",
      "worker/main.cc");
  if (!rest.empty()) {
    return causeway::UsageError(
        kProgram, absl::StrCat("unknown argument \"", rest[0], "\""));
  }
  if (absl::GetFlag(FLAGS_coordinator).empty() ||
      absl::GetFlag(FLAGS_data).empty()) {
    return causeway::UsageError(
        kProgram, "--coordinator, --island and --data are needed");
  }
  if (!causeway::IsValidName(absl::GetFlag(FLAGS_island))) {
    return causeway::UsageError(
        kProgram, absl::StrCat("--island is \"", absl::GetFlag(FLAGS_island),
                               "\"; allowed: 1 to 64 of [a-z0-9-]"));
  }
  if (absl::GetFlag(FLAGS_threads) < 0 || absl::GetFlag(FLAGS_threads) > 1024) {
    return causeway::UsageError(kProgram, "--threads must be 0 to 1024");
  }
  return causeway::ExitCode(kProgram, causeway::Run());
}
