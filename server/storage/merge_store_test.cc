// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/storage/merge_store.h"

#include <cstdint>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/as_bytes.h"
#include "common/checksum.h"
#include "common/os/file.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

class MergeStoreTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK(CreateDirectory(root_));
    ASSERT_OK(store_.CreateFolder());
  }

  // Adds the contribution of an island with these bytes.
  void Add(const std::string& island, v1::Format format, bool entropy_coded,
           const std::string& bytes) {
    v1::ContributionHeader& header = *merge_.add_contributions();
    header.mutable_identity()->set_island_id(island);
    header.mutable_object()->set_format(format);
    header.mutable_object()->set_entropy_coded(entropy_coded);
    header.mutable_object()->set_encoded_bytes(bytes.size());
    header.mutable_object()->set_digest(Digest128(bytes));
    bytes_.push_back(bytes);
  }
  absl::StatusOr<uint64_t> Write() {
    const std::vector<absl::string_view> encodings(bytes_.begin(),
                                                   bytes_.end());
    return store_.Write(merge_, config_, encodings);
  }
  std::string File() const {
    return absl::StrCat(root_, "/merges/merge-0003-v00000012.safetensors");
  }

  const std::string root_ = absl::StrCat(
      testing::TempDir(), "/",
      testing::UnitTest::GetInstance()->current_test_info()->name());
  MergeStore store_{root_};
  v1::RecordedMerge merge_;
  v1::RunConfig config_;
  std::vector<std::string> bytes_;
};

// Some bytes of each value repeat.
TEST_F(MergeStoreTest, ComesBackAndIsSmallerWhereBytesRepeat) {
  merge_.mutable_head()->set_fragment(3);
  merge_.mutable_head()->set_version(12);
  config_.set_name("test");
  config_.mutable_storage()->set_record_contributions(true);
  std::string wide;
  std::string narrow;
  uint32_t random = 1;
  for (int i = 0; i < 10000; ++i) {
    random = random * 1664525 + 1013904223;
    const char byte = static_cast<char>(random >> 24);
    wide += {byte, 'b', 'c', 'd'};
    narrow += {byte, 'x'};
  }
  Add("a", v1::FP32, false, wide);
  Add("b", v1::BF16, false, narrow);
  Add("c", v1::INT4, true, narrow);
  ASSERT_OK_AND_ASSIGN(const uint64_t size, Write());
  ASSERT_OK_AND_ASSIGN(const StoredMerge stored, store_.Open(3, 12));
  EXPECT_EQ(stored.merge().DebugString(), merge_.DebugString());
  EXPECT_EQ(stored.config().name(), "test");
  ASSERT_EQ(stored.encodings().size(), 3);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(stored.encodings()[i] == bytes_[i]) << i;
  }
  // Three of four bytes, and one of two, take almost nothing.
  ASSERT_OK_AND_ASSIGN(const std::string file, ReadFile(File()));
  EXPECT_LT(file.size(), 10000 + 10000 + 20000 + 4000);
  EXPECT_EQ(size, file.size());
  EXPECT_THAT(store_.Size(3, 12), IsOkAndHolds(size));
  EXPECT_THAT(store_.Open(3, 13).status(), IsNotFound());
  EXPECT_THAT(store_.Size(3, 13), IsNotFound());
}

TEST_F(MergeStoreTest, ThreadsMayRemoveTheSameRecords) {
  constexpr uint64_t kRecords = 200;
  merge_.mutable_head()->set_fragment(3);
  Add("a", v1::INT4, false, "bytes");
  for (uint64_t version = 1; version <= kRecords; ++version) {
    merge_.mutable_head()->set_version(version);
    ASSERT_OK(Write());
  }
  absl::Status removed;
  std::thread other([&] { removed = store_.RemoveThrough(3, kRecords); });
  EXPECT_OK(store_.RemoveThrough(3, kRecords));
  other.join();
  EXPECT_OK(removed);
  EXPECT_THAT(ListDirectory(absl::StrCat(root_, "/merges")),
              IsOkAndHolds(testing::IsEmpty()));
}

TEST_F(MergeStoreTest, EveryDamageIsFoundAndNamed) {
  merge_.mutable_head()->set_fragment(3);
  merge_.mutable_head()->set_version(12);
  Add("north", v1::INT4, true, "the bytes of an encoding");
  ASSERT_OK(Write());
  ASSERT_OK_AND_ASSIGN(std::string file, ReadFile(File()));
  file[file.find("of an encoding")] ^= 1;
  ASSERT_OK(WriteFileAtomically(File(), {absl::string_view(file)}));
  EXPECT_THAT(store_.Open(3, 12).status(),
              IsDataLoss(File(), "the contribution of north"));
}

TEST_F(MergeStoreTest, AMergedGradientTakesLessThanItsValues) {
  merge_.mutable_head()->set_fragment(3);
  merge_.mutable_head()->set_version(12);
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 0.02f);
  std::vector<float> gradient(700'001);
  for (float& value : gradient) value = normal(random);
  for (const char* island : {"a", "b"}) {
    Add(island, v1::INT4, true, island);
    merge_.mutable_contributions()->rbegin()->mutable_object()->set_size(
        gradient.size());
  }
  merge_.set_gradient_digest(Digest128(gradient));
  bytes_ = {std::string(AsStringView(absl::MakeConstSpan(gradient)))};
  ASSERT_OK_AND_ASSIGN(const uint64_t size, Write());
  EXPECT_LT(static_cast<double>(size), 3.45 * gradient.size());
  {
    ASSERT_OK_AND_ASSIGN(const StoredMerge stored, store_.Open(3, 12));
    ASSERT_EQ(stored.encodings().size(), 1);
    EXPECT_TRUE(stored.encodings()[0] == bytes_[0]);
  }
  ASSERT_OK_AND_ASSIGN(const std::string file, ReadFile(File()));
  for (size_t at = 2000; at < file.size(); at += file.size() / 50) {
    std::string damaged = file;
    damaged[at] ^= 1;
    ASSERT_OK(WriteFileAtomically(File(), {absl::string_view(damaged)}));
    EXPECT_THAT(store_.Open(3, 12).status(), IsDataLoss(File())) << at;
  }
}

TEST_F(MergeStoreTest, PreparedEncodingsFindTheirPlaces) {
  merge_.mutable_head()->set_fragment(3);
  merge_.mutable_head()->set_version(12);
  config_.mutable_membership()->set_max_islands(4);
  Add("a", v1::INT4, true, "of a");
  Add("b", v1::INT4, true, "of b, which was not prepared");
  Add("c", v1::INT4, true, "of c");
  // Two islands may send the same bytes.
  Add("d", v1::INT4, true, "of c");
  const auto prepare = [&](int index, uint64_t version) {
    v1::ContributionHeader header = merge_.contributions(index);
    header.set_fragment(3);
    header.set_base_version(version - 1);
    store_.Prepare(header, config_, bytes_[static_cast<size_t>(index)]);
  };
  // An earlier version that was never written.
  prepare(1, 11);
  prepare(2, 12);
  v1::ContributionHeader late = merge_.contributions(0);
  late.set_fragment(3);
  late.set_base_version(11);
  late.mutable_object()->set_digest(Digest128(absl::string_view("late")));
  store_.Prepare(late, config_, "late");
  prepare(0, 12);
  prepare(0, 12);
  for (int attempt = 0; attempt < 2; ++attempt) {
    ASSERT_OK(Write());
    // The version is written: nothing may touch its file.
    prepare(1, 12);
    ASSERT_OK_AND_ASSIGN(const StoredMerge stored, store_.Open(3, 12));
    ASSERT_EQ(stored.encodings().size(), bytes_.size());
    for (size_t i = 0; i < bytes_.size(); ++i) {
      EXPECT_EQ(stored.encodings()[i], bytes_[i]);
    }
    ASSERT_OK_AND_ASSIGN(const std::vector<std::string> files,
                         ListDirectory(absl::StrCat(root_, "/merges")));
    EXPECT_EQ(files.size(), 1) << absl::StrJoin(files, " ");
  }
}

TEST_F(MergeStoreTest, WritesAllAgainAfterMoreWasPreparedThanFits) {
  merge_.mutable_head()->set_fragment(3);
  merge_.mutable_head()->set_version(12);
  config_.mutable_membership()->set_max_islands(1);
  Add("a", v1::INT4, true, "of a");
  v1::ContributionHeader header = merge_.contributions(0);
  header.set_fragment(3);
  header.set_base_version(11);
  for (int i = 0; i < 100; ++i) {
    const std::string bytes = absl::StrCat(i);
    header.mutable_object()->set_digest(Digest128(bytes));
    store_.Prepare(header, config_, bytes);
  }
  ASSERT_OK(Write());
  ASSERT_OK_AND_ASSIGN(const StoredMerge stored, store_.Open(3, 12));
  EXPECT_EQ(stored.encodings()[0], "of a");
  ASSERT_OK_AND_ASSIGN(const std::string file, ReadFile(File()));
  EXPECT_LT(file.size(), 1000);
}

}  // namespace
}  // namespace causeway
