// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/transport/field_limits.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/printable.h"
#include "common/transport/chunk.h"
#include "google/protobuf/descriptor.h"

namespace causeway {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

// Names of islands have 1 to 64 bytes; a run's id is its name and a number.
constexpr int kName = 64;
constexpr int kRunId = 80;
constexpr int kDigest = 16;
// A sentence; and an error with its causes.
constexpr int kSentence = 256;
constexpr int kReason = 1024;
// A request with a key on P-256 has 300 bytes.
constexpr int kCertificateRequest = 2048;
// A host's name has at most 253 bytes.
constexpr int kAddress = 259;
// As many as fit into a request.
constexpr int kFragments = 1500;
// More than there are kinds of events.
constexpr int kKinds = 64;

constexpr FieldLimit kLimits[] = {
    {"causeway.v1.IslandIdentity.run_id", kRunId},
    {"causeway.v1.IslandIdentity.island_id", kName},
    {"causeway.v1.JoinRequest.island_id", kName},
    {"causeway.v1.JoinRequest.expected_run_id", kRunId},
    {"causeway.v1.JoinRequest.description", kSentence, true},
    {"causeway.v1.IslandProgress.activity", kSentence, true},
    {"causeway.v1.IslandProgress.ranks", kMostRanks},
    {"causeway.v1.IslandProgress.data_digest", kDigest},
    {"causeway.v1.RankTrouble.text", kReason, true},
    {"causeway.v1.LeaveRequest.reason", kReason, true},
    {"causeway.v1.Chunk.data", kMaxChunkBytes},
    {"causeway.v1.EncodedObject.digest", kDigest},
    {"causeway.v1.ContributionHeader.rank_ends", kMostRanks},
    {"causeway.v1.FetchUpdateRequest.contribution_digest", kDigest},
    {"causeway.v1.FetchUpdateRequest.region", kName},
    {"causeway.v1.FetchParametersRequest.region", kName},
    {"causeway.v1.FollowRequest.Hello.name", kName},
    {"causeway.v1.FollowRequest.Hello.region", kName},
    {"causeway.v1.FollowRequest.Hello.address", kAddress},
    {"causeway.v1.FollowRequest.Hello.run_id", kRunId},
    {"causeway.v1.FollowRequest.Hello.heads", kFragments},
    {"causeway.v1.FragmentHead.digest", kDigest},
    {"causeway.v1.LogPosition.hash", kDigest},
    {"causeway.v1.PauseRunRequest.reason", kReason, true},
    {"causeway.v1.DrainIslandRequest.island_id", kName},
    {"causeway.v1.DrainIslandRequest.reason", kReason, true},
    {"causeway.v1.EvictIslandRequest.island_id", kName},
    {"causeway.v1.EvictIslandRequest.reason", kReason, true},
    {"causeway.v1.AcceptDataRequest.island_id", kName},
    {"causeway.v1.ListIslandsRequest.after", kName},
    {"causeway.v1.WatchEventsRequest.kinds", kKinds},
    {"causeway.v1.EnrolRequest.token_id", kName},
    {"causeway.v1.EnrolRequest.secret", kName},
    {"causeway.v1.EnrolRequest.certificate_request", kCertificateRequest},
    {"causeway.v1.EnrolRequest.island_id", kName},
    {"causeway.v1.RenewRequest.certificate_request", kCertificateRequest},
    {"causeway.v1.CreateTokenRequest.role", kName},
    {"causeway.v1.CreateTokenRequest.name", kName},
    {"causeway.v1.RevokeTokenRequest.id", kName},
    {"causeway.v1.RevokeCertificateRequest.id", kName},
};

bool IsText(const FieldDescriptor& field) {
  return field.cpp_type() == FieldDescriptor::CPPTYPE_STRING;
}

absl::Status CheckText(const FieldDescriptor& field, const std::string& text,
                       int most) {
  if (text.size() > static_cast<size_t>(most)) {
    return absl::InvalidArgumentError(
        absl::StrCat(field.full_name(), " has ", text.size(),
                     " bytes; at most ", most, " are allowed"));
  }
  if (field.type() == FieldDescriptor::TYPE_STRING && !IsUtf8(text)) {
    return absl::InvalidArgumentError(
        absl::StrCat(field.full_name(), " is not UTF-8"));
  }
  return absl::OkStatus();
}

// Fields that the table has no entry for may hold nothing.
FieldLimit LimitOf(const FieldDescriptor& field) {
  for (const FieldLimit& limit : kLimits) {
    if (limit.field == field.full_name()) return limit;
  }
  return {};
}

std::vector<const FieldDescriptor*> SetFields(const Message& message) {
  std::vector<const FieldDescriptor*> fields;
  message.GetReflection()->ListFields(message, &fields);
  return fields;
}

absl::Status CheckElements(const Message& message,
                           const FieldDescriptor& field) {
  const auto& reflection = *message.GetReflection();
  const int size = reflection.FieldSize(message, &field);
  if (size > LimitOf(field).most) {
    return absl::InvalidArgumentError(
        absl::StrCat(field.full_name(), " has ", size, " elements; at most ",
                     LimitOf(field).most, " are allowed"));
  }
  for (int i = 0; i < size; ++i) {
    absl::Status element;
    if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      element =
          CheckFieldLimits(reflection.GetRepeatedMessage(message, &field, i));
    } else if (IsText(field)) {
      element = CheckText(
          field, reflection.GetRepeatedString(message, &field, i), kName);
    }
    if (!element.ok()) return element;
  }
  return absl::OkStatus();
}

}  // namespace

absl::Span<const FieldLimit> FieldLimits() { return kLimits; }

absl::Status CheckFieldLimits(const Message& request) {
  const auto& reflection = *request.GetReflection();
  for (const FieldDescriptor* field : SetFields(request)) {
    absl::Status status;
    if (field->is_repeated()) {
      status = CheckElements(request, *field);
    } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      status = CheckFieldLimits(reflection.GetMessage(request, field));
    } else if (IsText(*field)) {
      status = CheckText(*field, reflection.GetString(request, field),
                         LimitOf(*field).most);
    }
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

void CutTexts(Message& request) {
  const auto& reflection = *request.GetReflection();
  for (const FieldDescriptor* field : SetFields(request)) {
    if (field->is_repeated()) continue;
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      CutTexts(*reflection.MutableMessage(&request, field));
    } else if (IsText(*field) && LimitOf(*field).is_prose) {
      std::string text = reflection.GetString(request, field);
      size_t end = LimitOf(*field).most;
      if (text.size() <= end) continue;
      // Do not cut within a UTF-8 character.
      while (end > 0 && (text[end] & 0xc0) == 0x80) --end;
      text.resize(end);
      reflection.SetString(&request, field, std::move(text));
    }
  }
}

}  // namespace causeway
