// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The limits on texts and lists in requests: one table for every request of the
// coordinator's services. common/transport/chunk_message.h limits a request's
// bytes.
#ifndef COMMON_TRANSPORT_FIELD_LIMITS_H_
#define COMMON_TRANSPORT_FIELD_LIMITS_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "google/protobuf/message.h"

namespace causeway {

struct FieldLimit {
  // The field's full name: "package.Message.field".
  absl::string_view field;
  // The most bytes of a text, or elements of a list. Texts in a list have at
  // most 64 bytes.
  int most = 0;
  // Is true if only people read the text, so that no program depends on it.
  bool is_prose = false;
};
absl::Span<const FieldLimit> FieldLimits();

// The most ranks of an island, whose heartbeat has an entry for each.
inline constexpr int kMostRanks = 2048;

// Checks the fields that are set in `request` and in its nested messages.
//   INVALID_ARGUMENT  a field is longer than the table allows, or not in it, or
//                     a text is not UTF-8.
absl::Status CheckFieldLimits(const google::protobuf::Message& request);

// Shortens the prose in `request` to what the table allows, between characters.
void CutTexts(google::protobuf::Message& request);

}  // namespace causeway

#endif  // COMMON_TRANSPORT_FIELD_LIMITS_H_
