// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Version 0 of a run's parameters: made from the run's seed, or read from a
// checkpoint of the Hugging Face libraries. The checkpoint also defines the
// run's tensors if the configuration does not.
#ifndef COMMON_CHECKPOINT_INITIAL_VALUES_H_
#define COMMON_CHECKPOINT_INITIAL_VALUES_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/checkpoint/tensor_files.h"
#include "common/tensors/model_layout.h"
#include "proto/fragment.pb.h"
#include "proto/run_config.pb.h"

namespace causeway {

// Checks that the files have exactly the tensors of the layout. Tensors that
// the layout ignores, and a head that equals the embedding it is tied to, may
// be there, too. Reads no values except the head's and the embedding's.
//   INVALID_ARGUMENT  Lists the tensors that are missing, that the run does not
//                     have, or that have another shape or an unknown type.
absl::Status CheckTensors(const TensorFiles& files, const ModelLayout& layout);

// Returns the layout of a new run: of its model, of its listed tensors, or else
// of the tensors in its checkpoint. `checkpoint` is the checkpoint's path, or
// empty.
//   INVALID_ARGUMENT  The run is defined by a checkpoint, and there is none.
//   Errors of TensorFiles::Open, MakeTensorsLayout and CheckTensors, with the
//   path.
absl::StatusOr<ModelLayout> NewRunLayout(const v1::RunConfig& config,
                                         const std::string& checkpoint);

// Immutable, thread-safe. Copies share the mapped files.
class InitialValues {
 public:
  static InitialValues FromSeed(ModelLayout layout, uint64_t seed);

  // Opens a checkpoint (common/checkpoint/tensor_files.h) and reads all of it
  // once, so that Read will not fail. Takes a few KiB of memory beyond the
  // mapped files.
  //   INVALID_ARGUMENT  A value is not finite.
  //   Errors of TensorFiles::Open and CheckTensors, with the path.
  static absl::StatusOr<InitialValues> FromCheckpoint(const std::string& path,
                                                      ModelLayout layout);

  const ModelLayout& layout() const { return layout_; }

  // Writes the values of a fragment from index `begin` on to `values`. Its
  // tensors must be tensors of the layout.
  absl::Status Read(const v1::Fragment& fragment, uint64_t begin,
                    absl::Span<float> values) const;

 private:
  explicit InitialValues(ModelLayout layout) : layout_(std::move(layout)) {}

  ModelLayout layout_;
  uint64_t seed_ = 0;
  // Null if the values are made from the seed.
  std::shared_ptr<const TensorFiles> files_;
};

}  // namespace causeway

#endif  // COMMON_CHECKPOINT_INITIAL_VALUES_H_
