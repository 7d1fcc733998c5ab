// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// How long texts and lists in requests may be: one table for every request of
// the coordinator's services. A request's bytes are limited beside
// (common/transport/chunk_message.h).
#ifndef COMMON_TRANSPORT_FIELD_LIMITS_H_
#define COMMON_TRANSPORT_FIELD_LIMITS_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "google/protobuf/message.h"

namespace causeway {

struct FieldLimit {
  // Full name: "package.Message.field".
  absl::string_view field;
  // Bytes of a text, or elements of a list.
  int most = 0;
  // Whether it tells people something, and no program depends on it.
  bool is_prose = false;
};
absl::Span<const FieldLimit> FieldLimits();

// The most ranks of an island: its heartbeat has an entry for each.
inline constexpr int kMostRanks = 2048;

// Checks the fields that are set in `request`, and in the messages within.
//   INVALID_ARGUMENT  one is longer than the table allows, or is not there.
absl::Status CheckFieldLimits(const google::protobuf::Message& request);

// Cuts the prose in `request` to what the table allows, between characters.
void CutTexts(google::protobuf::Message& request);

}  // namespace causeway

#endif  // COMMON_TRANSPORT_FIELD_LIMITS_H_
