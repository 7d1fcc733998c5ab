// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Finds a rank whose processor computes wrong numbers without an error (silent
// data corruption): all ranks compute the gradient of one micro-batch at the
// same parameters, and compare the bits, which must be equal on processors of
// one kind (GradientSource).
#ifndef WORKER_TRAINING_GRADIENT_AUDIT_H_
#define WORKER_TRAINING_GRADIENT_AUDIT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "worker/collective/communicator.h"
#include "worker/model/ops.h"
#include "worker/training/gradient_source.h"

namespace causeway {

// All ranks call it together, with the same micro-batch, between two steps.
// `scratch` has the size of the parameters and is overwritten; both are in the
// memory of `ops`. Discards the micro-batch's loss.
//   DATA_LOSS  The ranks disagree. If all ranks but one agree, and these are
//              two or more, the status blames that one (RankTroubleOf).
//              IsFoundByAudit distinguishes this from other losses of data.
//   otherwise  See Communicator and GradientSource.
absl::Status AuditGradients(int64_t micro_batch,
                            absl::Span<const float> parameters,
                            absl::Span<float> scratch,
                            GradientSource* gradients, Ops* ops,
                            Communicator* communicator);

// Returns whether `status` says that ranks disagree.
bool IsFoundByAudit(const absl::Status& status);

// The digests of a rank's values in an audit.
struct AuditedRank {
  std::string parameters;
  std::string gradient;
};

// Returns OK or DATA_LOSS, as above.
absl::Status CompareRanks(absl::Span<const AuditedRank> ranks);

}  // namespace causeway

#endif  // WORKER_TRAINING_GRADIENT_AUDIT_H_
