// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Converts the types of causeway.h to those of EmbeddedIsland.
#ifndef WORKER_EMBEDDING_C_CONVERSIONS_H_
#define WORKER_EMBEDDING_C_CONVERSIONS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "google/protobuf/message.h"
#include "worker/embedding/causeway.h"
#include "worker/embedding/embedded_island.h"
#include "worker/embedding/local_tensors.h"

namespace causeway {

// Returns the text; "" for null.
std::string Text(const char* text);

// Returns the message as JSON, with the fields' original names, including all
// primitive fields.
std::string Json(const google::protobuf::Message& message);

// Both return INVALID_ARGUMENT and name the wrong option or tensor.
// ConvertOptions sets no instance_id.
absl::StatusOr<EmbeddedIslandOptions> ConvertOptions(
    const causeway_options& from);
absl::StatusOr<std::vector<TensorBuffer>> ConvertBuffers(
    const causeway_buffer* from, size_t count);

}  // namespace causeway

#endif  // WORKER_EMBEDDING_C_CONVERSIONS_H_
