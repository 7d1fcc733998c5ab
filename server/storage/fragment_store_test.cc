// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/storage/fragment_store.h"

#include <cerrno>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/as_bytes.h"
#include "common/checksum.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr char kFragmentFile[] =
    "fragments/fragment-0003-v00000012.safetensors";
constexpr char kUpdateFile[] = "updates/update-0003-v00000012.safetensors";

class FragmentStoreTest : public testing::Test {
 protected:
  FragmentStoreTest()
      : root_(absl::StrCat(
            testing::TempDir(), "/",
            testing::UnitTest::GetInstance()->current_test_info()->name())) {
    EXPECT_OK(CreateDirectory(root_));
    contents_.run_id = "run-1";
    contents_.head.set_fragment(3);
    contents_.head.set_version(12);
    contents_.theta = theta_;
    contents_.momentum = momentum_;
    update_.run_id = "run-1";
    update_.head.set_fragment(3);
    update_.head.set_version(12);
    update_.head.set_digest(Digest128(absl::MakeConstSpan(theta_)));
    update_.object.set_format(v1::BF16);
    update_.object.set_size(4);
    update_.object.set_block_size(64);
    update_.object.set_entropy_coded(true);
    update_.encoding = "8 bytes!";
    update_.object.set_encoded_bytes(update_.encoding.size());
    update_.object.set_digest(Digest128(update_.encoding));
  }

  FragmentStore MakeStore(WriteStageHook hook = nullptr) {
    absl::StatusOr<FragmentStore> store =
        FragmentStore::Create(root_, {.write_hook = std::move(hook)});
    EXPECT_OK(store);
    return *std::move(store);
  }

  std::string PathOf(absl::string_view file) const {
    return absl::StrCat(root_, "/", file);
  }

  const std::string root_;
  // Bit patterns that arithmetic would not keep.
  const std::vector<float> theta_ = {
      1.5f, -0.0f, std::numeric_limits<float>::denorm_min(), 3e38f};
  const std::vector<float> momentum_ = {-1, 2, -3, 4};
  const std::vector<float> residual_ = {0.25f, 0, 0, -0.125f};
  const std::vector<float> gradient_sum_ = {8, 0, -0.0f, 16};
  FragmentContents contents_;
  UpdateContents update_;
};

TEST_F(FragmentStoreTest, FragmentsComeBackBitForBit) {
  const FragmentStore store = MakeStore();
  contents_.residual = residual_;
  contents_.gradient_sum = gradient_sum_;
  EXPECT_THAT(store.WriteFragment(contents_), IsOkAndHolds(kFragmentFile));
  EXPECT_EQ(contents_.head.digest(), Digest128(absl::MakeConstSpan(theta_)));
  ASSERT_OK_AND_ASSIGN(
      const StoredFragment stored,
      store.OpenFragment(kFragmentFile, "run-1", contents_.head));
  EXPECT_EQ(stored.contents().run_id, "run-1");
  EXPECT_EQ(stored.contents().head.version(), 12);
  EXPECT_THAT(stored.contents().momentum, testing::ElementsAreArray(momentum_));
  EXPECT_THAT(stored.contents().residual, testing::ElementsAreArray(residual_));
  EXPECT_THAT(stored.contents().gradient_sum,
              testing::ElementsAreArray(gradient_sum_));
  EXPECT_THAT(stored.contents().theta, testing::ElementsAreArray(theta_));
}

TEST_F(FragmentStoreTest, AFragmentMayComeInPieces) {
  const FragmentStore store = MakeStore();
  contents_.residual = residual_;
  ASSERT_OK_AND_ASSIGN(NewFragment file, store.BeginFragment(contents_));
  const absl::string_view theta = AsStringView(contents_.theta);
  const std::string rest =
      absl::StrCat(theta.substr(3), AsStringView(contents_.momentum));
  ASSERT_OK(file.Append(theta.substr(0, 3)));
  ASSERT_OK(file.Append(rest));
  ASSERT_OK(file.AppendZeros());
  EXPECT_THAT(ListDirectory(PathOf("fragments")),
              IsOkAndHolds(ElementsAre(HasSubstr(".tmp-"))));
  v1::FragmentHead head = contents_.head;
  EXPECT_THAT(store.CommitFragment(std::move(file), head),
              IsOkAndHolds(kFragmentFile));
  ASSERT_OK_AND_ASSIGN(const StoredFragment stored,
                       store.OpenFragment(kFragmentFile, "run-1", head));
  EXPECT_THAT(stored.contents().theta, testing::ElementsAreArray(theta_));
  EXPECT_THAT(stored.contents().momentum, testing::ElementsAreArray(momentum_));
  EXPECT_THAT(stored.contents().residual, testing::ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(stored.contents().gradient_sum, IsEmpty());
}

TEST_F(FragmentStoreTest, EmptyTensorsAreLeftOut) {
  const FragmentStore store = MakeStore();
  contents_.momentum = {};
  ASSERT_OK(store.WriteFragment(contents_));
  ASSERT_OK_AND_ASSIGN(
      const StoredFragment stored,
      store.OpenFragment(kFragmentFile, "run-1", contents_.head));
  EXPECT_THAT(stored.contents().momentum, IsEmpty());
  EXPECT_THAT(stored.contents().residual, IsEmpty());
  ASSERT_OK_AND_ASSIGN(const SafetensorsFile file,
                       SafetensorsFile::Open(PathOf(kFragmentFile)));
  EXPECT_EQ(file.contents().tensors.size(), 1);
}

TEST_F(FragmentStoreTest, UpdatesComeBack) {
  const FragmentStore store = MakeStore();
  EXPECT_OK(store.WriteUpdate(update_));
  EXPECT_EQ(FragmentStore::UpdatePath(update_.head), kUpdateFile);
  ASSERT_OK_AND_ASSIGN(const StoredUpdate stored,
                       store.OpenUpdate(kUpdateFile, "run-1", update_.head));
  EXPECT_EQ(stored.contents().encoding, "8 bytes!");
  EXPECT_EQ(stored.contents().object.SerializeAsString(),
            update_.object.SerializeAsString());
  EXPECT_EQ(stored.contents().head.digest(), update_.head.digest());
}

TEST_F(FragmentStoreTest, RefusesAFileOfAnotherRunVersionOrDigest) {
  const FragmentStore store = MakeStore();
  ASSERT_OK(store.WriteFragment(contents_));
  const auto damaged = [](const std::string& text) {
    return IsDataLoss(kFragmentFile, text);
  };
  EXPECT_THAT(store.OpenFragment(kFragmentFile, "run-2", contents_.head),
              damaged("run_id is \"run-1\", want \"run-2\""));
  v1::FragmentHead head = contents_.head;
  head.set_version(13);
  EXPECT_THAT(store.OpenFragment(kFragmentFile, "run-1", head),
              damaged("version is \"12\", want \"13\""));
  head = contents_.head;
  head.mutable_digest()->front() ^= 1;
  EXPECT_THAT(store.OpenFragment(kFragmentFile, "run-1", head),
              damaged("theta_digest"));
  ASSERT_OK(store.WriteUpdate(update_));
  EXPECT_THAT(store.OpenUpdate(kUpdateFile, "run-1", head),
              IsDataLoss(kUpdateFile));
  EXPECT_THAT(store.OpenUpdate("updates/none", "run-1", head), IsNotFound());
}

// Expects DATA_LOSS if the file has this content.
template <typename Open>
void ExpectDamaged(const std::string& path, absl::string_view content,
                   const Open& open) {
  ASSERT_OK(WriteFileAtomically(path, {content}));
  EXPECT_THAT(open(), IsDataLoss(path));
}

// Expects that every cut and every flipped bit of a file is found, except in
// the header's padding.
template <typename Open>
void ExpectEveryDamageIsFound(const std::string& path, const Open& open) {
  ASSERT_OK_AND_ASSIGN(const std::string good, ReadFile(path));
  for (size_t size = 0; size < good.size(); ++size) {
    ExpectDamaged(path, absl::string_view(good).substr(0, size), open);
  }
  ExpectDamaged(path, good + "x", open);
  const size_t padding_end = good.rfind("}}") + 2;
  for (size_t i = 0; i < good.size(); ++i) {
    if (i >= padding_end && good[i] == ' ' && i < padding_end + 64) continue;
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ (1 << (i % 8)));
    ExpectDamaged(path, bad, open);
  }
  ASSERT_OK(WriteFileAtomically(path, {good}));
  EXPECT_OK(open());
}

TEST_F(FragmentStoreTest, EveryDamageToAFragmentIsFound) {
  const FragmentStore store = MakeStore();
  contents_.residual = residual_;
  ASSERT_OK(store.WriteFragment(contents_));
  ExpectEveryDamageIsFound(PathOf(kFragmentFile), [&] {
    return store.OpenFragment(kFragmentFile, "run-1", contents_.head).status();
  });
}

TEST_F(FragmentStoreTest, EveryDamageToAnUpdateIsFound) {
  const FragmentStore store = MakeStore();
  ASSERT_OK(store.WriteUpdate(update_));
  ExpectEveryDamageIsFound(PathOf(kUpdateFile), [&] {
    return store.OpenUpdate(kUpdateFile, "run-1", update_.head).status();
  });
}

TEST_F(FragmentStoreTest, AFailedWriteLeavesNothingBehind) {
  const FragmentStore store =
      MakeStore([](WriteStage stage, const std::string& path) {
        return stage == WriteStage::kWritten
                   ? ErrnoStatus(ENOSPC, "write", path)
                   : absl::OkStatus();
      });
  EXPECT_THAT(store.WriteFragment(contents_), IsResourceExhausted());
  EXPECT_THAT(store.WriteUpdate(update_), IsResourceExhausted());
  EXPECT_THAT(ListDirectory(PathOf("fragments")), IsOkAndHolds(IsEmpty()));
  EXPECT_THAT(ListDirectory(PathOf("updates")), IsOkAndHolds(IsEmpty()));
}

TEST_F(FragmentStoreTest, RemovesTheFilesThatAreSuperseded) {
  const FragmentStore store = MakeStore();
  ASSERT_OK(store.WriteFragment(contents_));
  ASSERT_OK(store.WriteUpdate(update_));
  ASSERT_OK_AND_ASSIGN(
      const StoredFragment stored,
      store.OpenFragment(kFragmentFile, "run-1", contents_.head));
  const auto all = [](const std::string&) { return true; };
  EXPECT_THAT(
      store.RemoveIf("run-1",
                     [](const auto& file) { return file == kUpdateFile; }),
      IsOkAndHolds(ElementsAre(kUpdateFile)));
  EXPECT_THAT(store.RemoveIf("run-2", all), IsOkAndHolds(IsEmpty()));
  EXPECT_THAT(store.RemoveIf("run-1", all),
              IsOkAndHolds(ElementsAre(kFragmentFile)));
  // The mapped values stay readable.
  EXPECT_EQ(stored.contents().theta[0], 1.5f);
  EXPECT_THAT(store.OpenFragment(kFragmentFile, "run-1", contents_.head),
              IsNotFound());
}

}  // namespace
}  // namespace causeway
