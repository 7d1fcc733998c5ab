// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/benchmarks/ingest_measurement.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/barrier.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/config/run_config.h"
#include "common/testing/temporary_directory.h"
#include "common/transport/bulk_stream.h"
#include "common/transport/chunk.h"
#include "common/transport/chunk_message.h"
#include "common/transport/credentials.h"
#include "common/transport/testing/certificates.h"
#include "glog/logging.h"
#include "grpcpp/generic/async_generic_service.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/grpcpp.h"
#include "proto/control.pb.h"
#include "proto/coordinator.pb.h"
#include "quantization/codec.h"
#include "quantization/testing/whole_vectors.h"
#include "server/edge/server.h"
#include "server/engine.h"

namespace causeway {
namespace {

constexpr char kMethod[] = "/causeway.v1.Coordinator/Contribute";
constexpr char kHost[] = "coordinator.example";
constexpr CodecSpec kSpec = {.format = v1::E3M0, .block_size = 256};
constexpr int kUploadsPerTurn = 4;

// A run with one fragment of 68 million values.
v1::RunConfig Config(int islands) {
  auto config = ParseRunConfig(
      R"pb(
        name: "ingest"
        model {
          layers: 1
          hidden_size: 1024
          intermediate_size: 32
          heads: 8
          vocab_size: 32768
          sequence_length: 8
          tie_embeddings: false
        }
        data { tokenizer: PRETOKENIZED }
        training { total_steps: 10 batch_size: 1 }
        synchronization {
          inner_steps_per_round: 10
          uplink_format: E3M0
          downlink_format: E3M0
          entropy_coding: false
        }
      )pb",
      "ingest");
  CHECK(config.ok()) << config.status();
  config->mutable_membership()->set_min_islands(static_cast<uint32_t>(islands));
  config->mutable_membership()->set_max_islands(static_cast<uint32_t>(islands));
  return *std::move(config);
}

// Reads every message of a call and drops it.
class DroppingService : public grpc::CallbackGenericService {
 public:
  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext*) override {
    class Reactor : public grpc::ServerGenericBidiReactor {
     public:
      Reactor() { StartRead(&message_); }
      void OnReadDone(bool ok) override {
        if (!ok) return Finish(grpc::Status::OK);
        StartRead(&message_);
      }
      void OnDone() override { delete this; }

     private:
      grpc::ByteBuffer message_;
    };
    return new Reactor;
  }
};

// The messages of one upload, made in advance, so that only gRPC's cost of
// sending is measured.
struct Upload {
  grpc::ByteBuffer header;
  std::vector<grpc::ByteBuffer> chunks;
};

struct Cost {
  double seconds = 0;
  double cpu_seconds = 0;
};

class Bench {
 public:
  Bench(bool tls, int channels) : channels_(channels) {
    ServerTlsFiles server_files;
    ClientTlsFiles client_files;
    const absl::Time now = absl::Now();
    const Validity valid = {now - absl::Hours(1), now + absl::Hours(1)};
    TestAuthority authority(directory_.path() + "/authority", valid);
    if (tls) {
      const TestIdentity identity = authority.Sign(kHost, valid);
      server_files = {identity.certificate, identity.key};
      client_files.tls_ca = authority.certificate();
    }
    const auto server_credentials = MakeServerCredentials(server_files, now);
    CHECK(server_credentials.ok()) << server_credentials.status();
    client_credentials_ = *MakeChannelCredentials(client_files, now);

    // Time stands still, so that no lease ends.
    auto engine = Engine::Start({.state_dir = directory_.path() + "/state",
                                 .config = Config(channels),
                                 .random = 1,
                                 .now = [now] { return now; }});
    CHECK(engine.ok()) << engine.status();
    engine_ = *std::move(engine);
    auto server = CoordinatorServer::Start(
        engine_.get(), {.address = "127.0.0.1:0",
                        .now = SteadyWallClock(),
                        .credentials = *server_credentials});
    CHECK(server.ok()) << server.status();
    server_ = *std::move(server);

    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", *server_credentials, &bare_port_);
    builder.RegisterCallbackGenericService(&dropping_service_);
    bare_server_ = builder.BuildAndStart();
    CHECK(bare_server_ != nullptr);
    Encode();
  }

  Cost Bare() {
    return Turn(bare_port_, kUploadsPerTurn,
                [](const Upload& upload, grpc::GenericStub& stub) {
                  grpc::ClientContext context;
                  BulkStream stream(stub, kMethod, &context);
                  CHECK(stream.Write(upload.header));
                  for (const grpc::ByteBuffer& chunk : upload.chunks) {
                    CHECK(stream.Write(chunk));
                  }
                  stream.WritesDone();
                  CHECK(stream.Finish().ok());
                });
  }
  Cost Ingest() {
    return Turn(server_->port(), kUploadsPerTurn,
                [](const Upload& upload, grpc::GenericStub& stub) {
                  const grpc::Status status = Ingest(upload, stub);
                  CHECK(IsWhole(status)) << status.error_message();
                });
  }
  UploadSoak Soak(absl::Duration time) {
    UploadSoak soak;
    absl::Mutex mu;
    const absl::Time end = absl::Now() + time;
    while (absl::Now() < end) {
      Turn(server_->port(), /*uploads=*/1,
           [&](const Upload& upload, grpc::GenericStub& stub) {
             const grpc::Status status = Ingest(upload, stub);
             const v1::ListPeersResponse peers =
                 server_->status().connections->Peers();
             absl::MutexLock lock(&mu);
             ++soak.uploads;
             for (const v1::PeerUse& peer : peers.peers()) {
               soak.most_held_bytes =
                   std::max<uint64_t>(soak.most_held_bytes, peer.held_bytes());
             }
             if (IsWhole(status)) return;
             if (soak.broken++ == 0) soak.error = status.error_message();
           });
    }
    soak.cut = server_->status().GetRun().connections().cut();
    return soak;
  }

  double bytes_per_turn() const {
    return static_cast<double>(encoded_->size()) * kUploadsPerTurn * channels_;
  }

 private:
  static grpc::Status Ingest(const Upload& upload, grpc::GenericStub& stub) {
    grpc::ClientContext context;
    BulkStream stream(stub, kMethod, &context);
    grpc::ByteBuffer verdict;
    if (!stream.Write(upload.header) || !stream.Read(&verdict)) {
      return stream.Finish();
    }
    for (const grpc::ByteBuffer& chunk : upload.chunks) {
      if (!stream.Write(chunk)) return stream.Finish();
    }
    stream.WritesDone();
    return stream.Finish();
  }
  // Returns whether the server took all of an upload and found its digest
  // wrong.
  static bool IsWhole(const grpc::Status& status) {
    return status.error_code() == grpc::StatusCode::DATA_LOSS;
  }

  void Encode() {
    v1::JoinRequest join;
    join.set_instance_id(1);
    for (int channel = 0; channel < channels_; ++channel) {
      join.set_island_id(absl::StrCat("island-", channel));
      const auto joined = engine_->Join(join);
      CHECK(joined.ok()) << joined.status();
      v1::SessionRequest ready;
      *ready.mutable_identity() = joined->identity();
      ready.mutable_progress()->set_ready(true);
      CHECK(engine_->Heartbeat(ready).ok());
      identities_.push_back(joined->identity());
      values_ = joined->plan().fragments(0).size();
    }
    const std::vector<float> values(values_, 0.5f);
    encoded_ =
        std::make_shared<const std::string>(*causeway::Encode(kSpec, values));
    object_ = DescribeEncoding(kSpec, values_, *encoded_);
    object_.set_digest(std::string(object_.digest().size(), 'x'));
  }

  Upload MakeUpload(int channel) const {
    Upload upload;
    v1::ContributeRequest request;
    v1::ContributionHeader& header = *request.mutable_header();
    *header.mutable_identity() = identities_[static_cast<size_t>(channel)];
    header.set_tokens(1);
    header.set_inner_steps(1);
    *header.mutable_object() = object_;
    upload.header = ToByteBuffer(request);
    for (uint64_t offset = 0; offset < encoded_->size();
         offset += kMaxChunkBytes) {
      upload.chunks.push_back(ToByteBuffer(
          v1::ContributeRequest(), v1::ContributeRequest::kChunkFieldNumber,
          CutChunk(*encoded_, offset), encoded_));
    }
    return upload;
  }

  // Sends `uploads` uploads on every channel, over a new connection.
  template <typename Send>
  Cost Turn(int port, int uploads, const Send& send) {
    absl::Barrier* const ready = new absl::Barrier(channels_ + 1);
    std::vector<std::thread> threads;
    for (int channel = 0; channel < channels_; ++channel) {
      threads.emplace_back([this, port, uploads, channel, ready, &send] {
        grpc::ChannelArguments arguments;
        arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
        arguments.SetSslTargetNameOverride(kHost);
        const auto connection = grpc::CreateCustomChannel(
            absl::StrCat("127.0.0.1:", port), client_credentials_, arguments);
        CHECK(connection->WaitForConnected(
            absl::ToChronoTime(absl::Now() + absl::Seconds(10))));
        grpc::GenericStub stub(connection);
        const Upload upload = MakeUpload(channel);
        if (ready->Block()) delete ready;
        for (int i = 0; i < uploads; ++i) send(upload, stub);
      });
    }
    if (ready->Block()) delete ready;
    const absl::Time begin = absl::Now();
    const std::clock_t cpu_begin = std::clock();
    for (std::thread& thread : threads) thread.join();
    return {.seconds = absl::ToDoubleSeconds(absl::Now() - begin),
            .cpu_seconds =
                static_cast<double>(std::clock() - cpu_begin) / CLOCKS_PER_SEC};
  }

  const int channels_;
  const TemporaryDirectory directory_ =
      *TemporaryDirectory::Make("causeway-ingest");
  std::shared_ptr<grpc::ChannelCredentials> client_credentials_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<CoordinatorServer> server_;
  DroppingService dropping_service_;
  std::unique_ptr<grpc::Server> bare_server_;
  int bare_port_ = 0;
  std::vector<v1::IslandIdentity> identities_;
  uint64_t values_ = 0;
  std::shared_ptr<const std::string> encoded_;
  v1::EncodedObject object_;
};

double Median(const std::vector<Cost>& costs, double Cost::*member) {
  std::vector<double> values;
  for (const Cost& cost : costs) values.push_back(cost.*member);
  const auto middle =
      values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

IngestMeasurement MeasureIngest(bool tls, int channels, int repetitions) {
  Bench bench(tls, channels);
  // Touch the memory and try the connections once.
  bench.Bare();
  bench.Ingest();
  std::vector<Cost> bare;
  std::vector<Cost> ingest;
  for (int i = 0; i < repetitions; ++i) {
    bare.push_back(bench.Bare());
    ingest.push_back(bench.Ingest());
  }
  const double bytes = bench.bytes_per_turn();
  return {
      .bare_bytes_per_second = bytes / Median(bare, &Cost::seconds),
      .ingest_bytes_per_second = bytes / Median(ingest, &Cost::seconds),
      .bare_cpu_seconds_per_byte = Median(bare, &Cost::cpu_seconds) / bytes,
      .ingest_cpu_seconds_per_byte = Median(ingest, &Cost::cpu_seconds) / bytes,
  };
}

UploadSoak SoakUploads(bool tls, int channels, absl::Duration time) {
  return Bench(tls, channels).Soak(time);
}

}  // namespace causeway
