// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Measures how many values an engine commits per second, and how many bytes it
// writes for each byte that islands upload. Contributions are made beforehand
// and passed by calls of the engine, without gRPC and training.
//
//   bazel run //server/benchmarks:commit_benchmark -- --json FILE
//
// A commit's time is from the end of the last upload to the news of the next
// version, including the checks of that upload's digest and values. Uploads
// come as fast as this machine takes them. Writes below $TMPDIR or /tmp.
#include <algorithm>
#include <cstdint>
#include <iostream>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "common/config/run_config.h"
#include "common/os/file.h"
#include "common/testing/stopwatch.h"
#include "common/testing/temporary_directory.h"
#include "common/transport/chunk.h"
#include "glog/logging.h"
#include "quantization/codec.h"
#include "quantization/codec_config.h"
#include "quantization/testing/whole_vectors.h"
#include "server/benchmarks/figures.h"
#include "server/edge/server.h"
#include "server/engine.h"
#include "server/replication/follower.h"

ABSL_FLAG(std::string, json, "", "write the figures to this file, too");
ABSL_FLAG(std::vector<std::string>, islands,
          std::vector<std::string>({"2", "8"}),
          "numbers of islands to measure with");
ABSL_FLAG(int, rounds, 60, "commits of each measurement");
ABSL_FLAG(int, merge_threads, 2, "threads of an outer step");
ABSL_FLAG(int, vocabulary, 17800, "scales the model: 512 values each");
ABSL_FLAG(int, fragments, 1,
          "fragments of the model, whose rounds close together");
ABSL_FLAG(std::string, storage, "", "fields of the run's StorageConfig");
ABSL_FLAG(bool, evictable_state, false, "as of causeway-coordinator");
ABSL_FLAG(int, followers, 0,
          "followers in this process that each commit waits for; they share "
          "its processors and disk");

namespace causeway {
namespace {

// Returns the bytes that this process has written, less those that were dropped
// before they reached the disk.
double BytesWritten() {
  const auto text = ReadFile("/proc/self/io");
  CHECK(text.ok()) << text.status();
  double bytes = 0;
  for (const absl::string_view line : absl::StrSplit(*text, '\n')) {
    const std::pair<std::string, std::string> field =
        absl::StrSplit(line, ": ");
    double value = 0;
    if (field.first == "write_bytes" &&
        absl::SimpleAtod(field.second, &value)) {
      bytes += value;
    }
    if (field.first == "cancelled_write_bytes" &&
        absl::SimpleAtod(field.second, &value)) {
      bytes -= value;
    }
  }
  return bytes;
}

v1::RunConfig Config(int islands) {
  const int fragments = absl::GetFlag(FLAGS_fragments);
  auto config = ParseRunConfig(
      absl::StrCat(R"pb(
                     name: "commits"
                     model { hidden_size: 256 intermediate_size: 768 heads: 4
                             sequence_length: 64
                             layers:)pb",
                   std::max(2, fragments - 1),
                   " vocab_size: ", absl::GetFlag(FLAGS_vocabulary), R"pb(
                     }
                     data { tokenizer: PRETOKENIZED }
                     training { total_steps: 1000000 batch_size: 1 }
                     synchronization {
                       uplink_format: INT4
                       downlink_format: INT4
                       fragments:)pb",
                   fragments, " inner_steps_per_round: ", fragments, R"pb(
                     }
                     membership { lease_seconds: 100000 grace_seconds: 100000 }
                     storage { )pb",
                   absl::GetFlag(FLAGS_storage), " }"),
      "commits");
  CHECK(config.ok()) << config.status();
  config->mutable_membership()->set_min_islands(static_cast<uint32_t>(islands));
  config->mutable_membership()->set_quorum(static_cast<uint32_t>(islands));
  config->mutable_storage()->set_sync_replicas(
      static_cast<uint32_t>(absl::GetFlag(FLAGS_followers)));
  return *std::move(config);
}

class Bench {
 public:
  explicit Bench(int islands) {
    const v1::RunConfig config = Config(islands);
    auto engine = Engine::Start(
        {.state_dir = directory_.path() + "/state",
         .config = config,
         .random = 1,
         .now = absl::Now,
         .merge_threads = absl::GetFlag(FLAGS_merge_threads),
         .evictable_state = absl::GetFlag(FLAGS_evictable_state)});
    CHECK(engine.ok()) << engine.status();
    engine_ = *std::move(engine);
    listener_ = engine_->news().Add([this] {
      absl::MutexLock lock(&mu_);
      ++news_;
    });
    for (int island = 0; island < islands; ++island) Join(island, config);
    Follow();
  }
  ~Bench() {
    followers_.clear();
    server_ = nullptr;
    engine_->news().Remove(listener_);
  }

  // Uploads to one round of each fragment, and returns the seconds from the end
  // of the last upload to the last commit.
  double Round() {
    double begin = 0;
    for (std::vector<Contribution>& island : islands_) {
      for (Contribution& contribution : island) Upload(contribution);
      begin = Seconds();
      for (const Contribution& contribution : island) {
        const auto completed = engine_->Complete(contribution.header);
        CHECK(completed.ok()) << completed.status();
      }
    }
    ++version_;
    Await();
    return Seconds() - begin;
  }

  double values() const { return static_cast<double>(values_); }
  double uploaded() const { return uploaded_; }

 private:
  struct Contribution {
    v1::ContributionHeader header;
    std::string encoding;
  };

  void Join(int island, const v1::RunConfig& config) {
    v1::JoinRequest join;
    join.set_instance_id(1);
    join.set_island_id(absl::StrCat("island-", island));
    const auto joined = engine_->Join(join);
    CHECK(joined.ok()) << joined.status();
    v1::SessionRequest ready;
    *ready.mutable_identity() = joined->identity();
    ready.mutable_progress()->set_ready(true);
    CHECK(engine_->Heartbeat(ready).ok());
    std::mt19937 random(static_cast<uint32_t>(island));
    std::normal_distribution<float> normal(0, 1e-4f);
    const CodecSpec spec = UplinkSpec(config.synchronization());
    values_ = 0;
    std::vector<Contribution>& contributions = islands_.emplace_back();
    for (const v1::Fragment& fragment : joined->plan().fragments()) {
      values_ += fragment.size();
      std::vector<float> change(fragment.size());
      for (float& value : change) value = normal(random);
      auto& [header, encoding] = contributions.emplace_back();
      encoding =
          *Encode(spec, change, EncodeOptionsOf(config.synchronization()));
      *header.mutable_identity() = joined->identity();
      header.set_fragment(fragment.id());
      header.set_tokens(64);
      header.set_inner_steps(1);
      *header.mutable_object() =
          DescribeEncoding(spec, fragment.size(), encoding);
    }
  }

  // Starts the followers, and waits until they have everything.
  void Follow() {
    const int followers = absl::GetFlag(FLAGS_followers);
    if (followers == 0) return;
    auto server = CoordinatorServer::Start(
        engine_.get(), {.address = "127.0.0.1:0", .now = absl::Now});
    CHECK(server.ok()) << server.status();
    server_ = *std::move(server);
    for (int i = 0; i < followers; ++i) {
      auto follower = Follower::Open(
          {.state_dir = absl::StrCat(directory_.path(), "/copy", i),
           .name = absl::StrCat("f", i),
           .merge_threads = absl::GetFlag(FLAGS_merge_threads)});
      CHECK(follower.ok()) << follower.status();
      followers_.push_back(*std::move(follower));
      followers_.back()->Follow(absl::StrCat("127.0.0.1:", server_->port()));
    }
    const auto in_sync = [&] {
      const v1::RunStatus run = engine_->GetRun();
      return std::count_if(run.followers().begin(), run.followers().end(),
                           [](const v1::FollowerStatus& follower) {
                             return follower.state() ==
                                    v1::FollowerStatus::IN_SYNC;
                           });
    };
    while (in_sync() < followers) absl::SleepFor(absl::Milliseconds(10));
  }

  void Upload(Contribution& contribution) {
    auto& [header, bytes] = contribution;
    header.set_base_version(version_);
    const auto offered = engine_->Offer(header);
    CHECK(offered.ok()) << offered.status();
    CHECK(offered->verdict() == v1::ContributeResponse::UPLOAD);
    for (uint64_t offset = 0; offset < bytes.size(); offset += kMaxChunkBytes) {
      const auto last = engine_->Append(KeyOf(header), CutChunk(bytes, offset));
      CHECK(last.ok()) << last.status();
    }
    uploaded_ += static_cast<double>(bytes.size());
  }

  // Waits for the versions by news, as gRPC's calls do.
  void Await() {
    while (true) {
      uint64_t seen;
      {
        absl::MutexLock lock(&mu_);
        seen = news_;
      }
      const v1::ListFragmentsResponse response = engine_->ListFragments();
      if (std::all_of(response.fragments().begin(), response.fragments().end(),
                      [&](const v1::FragmentStatus& fragment) {
                        return fragment.head().version() >= version_;
                      })) {
        return;
      }
      const auto changed = [&] { return news_ != seen; };
      absl::MutexLock lock(&mu_);
      mu_.Await(absl::Condition(&changed));
    }
  }

  const TemporaryDirectory directory_ =
      *TemporaryDirectory::Make("causeway-commits");
  absl::Mutex mu_;
  uint64_t news_ = 0;
  std::unique_ptr<Engine> engine_;
  uint64_t listener_ = 0;
  std::unique_ptr<CoordinatorServer> server_;
  std::vector<std::unique_ptr<Follower>> followers_;
  // The contributions of each island, one to each fragment.
  std::vector<std::vector<Contribution>> islands_;
  uint64_t values_ = 0;
  uint64_t version_ = 0;
  double uploaded_ = 0;
};

void Measure(int islands, BenchmarkFigures& figures) {
  Bench bench(islands);
  // The first rounds warm caches up.
  for (int i = 0; i < 5; ++i) bench.Round();
  const double written = BytesWritten();
  const double uploaded = bench.uploaded();
  std::vector<double> seconds;
  for (int i = 0; i < absl::GetFlag(FLAGS_rounds); ++i) {
    seconds.push_back(bench.Round());
  }
  std::sort(seconds.begin(), seconds.end());
  const double median = seconds[seconds.size() / 2];
  const std::string suffix =
      islands == 2 ? "" : absl::StrCat("_", islands, "_islands");
  const double bytes =
      (BytesWritten() - written) / (bench.uploaded() - uploaded);
  figures.Add("commit_mvalues_per_second" + suffix,
              bench.values() / median / 1e6);
  figures.Add("bytes_written_per_uploaded" + suffix, bytes);
  figures.Add("commit_seconds" + suffix, median);
  figures.Add("commit_seconds_p10" + suffix, seconds[seconds.size() / 10]);
  figures.Add("commit_seconds_p90" + suffix, seconds[seconds.size() * 9 / 10]);
  figures.Add("values" + suffix, bench.values());
}

int Run() {
  BenchmarkFigures figures;
  for (const std::string& text : absl::GetFlag(FLAGS_islands)) {
    int islands = 0;
    if (!absl::SimpleAtoi(text, &islands) || islands < 1) {
      std::cerr << "--islands takes numbers above 0, not \"" << text << "\"\n";
      return 2;
    }
    Measure(islands, figures);
  }
  return figures.Write(absl::GetFlag(FLAGS_json)) ? 0 : 1;
}

}  // namespace
}  // namespace causeway

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage(
      "Values committed per second: benchmark [--json=FILE] [--rounds=N]");
  absl::ParseCommandLine(argc, argv);
  return causeway::Run();
}
