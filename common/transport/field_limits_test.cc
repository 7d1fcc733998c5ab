// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/transport/field_limits.h"

#include <cstdint>
#include <set>
#include <string>

#include "common/testing/status_matchers.h"
#include "common/transport/chunk_message.h"
#include "gmock/gmock.h"
#include "google/protobuf/descriptor.h"
#include "gtest/gtest.h"
#include "proto/control.pb.h"
#include "proto/coordinator.pb.h"
#include "proto/replication.pb.h"
#include "proto/status.pb.h"
#include "proto/trust.pb.h"

namespace causeway {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::FileDescriptor;

// Adds the texts and lists of a message, and of the messages within it, to
// `fields`.
void AddLimited(const Descriptor& message, std::set<std::string>& fields) {
  for (int i = 0; i < message.field_count(); ++i) {
    const FieldDescriptor& field = *message.field(i);
    if (field.is_repeated() ||
        field.cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
      fields.insert(field.full_name());
    }
    if (field.message_type() != nullptr) {
      AddLimited(*field.message_type(), fields);
    }
  }
}

// Returns a rank's progress with the largest value of every number.
v1::RankProgress BusyRank() {
  v1::RankProgress rank;
  rank.set_micro_batches(UINT64_MAX);
  rank.set_tokens(UINT64_MAX);
  return rank;
}

TEST(FieldLimitsTest, TheTableHasEveryTextAndListOfEveryRequest) {
  std::set<std::string> fields;
  for (const FileDescriptor* file : {v1::JoinRequest::descriptor()->file(),
                                     v1::GetRunRequest::descriptor()->file(),
                                     v1::PauseRunRequest::descriptor()->file(),
                                     v1::FollowRequest::descriptor()->file(),
                                     v1::EnrolRequest::descriptor()->file()}) {
    for (int i = 0; i < file->service_count(); ++i) {
      for (int j = 0; j < file->service(i)->method_count(); ++j) {
        AddLimited(*file->service(i)->method(j)->input_type(), fields);
      }
    }
  }
  std::set<std::string> limited;
  for (const FieldLimit& limit : FieldLimits()) {
    EXPECT_GT(limit.most, 0) << limit.field;
    limited.insert(std::string(limit.field));
  }
  EXPECT_EQ(limited, fields);
}

TEST(FieldLimitsTest, SaysWhichFieldIsTooLong) {
  v1::LeaveRequest leave;
  leave.set_reason(std::string(1024, 'x'));
  EXPECT_OK(CheckFieldLimits(leave));
  leave.mutable_rank_trouble()->set_text(std::string(1025, 'x'));
  EXPECT_THAT(CheckFieldLimits(leave),
              IsInvalidArgument("RankTrouble.text has 1025 bytes; at most "
                                "1024 are allowed"));
  v1::SessionRequest session;
  for (int i = 0; i < kMostRanks; ++i) session.mutable_progress()->add_ranks();
  EXPECT_OK(CheckFieldLimits(session));
  session.mutable_progress()->add_ranks();
  EXPECT_THAT(CheckFieldLimits(session),
              IsInvalidArgument("ranks has 2049 elements"));

  v1::WatchEventsRequest events;
  events.add_kinds("round_merged");
  EXPECT_OK(CheckFieldLimits(events));
  events.add_kinds(std::string(65, 'k'));
  EXPECT_THAT(CheckFieldLimits(events),
              IsInvalidArgument("kinds has 65 bytes; at most 64"));
}

TEST(FieldLimitsTest, TextsAreUtf8) {
  v1::LeaveRequest leave;
  leave.mutable_rank_trouble()->set_text("caf\xe9");
  EXPECT_THAT(CheckFieldLimits(leave),
              IsInvalidArgument("RankTrouble.text is not UTF-8"));
  leave.mutable_rank_trouble()->set_text("caf\u00e9");
  EXPECT_OK(CheckFieldLimits(leave));
  // A digest is no text.
  v1::FetchUpdateRequest fetch;
  fetch.set_contribution_digest("\xff");
  EXPECT_OK(CheckFieldLimits(fetch));
}

TEST(FieldLimitsTest, WhatTheTableLacksIsNotAllowed) {
  v1::Event event;
  event.set_text("x");
  EXPECT_THAT(CheckFieldLimits(event), IsInvalidArgument());
}

TEST(FieldLimitsTest, ProseIsCutBetweenCharacters) {
  v1::LeaveRequest leave;
  // The characters take two bytes each, and the first one begins at an odd
  // place.
  std::string umlauts = "x";
  for (int i = 0; i < 1000; ++i) umlauts += "\u00e4";
  leave.set_reason(umlauts);
  leave.mutable_rank_trouble()->set_text(umlauts);
  leave.mutable_identity()->set_island_id(std::string(100, 'a'));
  CutTexts(leave);
  EXPECT_EQ(leave.reason(), umlauts.substr(0, 1023));
  EXPECT_EQ(leave.rank_trouble().text(), umlauts.substr(0, 1023));
  EXPECT_EQ(leave.identity().island_id().size(), 100) << "a name is not prose";
}

TEST(FieldLimitsTest, TheLongestRequestsOfAnIslandFit) {
  v1::SessionRequest session;
  session.mutable_identity()->set_run_id(std::string(80, 'r'));
  session.mutable_identity()->set_island_id(std::string(64, 'i'));
  session.mutable_identity()->set_incarnation(UINT64_MAX);
  v1::IslandProgress& progress = *session.mutable_progress();
  progress.set_activity(std::string(256, 'a'));
  progress.mutable_rank_trouble()->set_text(std::string(1024, 't'));
  for (int i = 0; i < kMostRanks; ++i) *progress.add_ranks() = BusyRank();
  EXPECT_OK(CheckFieldLimits(session));
  // The other fields are some thirty numbers.
  EXPECT_LT(session.ByteSizeLong() + 1000, kMaxFieldBytes);
}

}  // namespace
}  // namespace causeway
