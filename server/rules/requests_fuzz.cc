// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Reads foreign bytes as requests of islands and operators, and hands those
// that pass the limits to the rules. In any case the tokens of each fragment
// add up, and no more members are live than allowed. The input is a sequence of
// kind (1 byte), length (2 bytes, little-endian), and a message of that length,
// or of the rest:
//
//   j h l     JoinRequest, SessionRequest, LeaveRequest
//   o c n     ContributionHeader: offered, complete, complete and not finite
//   p d e     PauseRunRequest, DrainIslandRequest, EvictIslandRequest
//   a x       AdmitContributionRequest, DropContributionRequest
//   g         AcceptDataRequest
//   r t m f   (not read) resumes; some seconds later; commits or fails the
//             oldest outer step
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"
#include "common/transport/chunk_message.h"
#include "common/transport/field_limits.h"
#include "glog/logging.h"
#include "google/protobuf/stubs/logging.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/slice.h"
#include "proto/control.pb.h"
#include "proto/coordinator.pb.h"
#include "server/rules/coordinator.h"
#include "server/rules/rank_parts.h"
#include "server/rules/testing/coordinator_driver.h"

namespace causeway {
namespace {

constexpr uint32_t kFragments = 2;
constexpr uint32_t kMaxIslands = 3;
// The rest of a longer input is ignored, so that inputs are fast.
constexpr int kMostMessages = 32;

// Calls `act` with the message in `bytes`, if a request with it is let through.
template <typename Message, typename Act>
void Request(absl::string_view bytes, Act act) {
  const grpc::Slice slice(bytes.data(), bytes.size());
  grpc::ByteBuffer buffer(&slice, 1);
  Message message;
  if (!ParseByteBuffer(buffer, message).ok()) return;
  if (CheckFieldLimits(message).ok()) act(message);
}

// Returns parts of the header's ranks: `squares` for the first, 1 for others.
RankParts PartsOf(const v1::ContributionHeader& header, double squares) {
  RankParts parts{.ranks = static_cast<uint64_t>(header.rank_ends_size())};
  for (uint32_t rank = 0; rank < parts.ranks; ++rank) {
    parts.runs.push_back({rank, rank, header.rank_ends(rank), squares});
    squares = 1;
  }
  return parts;
}

void Act(char kind, absl::string_view bytes, CoordinatorDriver& driver) {
  Coordinator& core = driver.core();
  Effects& effects = driver.effects();
  const auto complete = [&](double norm) {
    Request<v1::ContributionHeader>(bytes, [&](const auto& header) {
      // The engine asks for a contribution's bytes before it is complete.
      const auto offered = driver.Offer(header);
      if (offered.ok() &&
          offered->verdict() == v1::ContributeResponse::UPLOAD) {
        (void)driver.Complete(header, norm, PartsOf(header, norm));
      }
    });
  };
  switch (kind) {
    case 'j':
      return Request<v1::JoinRequest>(bytes, [&](const auto& request) {
        (void)core.Join(request, driver.now(), effects);
      });
    case 'h':
      return Request<v1::SessionRequest>(bytes, [&](const auto& request) {
        if (driver.Heartbeat(request.identity(), request.progress()).ok()) {
          (void)core.View(request.identity());
        }
      });
    case 'l':
      return Request<v1::LeaveRequest>(bytes, [&](const auto& request) {
        (void)core.Leave(request, driver.now(), effects);
      });
    case 'o':
      return Request<v1::ContributionHeader>(
          bytes, [&](const auto& header) { (void)driver.Offer(header); });
    case 'c':
      return complete(1);
    case 'n':
      return complete(NAN);
    case 'p':
      return Request<v1::PauseRunRequest>(bytes, [&](const auto& request) {
        (void)core.Pause(request.reason(), driver.now(), effects);
      });
    case 'd':
      return Request<v1::DrainIslandRequest>(bytes, [&](const auto& request) {
        (void)core.Drain(request.island_id(), request.reason(), effects);
      });
    case 'e':
      return Request<v1::EvictIslandRequest>(bytes, [&](const auto& request) {
        (void)core.Evict(request.island_id(), request.reason(), driver.now(),
                         effects);
      });
    case 'a':
      return Request<v1::AdmitContributionRequest>(
          bytes, [&](const auto& request) {
            (void)core.Admit(request.id(), driver.now(), effects);
          });
    case 'x':
      return Request<v1::DropContributionRequest>(
          bytes,
          [&](const auto& request) { (void)core.Drop(request.id(), effects); });
    case 'g':
      return Request<v1::AcceptDataRequest>(bytes, [&](const auto& request) {
        (void)core.AcceptData(request.island_id(), effects);
      });
    case 'r':
      (void)core.Resume(driver.now(), effects);
      return;
    case 't':
      return driver.Advance(absl::Seconds(bytes.size()));
    case 'm':
      if (!driver.closed_rounds().empty()) driver.Commit();
      return;
    case 'f':
      if (!driver.closed_rounds().empty()) {
        driver.Fail(absl::OutOfRangeError("not finite"));
      }
      return;
    default:
      return;
  }
}

void CheckBooks(const Coordinator& core) {
  for (uint32_t fragment = 0; fragment < kFragments; ++fragment) {
    const v1::TokenLedger books = core.FragmentLedger(fragment);
    CHECK_EQ(books.reported(), books.merged() + books.partial_merged() +
                                   books.expired() + books.refused() +
                                   books.quarantined() + books.pending());
  }
}

void Run(absl::string_view input) {
  // As in the coordinator's main: a text that is not UTF-8 would be logged.
  google::protobuf::SetLogHandler(nullptr);
  CoordinatorDriver driver(
      {.max_islands = kMaxIslands, .fragments = kFragments});
  driver.Join("a");
  driver.Join("b");
  for (int i = 0; i < kMostMessages && input.size() >= 3; ++i) {
    const size_t length =
        static_cast<uint8_t>(input[1]) | static_cast<uint8_t>(input[2]) << 8;
    const absl::string_view message = input.substr(3, length);
    Act(input[0], message, driver);
    input.remove_prefix(3 + message.size());
    driver.Tick();
    CheckBooks(driver.core());
    CHECK_LE(driver.core().membership().live_count(), kMaxIslands);
  }
}

}  // namespace
}  // namespace causeway

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  causeway::Run(absl::string_view(reinterpret_cast<const char*>(data), size));
  return 0;
}
