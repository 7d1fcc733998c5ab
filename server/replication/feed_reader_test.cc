// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/replication/feed_reader.h"

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/testing/status_matchers.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

v1::FragmentHead HeadOf(uint32_t fragment, uint64_t version,
                        const std::string& digest) {
  v1::FragmentHead head;
  head.set_fragment(fragment);
  head.set_version(version);
  head.set_digest(digest);
  return head;
}

class FeedReaderTest : public testing::Test {
 protected:
  void Announce(const v1::FragmentHead& head) { feed_.Announce(head, nullptr); }
  // Adds a change that commits this version.
  void Commit(const v1::FragmentHead& head) {
    auto change = std::make_shared<v1::LogChange>();
    change->mutable_position()->set_index(++changes_);
    *change->add_commits() = head;
    feed_.Add(std::move(change));
  }
  // Returns what is sent next, in order.
  std::string Read(FeedReader& reader) {
    std::string read;
    while (true) {
      const absl::StatusOr<FeedReader::Step> step = reader.Next();
      if (!step.ok()) return step.status().ToString();
      for (const LogFeed::AnnouncedRecord& record : step->ahead) {
        absl::StrAppend(&read, "ahead ", record.head.digest(), "; ");
      }
      for (const v1::FragmentHead& head : step->lacking) {
        absl::StrAppend(&read, "record ", head.digest(), "; ");
      }
      if (step->change != nullptr) {
        absl::StrAppend(&read, "change ", step->change->position().index(),
                        "; ");
      } else if (step->ahead.empty()) {
        return read;
      }
    }
  }

  LogFeed feed_;
  uint64_t changes_ = 0;
  FeedReader reader_{&feed_, 0};
};

TEST_F(FeedReaderTest, ARecordGoesAheadOnce) {
  EXPECT_EQ(Read(reader_), "");
  const v1::FragmentHead head = HeadOf(0, 1, "a");
  Announce(head);
  EXPECT_EQ(Read(reader_), "ahead a; ");
  EXPECT_EQ(Read(reader_), "");
  Announce(HeadOf(1, 1, "b"));
  EXPECT_EQ(Read(reader_), "ahead b; ");
  Commit(head);
  EXPECT_EQ(Read(reader_), "change 1; ");
}

TEST_F(FeedReaderTest, ARecordThatDidNotGoAheadGoesWithItsChange) {
  const v1::FragmentHead head = HeadOf(0, 1, "a");
  Announce(head);
  Commit(head);
  EXPECT_EQ(Read(reader_), "record a; change 1; ");
  Commit(HeadOf(0, 2, "b"));
  EXPECT_EQ(Read(reader_), "record b; change 2; ");
}

TEST_F(FeedReaderTest, ARecordFollowsTheChangesBeforeIt) {
  const v1::FragmentHead first = HeadOf(0, 1, "a");
  Announce(first);
  Commit(first);
  Announce(HeadOf(0, 2, "b"));
  EXPECT_EQ(Read(reader_), "record a; change 1; ahead b; ");
}

TEST_F(FeedReaderTest, ARecordTakesThePlaceOfOneWhoseCommitFailed) {
  Announce(HeadOf(0, 1, "failed"));
  EXPECT_EQ(Read(reader_), "ahead failed; ");
  const v1::FragmentHead head = HeadOf(0, 1, "a");
  Announce(head);
  FeedReader other(&feed_, 0);
  EXPECT_EQ(Read(other), "ahead a; ");
  Commit(head);
  EXPECT_EQ(Read(reader_), "record a; change 1; ");
  EXPECT_EQ(Read(other), "change 1; ");
}

TEST_F(FeedReaderTest, ASecondRecordOfTheSameVersionCountsAnew) {
  // The values may be the same by chance.
  const v1::FragmentHead head = HeadOf(0, 1, "a");
  Announce(head);
  EXPECT_EQ(Read(reader_), "ahead a; ");
  Announce(head);
  EXPECT_EQ(Read(reader_), "ahead a; ");
  Announce(head);
  Commit(head);
  EXPECT_EQ(Read(reader_), "record a; change 1; ");
}

}  // namespace
}  // namespace causeway
