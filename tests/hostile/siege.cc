// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/hostile/siege.h"

#include <sys/resource.h>

#include <algorithm>
#include <cstdlib>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "common/config/run_config.h"
#include "common/testing/status_matchers.h"
#include "common/transport/credentials.h"
#include "common/transport/identity.h"
#include "glog/logging.h"
#include "proto/status.grpc.pb.h"
#include "tests/end_to_end/process.h"

namespace causeway {
namespace {

constexpr char kConfig[] = R"pb(
  name: "siege"
  model {
    layers: 1
    hidden_size: 8
    intermediate_size: 16
    heads: 1
    vocab_size: 258
    sequence_length: 8
  }
  training { total_steps: 1000000 batch_size: 1 }
  synchronization { inner_steps_per_round: 1 }
  membership { max_islands: 8 lease_seconds: 60 outlier_factor: 0 }
)pb";

constexpr absl::Duration kPatience = absl::Seconds(60);

int FromEnvironment(const char* name, int otherwise) {
  const char* const text = std::getenv(name);
  int value = otherwise;
  if (text != nullptr) CHECK(absl::SimpleAtoi(text, &value)) << name;
  return value;
}

Validity ThisHour() {
  return {absl::Now() - absl::Hours(1), absl::Now() + absl::Hours(1)};
}

}  // namespace

Siege::Siege() : directory_(*TemporaryDirectory::Make("causeway-siege")) {
  // Attackers need as many descriptors as the coordinator.
  rlimit files = {};
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = std::min<rlim_t>(files.rlim_max, 4096);
  setrlimit(RLIMIT_NOFILE, &files);
}

Siege::~Siege() {
  for (const auto& island : islands_) island->Stop();
  if (HasFailure() && coordinator_ != nullptr) {
    LOG(ERROR) << "the coordinator said:\n" << coordinator_->process().Output();
  }
}

void Siege::Start(const Options& options) {
  std::vector<std::string> arguments = options.arguments;
  if (options.tls) {
    authority_ = std::make_unique<TestAuthority>(
        absl::StrCat(directory_.path(), "/authority"), ThisHour());
    const TestIdentity server = authority_->Sign("127.0.0.1", ThisHour());
    arguments.insert(arguments.end(),
                     {"--tls_cert", server.certificate, "--tls_key", server.key,
                      "--tls_client_ca", authority_->certificate()});
  }
  ASSERT_OK_AND_ASSIGN(const v1::RunConfig config,
                       ParseRunConfig(kConfig, "siege"));
  ASSERT_OK_AND_ASSIGN(
      coordinator_,
      WatchedCoordinator::Start(
          ProgramPath(""), directory_.path(), config, arguments,
          {"/usr/bin/prlimit", absl::StrCat("--nofile=", options.soft_files,
                                            ":", options.hard_files)}));
  channel_ = NewChannel();
}

int Siege::port() const {
  const std::string& address = coordinator_->address();
  int port = 0;
  CHECK(absl::SimpleAtoi(address.substr(address.rfind(':') + 1), &port));
  return port;
}

std::shared_ptr<grpc::ChannelCredentials> Siege::Credentials(
    const std::string& island) {
  if (authority_ == nullptr) return grpc::InsecureChannelCredentials();
  const TestIdentity identity =
      authority_->Sign(FormatDns({Role::kIsland, "siege", island}), ThisHour());
  const auto credentials =
      MakeChannelCredentials({.tls_ca = authority_->certificate(),
                              .tls_cert = identity.certificate,
                              .tls_key = identity.key},
                             absl::Now());
  CHECK(credentials.ok()) << credentials.status();
  return *credentials;
}

std::shared_ptr<grpc::Channel> Siege::NewChannel(const std::string& island) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return grpc::CreateCustomChannel(coordinator_->address(), Credentials(island),
                                   arguments);
}

void Siege::AddIsland(const std::string& name) {
  {
    absl::MutexLock lock(&mu_);
    rounds_[name] = 0;
  }
  islands_.push_back(std::make_unique<IslandUnderTest>(IslandUnderTest::Options{
      .name = name,
      .address = coordinator_->address(),
      .target = 1,
      .instance_id = 100 * islands_.size() + 1,
      .credentials = Credentials(name),
      .tls = authority_ != nullptr,
      .before_step = [this, name](uint64_t) {
        absl::SleepFor(absl::Milliseconds(FromEnvironment("SIEGE_STEP_MS", 0)));
        absl::MutexLock lock(&mu_);
        ++rounds_[name];
        return absl::OkStatus();
      }}));
}

void Siege::AwaitRounds(uint64_t rounds) {
  absl::MutexLock lock(&mu_);
  std::map<std::string, uint64_t> wanted = rounds_;
  for (auto& [island, count] : wanted) count += rounds;
  const auto reached = [&] {
    mu_.AssertHeld();
    return std::equal(rounds_.begin(), rounds_.end(), wanted.begin(),
                      [](const auto& is, const auto& want) {
                        return is.second >= want.second;
                      });
  };
  EXPECT_TRUE(mu_.AwaitWithTimeout(absl::Condition(&reached), kPatience))
      << "the run does not go on";
}

uint64_t Siege::Rounds() {
  absl::MutexLock lock(&mu_);
  uint64_t rounds = UINT64_MAX;
  for (const auto& [island, count] : rounds_) rounds = std::min(rounds, count);
  return rounds;
}

double Siege::RoundsPerSecond(const std::function<void()>& act) {
  const absl::Duration time =
      absl::Seconds(FromEnvironment("SIEGE_SECONDS", 3));
  const absl::Time begun = absl::Now();
  const uint64_t rounds = Rounds();
  while (absl::Now() - begun < time) act();
  return static_cast<double>(Rounds() - rounds) /
         absl::ToDoubleSeconds(absl::Now() - begun);
}

void Siege::ResistAny(const std::function<std::shared_ptr<void>()>& attack) {
  AwaitRounds(5);
  const uint32_t connections = Run().connections().open();
  const uint64_t bytes = coordinator_->AnonymousBytes();
  coordinator_->TakePeak();
  for (int turn = FromEnvironment("SIEGE_TURNS", 1); turn > 0; --turn) {
    const double calm = RoundsPerSecond([&] { AwaitRounds(1); });
    double attacked = 0;
    // In reality attackers have machines of their own. Here they get what is
    // left of this one.
    std::thread([&] {
      setpriority(PRIO_PROCESS, 0, 19);
      std::shared_ptr<void> last;
      attacked = RoundsPerSecond([&] { last = attack(); });
    }).join();
    const absl::Time over = absl::Now();
    AwaitStatus([&](const v1::RunStatus& run) {
      return run.connections().open() <= connections;
    });
    LOG(INFO) << absl::StrFormat(
        "rounds per second %.2f, under attack %.2f, ratio %.3f; its "
        "connections were gone after %.2f s",
        calm, attacked, attacked / calm,
        absl::ToDoubleSeconds(absl::Now() - over));
    AwaitRounds(5);
  }
  const uint64_t peak = coordinator_->TakePeak();
  LOG(INFO) << "memory before " << bytes << ", at most " << peak << "; "
            << Run().connections().ShortDebugString();
  EXPECT_LT(peak, bytes + kMostBytes);
  AddIsland("afterwards");
  AwaitRounds(5);
}

v1::RunStatus Siege::Run() const {
  const absl::Time deadline = absl::Now() + kPatience;
  for (;;) {
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(deadline));
    context.set_wait_for_ready(true);
    v1::RunStatus run;
    const grpc::Status status =
        v1::Status::NewStub(channel_)->GetRun(&context, {}, &run);
    if (status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED) continue;
    EXPECT_TRUE(status.ok()) << status.error_message();
    return run;
  }
}

void Siege::AwaitStatus(
    const std::function<bool(const v1::RunStatus&)>& is_so) {
  const absl::Time begun = absl::Now();
  v1::RunStatus run = Run();
  while (!is_so(run)) {
    ASSERT_LT(absl::Now() - begun, kPatience) << run.ShortDebugString();
    run = Run();
  }
}

}  // namespace causeway
