// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Reads and checks a RunConfig (proto/run_config.proto) in text format.
//
// One error lists every problem of a file, each with line, field and the
// allowed values:
//
//   run.textproto:12:3: synchronization.inner_steps_per_round is 0; allowed:
//   1 to 1000000
#ifndef COMMON_CONFIG_RUN_CONFIG_H_
#define COMMON_CONFIG_RUN_CONFIG_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/run_config.pb.h"

namespace causeway {

// The size of the byte tokenizer's vocabulary: 256 byte values, then the
// special tokens.
inline constexpr uint32_t kByteVocabulary = 258;

// A target that a loss mask hides (DataConfig.loss_masks).
inline constexpr int32_t kNoTarget = -1;

// Parses and checks `text`; errors name it `file`. The result is resolved:
// fields whose 0 means "derive it" (vocab_size, kv_heads, micro_batch_size,
// data.shards) hold the derived value.
//   INVALID_ARGUMENT  the text does not parse or a value is not allowed.
absl::StatusOr<v1::RunConfig> ParseRunConfig(absl::string_view text,
                                             absl::string_view file);

// Parses and checks a file's contents as ParseRunConfig does.
//   NOT_FOUND, PERMISSION_DENIED, ...  the file cannot be read.
absl::StatusOr<v1::RunConfig> LoadRunConfig(const std::string& path);

// Returns the token that ends a document, if attention stays within documents.
std::optional<int32_t> DocumentEnd(const v1::DataConfig& config);

// Returns whether islands wait for every update, because nothing overlaps with
// training. All fragments are then sent at the same step.
bool WaitsForUpdates(const v1::SynchronizationConfig& config);

// The most batches (training.batch_size) that an island puts into an inner
// step: with ACCO, it keeps computing while it communicates.
inline constexpr int kMostBatchesPerStep = 8;

// Returns the tokens of an inner step of one island that trains one batch.
uint64_t TokensPerStep(const v1::RunConfig& config);

// Returns whether `name` may name a run or an island: 1 to 64 of [a-z0-9-].
bool IsValidName(absl::string_view name);

// Returns which part of a run's identity differs between its original
// configuration and the one to continue it with, or "". The identity is the
// model or the tensors, seed, tokenizer, plan of fragments, and everything that
// determines the shape or the meaning of the stored state.
std::string IdentityDifference(const v1::RunConfig& original,
                               const v1::RunConfig& proposed);

// Returns how the configurations differ in any field, or "".
std::string ConfigDifference(const v1::RunConfig& original,
                             const v1::RunConfig& proposed);

}  // namespace causeway

#endif  // COMMON_CONFIG_RUN_CONFIG_H_
