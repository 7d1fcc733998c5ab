// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/election/office_book.h"

#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

etcdserverpb::TxnResponse AnswerWith(const v1::Office& office) {
  etcdserverpb::TxnResponse answer;
  etcdserverpb::KeyValue& found =
      *answer.add_responses()->mutable_response_range()->add_kvs();
  found.set_key("/run/office");
  found.set_value(WriteKey(office));
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

}  // namespace
}  // namespace causeway
