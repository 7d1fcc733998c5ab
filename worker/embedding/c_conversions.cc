// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/embedding/c_conversions.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/config/run_config.h"
#include "common/status_macros.h"
#include "common/transport/coordinator_target.h"
#include "common/transport/field_limits.h"
#include "common/transport/socket_address.h"
#include "google/protobuf/util/json_util.h"
#include "quantization/codec.h"
#include "worker/sync/coordinator_channel.h"

namespace causeway {
namespace {

absl::Status CheckRanks(const causeway_options& options) {
  if (options.rank < 0 || options.rank >= std::max(1, options.ranks)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "rank is ", options.rank,
        "; allowed: 0 to ranks - 1 = ", std::max(1, options.ranks) - 1));
  }
  if (options.ranks > kMostRanks) {
    return absl::InvalidArgumentError(absl::StrCat(
        "ranks is ", options.ranks, "; allowed: up to ", kMostRanks));
  }
  if (options.ranks <= 1) return absl::OkStatus();
  const std::string leader = Text(options.leader);
  if (leader.empty()) {
    return absl::InvalidArgumentError(
        "an island of several ranks needs `leader`, rank 0's host:port");
  }
  if (Text(options.rank_secret).size() < 32 && !IsLoopback(leader)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the leader is not on loopback, but at ", leader,
        ": set rank_secret, at least 32 bytes, the same on all ranks"));
  }
  return absl::OkStatus();
}

}  // namespace

std::string Text(const char* text) { return text == nullptr ? "" : text; }

std::string Json(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = true;
  std::string json;
  const auto printed =
      google::protobuf::util::MessageToJsonString(message, &json, options);
  return printed.ok() ? json : "{}";
}

absl::StatusOr<EmbeddedIslandOptions> ConvertOptions(
    const causeway_options& from) {
  RETURN_IF_ERROR(CheckRanks(from));
  EmbeddedIslandOptions to;
  to.connection.address = Text(from.coordinator);
  to.connection.now = SteadyWallClock();
  for (const double rate : {from.uplink_mbit_s, from.downlink_mbit_s}) {
    if (rate >= 0 && std::isfinite(rate)) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "uplink_mbit_s or downlink_mbit_s is ", rate,
        "; allowed: 0, or a rate in Mbit/s to which transfers are paced"));
  }
  to.connection.uplink_bytes_per_second = from.uplink_mbit_s * kBytesPerMbit;
  to.connection.downlink_bytes_per_second =
      from.downlink_mbit_s * kBytesPerMbit;
  to.connection.region = Text(from.region);
  if (!to.connection.region.empty() && !IsValidName(to.connection.region)) {
    return absl::InvalidArgumentError(
        absl::StrCat("region is \"", to.connection.region,
                     "\"; allowed: 1 to 64 of [a-z0-9-]"));
  }
  if (from.bulk_connections < 0 ||
      from.bulk_connections > kMaxBulkConnections) {
    return absl::InvalidArgumentError(
        absl::StrCat("bulk_connections is ", from.bulk_connections,
                     "; allowed: up to ", kMaxBulkConnections));
  }
  to.connection.bulk_connections = std::max(1, from.bulk_connections);
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
        "coordinator is empty; set it to the coordinator's host:port");
  }
  RETURN_IF_ERROR(CheckCoordinators(to.connection.address));
  Island::Options& island = to.island;
  island.join.set_island_id(Text(from.island));
  if (island.join.island_id().empty() && to.tls.tls.empty() && from.rank == 0) {
    return absl::InvalidArgumentError(
        "island is empty; set it to the island's name in the run");
  }
  island.join.set_description(Text(from.description));
  if (from.verbose > 1) island.log_interval = absl::ZeroDuration();
  if (from.overlap_steps >= 0) {
    island.overlap_steps = static_cast<uint32_t>(from.overlap_steps);
  }
  if (from.uplink_bits != 0) {
    if (!(from.uplink_bits >= kLeastEcqBits &&
          from.uplink_bits <= kMostEcqBits)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "uplink_bits is ", from.uplink_bits, "; allowed: ", kLeastEcqBits,
          " to ", kMostEcqBits, ", or 0 for the run's"));
    }
    island.uplink_bits = from.uplink_bits;
  }
  for (const double seconds :
       {from.leave_timeout_seconds, from.rank_timeout_seconds}) {
    if (seconds >= 0) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("leave_timeout_seconds or rank_timeout_seconds is ",
                     seconds, "; allowed: more than 0, or 0 for the default"));
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
  to.anchors_on_device = from.anchors_on_device != 0;
  if (from.rank_timeout_seconds > 0) {
    to.rank_timeout = absl::Seconds(from.rank_timeout_seconds);
  }
  return to;
}

absl::StatusOr<std::vector<TensorBuffer>> ConvertBuffers(
    const causeway_buffer* from, size_t count) {
  if (from == nullptr && count > 0) {
    return absl::InvalidArgumentError("the buffers are a null pointer");
  }
  std::vector<TensorBuffer> to;
  for (const causeway_buffer& buffer : absl::MakeConstSpan(from, count)) {
    TensorBuffer& added = to.emplace_back();
    added.name = Text(buffer.name);
    added.on_device = buffer.device == CAUSEWAY_CUDA;
    added.stream = buffer.stream;
    if (!added.on_device && buffer.device != CAUSEWAY_HOST) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor \"", added.name, "\" is on device number ",
                       buffer.device, "; allowed: those of causeway_device"));
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

}  // namespace causeway
