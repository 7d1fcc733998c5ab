// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The C interface: checks what comes in, and converts it to EmbeddedIsland's
// types and back.
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/clock.h"
#include "common/model_layout.h"
#include "common/status_macros.h"
#include "common/tensors_layout.h"
#include "common/transport/socket_address.h"
#include "glog/logging.h"
#include "google/protobuf/util/json_util.h"
#include "worker/embedding/causeway.h"
#include "worker/embedding/embedded_island.h"
#include "worker/embedding/local_tensors.h"

struct causeway_island {
  pid_t process = getpid();
  std::unique_ptr<causeway::EmbeddedIsland> island;
  // Set by causeway_await_run; null before.
  const causeway::v1::JoinResponse* joined = nullptr;
  std::string configuration;
  causeway::ModelLayout layout;
  std::vector<uint32_t> fragment_of_tensor;
  bool attached = false;
  bool in_step = false;
  std::string progress;
};

namespace causeway {
namespace {

constexpr double kBytesPerMbit = 1e6 / 8;

std::string& LastError() {
  thread_local std::string error;
  return error;
}

// Does `work`, which returns a status; keeps its message.
template <typename Work>
causeway_code Guard(Work work) {
  absl::Status status;
  try {
    status = work();
  } catch (const std::bad_alloc&) {
    status = absl::ResourceExhaustedError("out of memory");
  }
  if (!status.ok()) LastError() = std::string(status.message());
  return static_cast<causeway_code>(status.raw_code());
}

absl::Status CheckProcess(const causeway_island* island) {
  if (island == nullptr) {
    return absl::InvalidArgumentError("the island is a null pointer");
  }
  if (island->process == getpid()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "the island belongs to process ", island->process, "; this is process ",
      getpid(), ", a fork of it, which cannot use it"));
}

absl::Status CheckJoined(const causeway_island* island) {
  RETURN_IF_ERROR(CheckProcess(island));
  if (island->joined != nullptr) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "causeway_await_run has not returned CAUSEWAY_OK yet");
}

absl::Status CheckAttached(const causeway_island* island) {
  RETURN_IF_ERROR(CheckJoined(island));
  if (island->attached) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "causeway_attach has not said yet where the parameters are");
}

std::string Text(const char* text) { return text == nullptr ? "" : text; }

absl::Duration Timeout(double seconds) {
  return seconds > 0 ? absl::Seconds(seconds) : absl::ZeroDuration();
}

std::string Json(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = true;
  std::string json;
  const auto printed =
      google::protobuf::util::MessageToJsonString(message, &json, options);
  return printed.ok() ? json : "{}";
}

void PrepareLogging(bool verbose) {
  static std::once_flag once;
  std::call_once(once, [&] {
    FLAGS_logtostderr = true;
    FLAGS_minloglevel = verbose ? google::INFO : google::WARNING;
    if (!google::IsGoogleLoggingInitialized()) {
      google::InitGoogleLogging("causeway");
    }
  });
}

std::optional<double> BytesPerSecond(double mbit_s) {
  if (mbit_s < 0) return std::nullopt;
  return mbit_s * kBytesPerMbit;
}

absl::Status CheckRanks(const causeway_options& options) {
  if (options.rank < 0 || options.rank >= std::max(1, options.ranks)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "rank is ", options.rank,
        "; allowed: 0 to ranks - 1 = ", std::max(1, options.ranks) - 1));
  }
  if (options.ranks <= 1) return absl::OkStatus();
  const std::string leader = Text(options.leader);
  if (leader.empty()) {
    return absl::InvalidArgumentError(
        "an island of several ranks needs `leader`, rank 0's host:port");
  }
  if (Text(options.rank_secret).size() < 32 && !IsLoopback(leader)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "other machines reach the leader ", leader,
        ": set rank_secret, at least 32 bytes, the same on all ranks"));
  }
  return absl::OkStatus();
}

absl::StatusOr<EmbeddedIslandOptions> Convert(const causeway_options& from) {
  RETURN_IF_ERROR(CheckRanks(from));
  EmbeddedIslandOptions to;
  to.connection.address = Text(from.coordinator);
  to.connection.now = SteadyWallClock();
  to.connection.uplink_bytes_per_second = BytesPerSecond(from.uplink_mbit_s);
  to.connection.downlink_bytes_per_second =
      BytesPerSecond(from.downlink_mbit_s);
  to.connection.bulk_connections = std::max(1, from.bulk_connections);
  if (to.connection.bulk_connections > kMaxBulkConnections) {
    return absl::InvalidArgumentError(
        absl::StrCat("bulk_connections is ", from.bulk_connections,
                     "; at most ", kMaxBulkConnections));
  }
  to.tls = {.tls_ca = Text(from.tls_ca),
            .tls_cert = Text(from.tls_cert),
            .tls_key = Text(from.tls_key),
            .tls = Text(from.tls)};
  to.join_token = Text(from.join_token);
  if (!to.join_token.empty() && to.tls.tls.empty()) {
    return absl::InvalidArgumentError(
        "join_token needs tls, a folder for the certificate");
  }
  if (to.connection.address.empty() && from.rank == 0) {
    return absl::InvalidArgumentError(
        "coordinator is empty; it is the coordinator's host:port");
  }
  Island::Options& island = to.island;
  island.join.set_island_id(Text(from.island));
  if (island.join.island_id().empty() && to.tls.tls.empty() && from.rank == 0) {
    return absl::InvalidArgumentError(
        "island is empty; it is the island's name in the run");
  }
  island.join.set_description(Text(from.description));
  if (from.overlap_steps >= 0) {
    island.overlap_steps = static_cast<uint32_t>(from.overlap_steps);
  }
  island.initial_parameters = Text(from.initial_parameters);
  island.checkpoint_steps =
      from.checkpoint_steps == 0 ? 100 : from.checkpoint_steps;
  if (from.leave_timeout_seconds > 0) {
    island.leave_timeout = absl::Seconds(from.leave_timeout_seconds);
  }
  to.checkpoint_directory = Text(from.checkpoint_directory);
  to.resume_directory = Text(from.resume_directory);
  to.rank = from.rank;
  to.ranks = std::max(1, from.ranks);
  to.leader = Text(from.leader);
  to.secret = Text(from.rank_secret);
  to.host = Text(from.rank_host);
  if (to.host.empty() && IsLoopback(to.leader)) {
    to.host = std::string(HostOf(to.leader));
  }
  to.encrypt = from.encrypt_ranks != 0;
  if (from.rank_timeout_seconds > 0) {
    to.rank_timeout = absl::Seconds(from.rank_timeout_seconds);
  }
  return to;
}

absl::StatusOr<std::vector<TensorBuffer>> Convert(
    absl::Span<const causeway_buffer> from) {
  std::vector<TensorBuffer> to;
  for (const causeway_buffer& buffer : from) {
    TensorBuffer& added = to.emplace_back();
    added.name = Text(buffer.name);
    if (buffer.device != CAUSEWAY_HOST) {
      return absl::UnimplementedError(
          absl::StrCat("tensor \"", added.name,
                       "\" is not in host memory, and this library was built "
                       "without CUDA"));
    }
    if (buffer.dtype < CAUSEWAY_FLOAT32 || buffer.dtype > CAUSEWAY_FLOAT16) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor \"", added.name, "\" has type number ",
                       buffer.dtype, "; allowed: those of causeway_dtype"));
    }
    added.type = static_cast<ElementType>(buffer.dtype);
    if (buffer.shape != nullptr) {
      added.shape.emplace(buffer.shape, buffer.shape + buffer.dimensions);
    }
    if (buffer.count > 0 || buffer.first > 0 || buffer.data == nullptr) {
      added.values = Slice{static_cast<int64_t>(buffer.first),
                           static_cast<int64_t>(buffer.first + buffer.count)};
    }
    added.data = buffer.data;
  }
  return to;
}

void SetRun(causeway_island& island, const v1::JoinResponse& joined,
            causeway_run& run) {
  const v1::RunConfig& config = joined.config();
  run = {.run_id = joined.identity().run_id().c_str(),
         .name = config.name().c_str(),
         .island = joined.identity().island_id().c_str(),
         .shard = joined.shard(),
         .shards = joined.shards(),
         .step = joined.run_step(),
         .total_steps = config.training().total_steps(),
         .batch_size = config.training().batch_size(),
         .sequence_length = config.has_tensors()
                                ? config.tensors().sequence_length()
                                : config.model().sequence_length(),
         .parameters = static_cast<uint64_t>(island.layout.size),
         .tensors = static_cast<uint32_t>(island.layout.tensors.size()),
         .fragments = static_cast<uint32_t>(joined.plan().fragments_size()),
         .configuration = island.configuration.c_str()};
}

absl::Status TakeUpRun(causeway_island& island,
                       const v1::JoinResponse& joined) {
  ASSIGN_OR_RETURN(island.layout, RunLayout(joined.config(), joined.plan()));
  std::map<std::string, uint32_t> fragments;
  for (int fragment = 0; fragment < joined.plan().fragments_size();
       ++fragment) {
    for (const auto& tensor : joined.plan().fragments(fragment).tensors()) {
      fragments[tensor.name()] = static_cast<uint32_t>(fragment);
    }
  }
  island.fragment_of_tensor.clear();
  for (const TensorSpec& tensor : island.layout.tensors) {
    island.fragment_of_tensor.push_back(fragments[tensor.name]);
  }
  island.configuration = Json(joined.config());
  island.joined = &joined;
  return absl::OkStatus();
}

absl::Status NextStep(causeway_island& island, double timeout_seconds,
                      causeway_step* step) {
  const absl::StatusOr<uint64_t> next =
      island.island->NextStep(Timeout(timeout_seconds));
  *step = {.step = next.ok() ? *next : 0,
           .finished = next.ok() && *next == 0,
           .activity = island.island->Activity(),
           .waited_seconds = absl::ToDoubleSeconds(island.island->Waited())};
  island.in_step = next.ok() && *next > 0;
  return next.status();
}

}  // namespace
}  // namespace causeway

using causeway::Guard;

const char* causeway_last_error(void) { return causeway::LastError().c_str(); }

uint32_t causeway_abi_version(void) { return CAUSEWAY_ABI_VERSION; }

causeway_code causeway_open(const causeway_options* options,
                            causeway_island** island) {
  return Guard([&]() -> absl::Status {
    if (options == nullptr || island == nullptr) {
      return absl::InvalidArgumentError("a null pointer was passed");
    }
    *island = nullptr;
    if (options->struct_size < sizeof(size_t) ||
        options->struct_size > sizeof(causeway_options)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "struct_size is ", options->struct_size, "; this library knows ",
          sizeof(causeway_options),
          " bytes: start from CAUSEWAY_OPTIONS_INIT, with a library that is "
          "not older than the header"));
    }
    // What an older header does not have yet keeps its default.
    causeway_options known = CAUSEWAY_OPTIONS_INIT;
    std::memcpy(&known, options, options->struct_size);
    causeway::PrepareLogging(known.verbose != 0);
    ASSIGN_OR_RETURN(causeway::EmbeddedIslandOptions converted,
                     causeway::Convert(known));
    auto opened = std::make_unique<causeway_island>();
    ASSIGN_OR_RETURN(opened->island,
                     causeway::EmbeddedIsland::Open(std::move(converted)));
    *island = opened.release();
    return absl::OkStatus();
  });
}

const char* causeway_leader(const causeway_island* island) {
  return island == nullptr ? "" : island->island->leader().c_str();
}

void causeway_close(causeway_island* island) {
  if (island == nullptr) return;
  // The threads of the island are not in a fork: what they hold stays held.
  if (island->process == getpid()) delete island;
}

causeway_code causeway_await_run(causeway_island* island,
                                 double timeout_seconds, causeway_run* run) {
  return Guard([&]() -> absl::Status {
    RETURN_IF_ERROR(causeway::CheckProcess(island));
    ASSIGN_OR_RETURN(
        const causeway::v1::JoinResponse* joined,
        island->island->AwaitRun(causeway::Timeout(timeout_seconds)));
    if (island->joined == nullptr) {
      RETURN_IF_ERROR(causeway::TakeUpRun(*island, *joined));
    }
    causeway::SetRun(*island, *joined, *run);
    return absl::OkStatus();
  });
}

causeway_code causeway_tensor_at(const causeway_island* island, uint32_t index,
                                 causeway_tensor* tensor) {
  return Guard([&]() -> absl::Status {
    RETURN_IF_ERROR(causeway::CheckJoined(island));
    const auto& tensors = island->layout.tensors;
    if (index >= tensors.size()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "there is no tensor ", index, "; the run has ", tensors.size()));
    }
    *tensor = {.name = tensors[index].name.c_str(),
               .shape = tensors[index].shape.data(),
               .dimensions = static_cast<uint32_t>(tensors[index].shape.size()),
               .fragment = island->fragment_of_tensor[index]};
    return absl::OkStatus();
  });
}

causeway_code causeway_attach(causeway_island* island,
                              const causeway_buffer* buffers, size_t count) {
  return Guard([&]() -> absl::Status {
    RETURN_IF_ERROR(causeway::CheckJoined(island));
    if (island->attached) {
      return absl::InvalidArgumentError("tensors are attached already");
    }
    ASSIGN_OR_RETURN(const auto converted,
                     causeway::Convert(absl::MakeConstSpan(buffers, count)));
    RETURN_IF_ERROR(island->island->Attach(converted));
    island->attached = true;
    return absl::OkStatus();
  });
}

causeway_code causeway_next_step(causeway_island* island,
                                 double timeout_seconds, causeway_step* step) {
  return Guard([&]() -> absl::Status {
    RETURN_IF_ERROR(causeway::CheckAttached(island));
    if (island->in_step) {
      return absl::InvalidArgumentError(
          "the last step was not reported by causeway_after_step");
    }
    return causeway::NextStep(*island, timeout_seconds, step);
  });
}

causeway_code causeway_after_step(causeway_island* island,
                                  const causeway_report* report,
                                  double timeout_seconds, causeway_step* step) {
  return Guard([&]() -> absl::Status {
    RETURN_IF_ERROR(causeway::CheckAttached(island));
    if (!island->in_step) {
      return absl::InvalidArgumentError(
          "no step is under way: causeway_next_step orders them");
    }
    island->in_step = false;
    island->island->Stepped({.loss = report->loss,
                             .learning_rate = report->learning_rate,
                             .tokens = report->tokens});
    return causeway::NextStep(*island, timeout_seconds, step);
  });
}

causeway_code causeway_request_leave(causeway_island* island,
                                     const char* reason) {
  return Guard([&]() -> absl::Status {
    RETURN_IF_ERROR(causeway::CheckProcess(island));
    island->island->RequestLeave(causeway::Text(reason));
    return absl::OkStatus();
  });
}

causeway_code causeway_progress(causeway_island* island, const char** json) {
  return Guard([&]() -> absl::Status {
    RETURN_IF_ERROR(causeway::CheckProcess(island));
    ASSIGN_OR_RETURN(const causeway::v1::IslandProgress progress,
                     island->island->Progress());
    island->progress = causeway::Json(progress);
    *json = island->progress.c_str();
    return absl::OkStatus();
  });
}

causeway_code causeway_read_merged(causeway_island* island,
                                   const causeway_buffer* buffers,
                                   size_t count) {
  return Guard([&]() -> absl::Status {
    RETURN_IF_ERROR(causeway::CheckAttached(island));
    ASSIGN_OR_RETURN(const auto converted,
                     causeway::Convert(absl::MakeConstSpan(buffers, count)));
    ASSIGN_OR_RETURN(auto tensors,
                     causeway::LocalTensors::Create(island->layout, converted,
                                                    /*whole=*/false));
    std::vector<float> model(static_cast<size_t>(island->layout.size));
    RETURN_IF_ERROR(island->island->ReadMerged(absl::MakeSpan(model)));
    for (const causeway::Slice& slice : tensors.slices()) {
      tensors.Write(
          slice, absl::MakeConstSpan(model).subspan(slice.begin, slice.size()));
    }
    return absl::OkStatus();
  });
}

causeway_code causeway_save(causeway_island* island, const char* directory) {
  return Guard([&]() -> absl::Status {
    RETURN_IF_ERROR(causeway::CheckAttached(island));
    if (!island->in_step) {
      return absl::FailedPreconditionError(
          "the state is saved between causeway_next_step and "
          "causeway_after_step");
    }
    return island->island->Save(causeway::Text(directory));
  });
}
