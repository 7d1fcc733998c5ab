// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The C interface: checks arguments, and converts them to EmbeddedIsland's
// types and back.
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/checkpoint/initial_values.h"
#include "common/config/run_config.h"
#include "common/status_macros.h"
#include "common/tensors/model_layout.h"
#include "glog/logging.h"
#include "outer_optimizer/fragment_plan.h"
#include "proto/run_config.pb.h"
#include "worker/collective/culprit.h"
#include "worker/collective/rank_stamps.h"
#include "worker/embedding/c_conversions.h"
#include "worker/embedding/c_guard.h"
#include "worker/embedding/causeway.h"
#include "worker/embedding/embedded_island.h"
#include "worker/embedding/local_tensors.h"
#include "worker/replica/device/device_queue.h"
#include "worker/training/gradient_audit.h"

struct causeway_island {
  pid_t process = getpid();
  std::unique_ptr<causeway::EmbeddedIsland> island;
  // Set by causeway_await_run, like the next two.
  bool joined = false;
  std::string configuration;
  std::vector<uint32_t> fragment_of_tensor;
  bool attached = false;
  bool in_step = false;
  // Texts handed out to the caller.
  std::string activity;
  std::string progress;
};

namespace causeway {
namespace {

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
  if (island->joined) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "causeway_await_run has not returned CAUSEWAY_OK yet");
}

// Also returns the error that has ended the island.
absl::Status CheckAttached(const causeway_island* island) {
  RETURN_IF_ERROR(CheckJoined(island));
  RETURN_IF_ERROR(island->island->Failure());
  if (island->attached) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "call causeway_attach first: it says where the parameters are");
}

// Tells the program that started this rank, if it watches, which ranks may
// compute wrong numbers.
void StampCorrupt(const absl::Status& verdict, size_t ranks) {
  RankStampPage* const stamps = OpenedRankStamps();
  const std::optional<v1::RankTrouble> trouble = RankTroubleOf(verdict);
  for (int rank = 0; stamps != nullptr && rank < kMostRanks; ++rank) {
    const bool is_suspect = trouble.has_value()
                                ? trouble->rank() == static_cast<uint32_t>(rank)
                                : static_cast<size_t>(rank) < ranks;
    if (is_suspect) stamps->SetCorrupt(rank);
  }
}

absl::Duration Timeout(double seconds) {
  return seconds > 0 ? absl::Seconds(seconds) : absl::ZeroDuration();
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

uint64_t RandomId() {
  std::random_device random;
  return (uint64_t{random()} << 32 | random()) | 1;  // 0 means none.
}

void SetRun(const causeway_island& island, causeway_run& run) {
  const v1::JoinResponse& joined = island.island->run();
  const ModelLayout& layout = island.island->layout();
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
         .parameters = static_cast<uint64_t>(layout.size),
         .tensors = static_cast<uint32_t>(layout.tensors.size()),
         .fragments = static_cast<uint32_t>(joined.plan().fragments_size()),
         .configuration = island.configuration.c_str()};
}

void TakeUpRun(causeway_island& island) {
  const v1::JoinResponse& joined = island.island->run();
  std::map<std::string, uint32_t> fragments;
  for (int fragment = 0; fragment < joined.plan().fragments_size();
       ++fragment) {
    for (const auto& tensor : joined.plan().fragments(fragment).tensors()) {
      fragments[tensor.name()] = static_cast<uint32_t>(fragment);
    }
  }
  for (const TensorSpec& tensor : island.island->layout().tensors) {
    island.fragment_of_tensor.push_back(fragments[tensor.name]);
  }
  island.configuration = Json(joined.config());
  island.joined = true;
}

absl::Status NextStep(causeway_island& island, double timeout_seconds,
                      causeway_step* step) {
  const absl::StatusOr<std::optional<uint64_t>> next =
      island.island->NextStep(Timeout(timeout_seconds));
  const bool known = next.ok() && next->has_value();
  island.activity = island.island->Activity();
  *step = {.step = known ? **next : 0,
           .finished = known && **next == 0,
           .activity = island.activity.c_str(),
           .waited_seconds = absl::ToDoubleSeconds(island.island->Waited())};
  island.in_step = step->step > 0;
  if (!next.ok() || known) return next.status();
  return absl::DeadlineExceededError(absl::StrCat(
      "there is no step to train yet; the island is ", step->activity));
}

}  // namespace
}  // namespace causeway

using causeway::Guard;

const char* causeway_last_error(void) { return causeway::LastError().c_str(); }

uint32_t causeway_abi_version(void) { return CAUSEWAY_ABI_VERSION; }

causeway_code causeway_open(const causeway_options* options,
                            causeway_island** island) {
  return Guard({options, island}, [&]() -> absl::Status {
    *island = nullptr;
    if (options->struct_size < sizeof(size_t) ||
        options->struct_size > sizeof(causeway_options)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "struct_size is ", options->struct_size, "; this library knows ",
          sizeof(causeway_options),
          " bytes: start from CAUSEWAY_OPTIONS_INIT, with a library that is "
          "not older than the header"));
    }
    // Options that an older header lacks keep their defaults.
    causeway_options known = CAUSEWAY_OPTIONS_INIT;
    std::memcpy(&known, options, options->struct_size);
    causeway::PrepareLogging(known.verbose != 0);
    ASSIGN_OR_RETURN(causeway::EmbeddedIslandOptions converted,
                     causeway::ConvertOptions(known));
    converted.instance_id = causeway::RandomId();
    RETURN_IF_ERROR(causeway::OpenRankStamps(converted.connection.now));
    {
      // From here on, before the first order, a supervisor sees the rank.
      const causeway::RankSectionScope stamp(converted.rank,
                                             causeway::RankLane::kTraining,
                                             causeway::RankSection::kState);
    }
    auto opened = std::make_unique<causeway_island>();
    ASSIGN_OR_RETURN(opened->island,
                     causeway::EmbeddedIsland::Open(std::move(converted)));
    *island = opened.release();
    return absl::OkStatus();
  });
}

const char* causeway_leader(const causeway_island* island) {
  return island == nullptr ? "" : island->island->leader();
}

void causeway_close(causeway_island* island) {
  if (island == nullptr) return;
  // A fork lacks the island's threads, so their locks stay held.
  if (island->process != getpid()) return;
  const causeway::KeepCurrentDevice keep;
  delete island;
}

causeway_code causeway_await_run(causeway_island* island,
                                 double timeout_seconds, causeway_run* run) {
  return Guard({run}, [&]() -> absl::Status {
    RETURN_IF_ERROR(causeway::CheckProcess(island));
    RETURN_IF_ERROR(
        island->island->AwaitRun(causeway::Timeout(timeout_seconds)));
    if (!island->joined) causeway::TakeUpRun(*island);
    causeway::SetRun(*island, *run);
    return absl::OkStatus();
  });
}

causeway_code causeway_data_order(const causeway_island* island,
                                  uint32_t* order) {
  return Guard({order}, [&]() -> absl::Status {
    RETURN_IF_ERROR(causeway::CheckJoined(island));
    *order = island->island->run().data_order();
    return absl::OkStatus();
  });
}

causeway_code causeway_tensor_at(const causeway_island* island, uint32_t index,
                                 causeway_tensor* tensor) {
  return Guard({tensor}, [&]() -> absl::Status {
    RETURN_IF_ERROR(causeway::CheckJoined(island));
    const auto& tensors = island->island->layout().tensors;
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
    RETURN_IF_ERROR(island->island->Failure());
    if (island->attached) {
      return absl::InvalidArgumentError("tensors are attached already");
    }
    ASSIGN_OR_RETURN(const auto converted,
                     causeway::ConvertBuffers(buffers, count));
    const absl::Status attached = island->island->Attach(converted);
    island->attached = attached.ok();
    if (!attached.ok() && !absl::IsInvalidArgument(attached)) {
      island->island->Fail(attached);
    }
    return attached;
  });
}

causeway_code causeway_set_stream(causeway_island* island, void* stream) {
  return Guard([&]() -> absl::Status {
    RETURN_IF_ERROR(causeway::CheckAttached(island));
    island->island->SetStream(stream);
    return absl::OkStatus();
  });
}

causeway_code causeway_next_step(causeway_island* island,
                                 double timeout_seconds, causeway_step* step) {
  return Guard({step}, [&]() -> absl::Status {
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
  return Guard({report, step}, [&]() -> absl::Status {
    RETURN_IF_ERROR(causeway::CheckAttached(island));
    if (!island->in_step) {
      return absl::InvalidArgumentError(
          "no step is under way: call causeway_next_step first");
    }
    island->in_step = false;
    island->island->Stepped({.loss = report->loss,
                             .learning_rate = report->learning_rate,
                             .tokens = report->tokens});
    return causeway::NextStep(*island, timeout_seconds, step);
  });
}

causeway_code causeway_synchronize(causeway_island* island,
                                   double timeout_seconds,
                                   causeway_step* step) {
  return Guard({step}, [&]() -> absl::Status {
    RETURN_IF_ERROR(causeway::CheckAttached(island));
    if (!island->in_step) {
      return absl::InvalidArgumentError(
          "no step is under way: call causeway_synchronize after "
          "causeway_next_step, before the step is trained");
    }
    island->in_step = false;
    island->island->SettleFirst();
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

causeway_code causeway_fail(causeway_island* island, causeway_code code,
                            const char* reason) {
  return Guard([&]() -> absl::Status {
    RETURN_IF_ERROR(causeway::CheckProcess(island));
    if (code <= CAUSEWAY_OK || code > CAUSEWAY_UNAUTHENTICATED ||
        code == CAUSEWAY_INVALID_ARGUMENT ||
        code == CAUSEWAY_DEADLINE_EXCEEDED) {
      return absl::InvalidArgumentError(
          absl::StrCat("code ", code, " is not one that causeway_fail takes"));
    }
    island->in_step = false;
    island->island->Fail(absl::Status(static_cast<absl::StatusCode>(code),
                                      causeway::Text(reason)));
    return absl::OkStatus();
  });
}

causeway_code causeway_audit(causeway_island* island,
                             const char* const* parameters,
                             const char* const* gradients, size_t ranks) {
  return Guard({parameters, gradients}, [&]() -> absl::Status {
    RETURN_IF_ERROR(causeway::CheckProcess(island));
    std::vector<causeway::AuditedRank> audited;
    for (size_t rank = 0; rank < ranks; ++rank) {
      audited.push_back({.parameters = causeway::Text(parameters[rank]),
                         .gradient = causeway::Text(gradients[rank])});
    }
    absl::Status verdict = causeway::CompareRanks(audited);
    if (!verdict.ok()) {
      causeway::StampCorrupt(verdict, ranks);
      island->in_step = false;
      island->island->Fail(verdict);
    }
    return verdict;
  });
}

causeway_code causeway_progress(causeway_island* island, const char** json) {
  return Guard({json}, [&]() -> absl::Status {
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
                     causeway::ConvertBuffers(buffers, count));
    const causeway::ModelLayout& layout = island->island->layout();
    ASSIGN_OR_RETURN(auto tensors,
                     causeway::LocalTensors::Create(layout, converted,
                                                    /*whole=*/false));
    std::vector<float> model(static_cast<size_t>(layout.size));
    RETURN_IF_ERROR(island->island->ReadMerged(absl::MakeSpan(model)));
    return tensors.WriteAll(model);
  });
}

causeway_code causeway_save(causeway_island* island, const char* directory) {
  return Guard([&]() -> absl::Status {
    RETURN_IF_ERROR(causeway::CheckAttached(island));
    if (!island->in_step) {
      return absl::InvalidArgumentError(
          "no step is under way: call causeway_save between causeway_next_step "
          "and causeway_after_step");
    }
    return island->island->Save(causeway::Text(directory));
  });
}

causeway_code causeway_check_run(const char* configuration,
                                 const char* initial_parameters) {
  return Guard([&]() -> absl::Status {
    const std::string checkpoint = causeway::Text(initial_parameters);
    ASSIGN_OR_RETURN(const causeway::v1::RunConfig config,
                     causeway::LoadRunConfig(causeway::Text(configuration)));
    ASSIGN_OR_RETURN(causeway::ModelLayout layout,
                     causeway::NewRunLayout(config, checkpoint));
    RETURN_IF_ERROR(causeway::MakeFragmentPlan(layout, config).status());
    return causeway::InitialValues::FromCheckpoint(checkpoint,
                                                   std::move(layout))
        .status();
  });
}
