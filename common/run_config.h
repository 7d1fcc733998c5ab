// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Reads and checks a RunConfig (proto/run_config.proto) in text format.
//
// Every problem is reported with file, line, field and what is allowed, all
// problems of a file at once:
//
//   run.textproto:12:3: synchronization.inner_steps_per_round is 0; allowed:
//   1 to 1000000
#ifndef COMMON_RUN_CONFIG_H_
#define COMMON_RUN_CONFIG_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/run_config.pb.h"

namespace causeway {

// Ids of the special tokens of the byte tokenizer, after the 256 byte values,
// and the vocabulary they make.
inline constexpr uint32_t kByteVocabulary = 258;

// Parses and checks `text`; `file` names it in errors. The result is resolved:
// fields whose 0 means "derive it" (vocab_size, kv_heads, micro_batch_size,
// data.shards) hold the derived value.
//   INVALID_ARGUMENT  the text does not parse or a value is not allowed.
absl::StatusOr<v1::RunConfig> ParseRunConfig(absl::string_view text,
                                             absl::string_view file);

// ParseRunConfig of a file's contents.
//   NOT_FOUND, PERMISSION_DENIED, ...  the file cannot be read.
absl::StatusOr<v1::RunConfig> LoadRunConfig(const std::string& path);

// Whether `name` may name a run or an island: 1 to 64 of [a-z0-9-].
bool IsValidName(absl::string_view name);

// Says which part of the identity of a run (model, seed, tokenizer, plan of
// fragments, and what decides the shape of the stored state) differs between
// the configuration a run was made with and the one it is to be continued with;
// empty if none does.
std::string IdentityDifference(const v1::RunConfig& original,
                               const v1::RunConfig& proposed);

// The same for all fields.
std::string ConfigDifference(const v1::RunConfig& original,
                             const v1::RunConfig& proposed);

}  // namespace causeway

#endif  // COMMON_RUN_CONFIG_H_
