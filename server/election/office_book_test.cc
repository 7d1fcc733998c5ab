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

using testing::HasSubstr;
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

v1::Replica Named(const std::string& name) {
  v1::Replica replica;
  replica.set_name(name);
  return replica;
}

// Gives the office to the book's coordinator, with the lease 1.
void BeginOffice(OfficeBook& book) {
  etcdserverpb::TxnResponse made;
  made.set_succeeded(true);
  ASSERT_OK(book.NoteChange(book.Claim({}, {}, /*lease=*/1), made));
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
  OfficeBook book("/run/", Named("a"));
  BeginOffice(book);
  EXPECT_EQ(book.lease(), 1);
  // The lease is lost.
  book.NoteRead(AnswerWith(book.office()));
  EXPECT_EQ(book.lease(), 1);
  EXPECT_EQ(book.lease_step(), LeaseStep::kReplace);
  const OfficeBook::Change renewal = book.Renew(/*lease=*/2);
  EXPECT_FALSE(
      book.NoteChange(renewal, absl::DeadlineExceededError("slow")).ok());
  etcdserverpb::TxnResponse read = AnswerWith(renewal.office);
  AddKey("/run/leader", Named("a"), read).set_lease(2);
  book.NoteRead(read);
  EXPECT_EQ(book.lease(), 2);
  EXPECT_EQ(book.lease_step(), LeaseStep::kKeepAlive);
}

TEST(OfficeBookTest, ARefusalIsToldFromSilence) {
  OfficeBook book("/run/", Named("a"));
  book.NoteRead(absl::InvalidArgumentError("authentication failed"));
  EXPECT_THAT(book.Problem(),
              HasSubstr("etcd refuses this coordinator: authentication failed; "
                        "check --etcd_user"));
  EXPECT_EQ(book.Unread(), book.Problem());
  book.NoteRead(absl::UnavailableError("CERTIFICATE_VERIFY_FAILED"));
  EXPECT_EQ(book.Unread(),
            "etcd does not answer: CERTIFICATE_VERIFY_FAILED; check "
            "--etcd_tls_ca");
  book.NoteRead(absl::UnavailableError("refused"));
  EXPECT_EQ(book.Unread(), "etcd does not answer: refused");
}

TEST(OfficeBookTest, ARefusedWriteIsAProblemUntilEtcdWrites) {
  OfficeBook book("/run/", Named("a"));
  EXPECT_THAT(book.Problem(), HasSubstr("etcd does not answer"));
  v1::Office office;
  office.set_epoch(3);
  book.NoteRead(AnswerWith(office));
  EXPECT_EQ(book.Problem(), "");
  book.NoteWrite(absl::UnavailableError("away"));
  EXPECT_EQ(book.Problem(), "");
  const auto full = absl::ResourceExhaustedError("database space exceeded");
  book.NoteWrite(full);
  book.NoteRead(AnswerWith(office));
  EXPECT_THAT(book.Problem(),
              HasSubstr("etcd refuses writes: database space exceeded"));
  book.NoteWrite(absl::OkStatus());
  EXPECT_EQ(book.Problem(), "");
  // Another coordinator writes.
  book.NoteWrite(full);
  office.set_epoch(4);
  book.NoteRead(AnswerWith(office));
  EXPECT_EQ(book.Problem(), "");
}

// Otherwise a coordinator that has left could lead next.
TEST(OfficeBookTest, ALeaderWritesAgainWhatARestoredEtcdLacks) {
  OfficeBook book("/run/", Named("a"));
  BeginOffice(book);
  v1::Office older = book.office();
  etcdserverpb::TxnResponse made;
  made.set_succeeded(true);
  ASSERT_OK(
      book.NoteChange(book.Alter(WithInSync(book.office(), {"a", "b"})), made));
  const auto expect_restored = [&] {
    const v1::Office newest = book.office();
    book.NoteRead(AnswerWith(older));
    ASSERT_EQ(book.lease_step(), LeaseStep::kRestore);
    const OfficeBook::Change again = book.Restore();
    EXPECT_EQ(again.request.compare(0).value(), WriteKey(older));
    EXPECT_EQ(again.office.epoch(), newest.epoch());
    EXPECT_EQ(InSync(again.office), InSync(newest));
    EXPECT_GT(again.office.changes(), newest.changes());
    ASSERT_OK(book.NoteChange(again, made));
    book.NoteRead(AnswerWith(again.office));
    EXPECT_EQ(book.lease_step(), LeaseStep::kReplace);
  };
  expect_restored();
  // The snapshot is of the leader before, who changed more.
  older.set_epoch(0);
  older.set_changes(9);
  expect_restored();
}

// A key that another coordinator holds is not this one's to keep alive.
TEST(OfficeBookTest, ALeaderLeavesTheLeasesOfOthersAlone) {
  OfficeBook book("/run/", Named("a"));
  BeginOffice(book);
  etcdserverpb::TxnResponse read = AnswerWith(book.office());
  AddKey("/run/leader", Named("b"), read).set_lease(2);
  book.NoteRead(read);
  EXPECT_EQ(book.lease(), 1);
}

}  // namespace
}  // namespace causeway
