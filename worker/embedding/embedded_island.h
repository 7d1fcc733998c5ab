// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// One process of an island with a foreign training loop, behind the C interface
// (worker/embedding/causeway.h): rank 0, which is a member of the run, or a
// rank that follows it.
#ifndef WORKER_EMBEDDING_EMBEDDED_ISLAND_H_
#define WORKER_EMBEDDING_EMBEDDED_ISLAND_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/tensors/model_layout.h"
#include "common/transport/credentials.h"
#include "proto/coordinator.pb.h"
#include "worker/embedding/local_tensors.h"
#include "worker/inner_trainer.h"
#include "worker/island.h"
#include "worker/sync/coordinator_channel.h"

namespace causeway {

struct EmbeddedIslandOptions {
  // Rank 0's connection to the coordinator, still without credentials, and the
  // files for those.
  GrpcCoordinatorClientOptions connection;
  ClientTlsFiles tls;
  // If not empty, the island enrols into the folder tls.tls first.
  std::string join_token;
  // The options of rank 0, without trainer, checkpoints and state.
  Island::Options island;
  // See causeway_options.
  std::string checkpoint_directory;
  std::string resume_directory;
  bool anchors_on_device = false;
  // A random number other than 0, unique to this process.
  uint64_t instance_id = 0;

  // The ranks, if there are several.
  int rank = 0;
  int ranks = 1;
  // The rendezvous at rank 0, host:port; its secret; and the name by which
  // other ranks reach this host.
  std::string leader;
  std::string secret;
  std::string host;
  bool encrypt = false;
  absl::Duration rank_timeout = absl::Minutes(5);
};

// For use by one thread, except RequestLeave and Progress. Its destruction ends
// the island at once.
class EmbeddedIsland {
 public:
  // Begins to join. Errors are those of credentials, enrolment, checkpoints and
  // the rendezvous.
  static absl::StatusOr<std::unique_ptr<EmbeddedIsland>> Open(
      EmbeddedIslandOptions options);
  virtual ~EmbeddedIsland() = default;

  // Returns host:port of the rendezvous; empty with one rank.
  virtual const char* leader() const = 0;

  // For the errors of the next three see causeway.h.

  // Waits until the island has joined.
  virtual absl::Status AwaitRun(absl::Duration timeout) = 0;
  // Return the run, and its tensors. These and all functions below need
  // AwaitRun.
  const v1::JoinResponse& run() const { return *run_; }
  const ModelLayout& layout() const { return layout_; }

  virtual absl::Status Attach(const std::vector<TensorBuffer>& buffers) = 0;
  // Call the next two after Attach. See LocalTensors.
  virtual void SetStream(void* stream) = 0;
  // Returns 0 if the run is finished, and nothing at the timeout. Any error
  // ends the island.
  virtual absl::StatusOr<std::optional<uint64_t>> NextStep(
      absl::Duration timeout) = 0;
  virtual void Stepped(const InnerStepResult& result) = 0;
  // Call on all ranks instead of training the step: the next NextStep waits
  // until the updates of everything sent are applied.
  virtual void SettleFirst() = 0;

  // Ends the island because of an error of the training loop, reports it to the
  // coordinator and the other ranks, and hands nothing in.
  virtual void Fail(const absl::Status& status) = 0;
  // Returns the error that has ended the island, if one has.
  virtual absl::Status Failure() = 0;

  // The rest is for rank 0. Other ranks do nothing, or return INVALID_ARGUMENT.
  virtual void RequestLeave(absl::string_view reason) = 0;
  virtual absl::StatusOr<v1::IslandProgress> Progress() = 0;
  // Return what the island is doing or waiting for, and how long training has
  // stood still.
  virtual std::string Activity() const = 0;
  virtual absl::Duration Waited() const = 0;
  // Copies the merged parameters of the whole model.
  virtual absl::Status ReadMerged(absl::Span<float> model) = 0;
  // Writes the island's state to the folder. All ranks call it.
  virtual absl::Status Save(const std::string& directory) = 0;

 protected:
  bool has_run() const { return run_.has_value(); }
  absl::Status SetRun(v1::JoinResponse run);
  // Returns the error that ends a joined island, without the codes for "call
  // again" and "nothing has changed": ABORTED if a rank is late or gone,
  // FAILED_PRECONDITION if the coordinator refuses.
  static absl::Status FinalError(const absl::Status& status);

 private:
  std::optional<v1::JoinResponse> run_;
  ModelLayout layout_;
};

}  // namespace causeway

#endif  // WORKER_EMBEDDING_EMBEDDED_ISLAND_H_
