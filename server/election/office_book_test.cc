// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/election/office_book.h"

#include <string>

#include "absl/status/status.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

using LeaseStep = OfficeBook::LeaseStep;

etcdserverpb::KeyValue& AddKey(const std::string& key,
                               const google::protobuf::Message& value,
                               etcdserverpb::TxnResponse& answer) {
  etcdserverpb::KeyValue& found =
      *answer.add_responses()->mutable_response_range()->add_kvs();
  found.set_key(key);
  found.set_value(WriteKey(value));
  return found;
}

etcdserverpb::TxnResponse AnswerWith(const v1::Office& office) {
  etcdserverpb::TxnResponse answer;
  AddKey("/run/office", office, answer);
  return answer;
}

// While etcd does not answer, a follower gives the leader time.
TEST(OfficeBookTest, ALostOfficeIsNoAnswerAtFirst) {
  OfficeBook book("/run/", {});
  const etcdserverpb::TxnResponse nothing;
  book.NoteRead(nothing);
  EXPECT_OK(book.view().status()) << "a new run";
  v1::Office office;
  office.set_epoch(3);
  book.NoteRead(AnswerWith(office));
  EXPECT_EQ(book.view()->office.epoch(), 3);
  book.NoteRead(nothing);
  EXPECT_THAT(book.view().status(), IsDataLoss("lost the run's office"));
  book.NoteRead(nothing);
  ASSERT_OK(book.view().status());
  EXPECT_EQ(book.view()->written, "");
}

// Otherwise the leader would let the new lease end, and be replaced.
TEST(OfficeBookTest, ALeaderFindsTheLeaseOfALostAnswer) {
  v1::Replica self;
  self.set_name("a");
  OfficeBook book("/run/", self);
  etcdserverpb::TxnResponse made;
  made.set_succeeded(true);
  ASSERT_OK(book.NoteChange(book.Claim({}, {}, /*lease=*/1), made));
  EXPECT_EQ(book.lease(), 1);
  // The lease is lost.
  book.NoteRead(AnswerWith(book.office()));
  EXPECT_EQ(book.lease(), 1);
  EXPECT_EQ(book.lease_step(), LeaseStep::kReplace);
  const OfficeBook::Change renewal = book.Renew(/*lease=*/2);
  EXPECT_FALSE(
      book.NoteChange(renewal, absl::DeadlineExceededError("slow")).ok());
  etcdserverpb::TxnResponse read = AnswerWith(renewal.office);
  AddKey("/run/leader", self, read).set_lease(2);
  book.NoteRead(read);
  EXPECT_EQ(book.lease(), 2);
  EXPECT_EQ(book.lease_step(), LeaseStep::kKeepAlive);
}

// A key that another coordinator holds is not this one's to keep alive.
TEST(OfficeBookTest, ALeaderLeavesTheLeasesOfOthersAlone) {
  v1::Replica self;
  self.set_name("a");
  OfficeBook book("/run/", self);
  etcdserverpb::TxnResponse made;
  made.set_succeeded(true);
  ASSERT_OK(book.NoteChange(book.Claim({}, {}, /*lease=*/1), made));
  v1::Replica other;
  other.set_name("b");
  etcdserverpb::TxnResponse read = AnswerWith(book.office());
  AddKey("/run/leader", other, read).set_lease(2);
  book.NoteRead(read);
  EXPECT_EQ(book.lease(), 1);
}

}  // namespace
}  // namespace causeway
