// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/staging.h"

#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/testing/status_matchers.h"
#include "common/transport/chunk.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "quantization/codec.h"
#include "quantization/encoded_object.h"
#include "quantization/testing/whole_vectors.h"

namespace causeway {
namespace {

using testing::Field;
using testing::HasSubstr;
using testing::SizeIs;

constexpr uint64_t kValues = 64;
constexpr uint64_t kBytes = kValues * sizeof(float);

ContributionKey Key(const std::string& island, uint32_t fragment = 0,
                    uint64_t base_version = 0) {
  return {.fragment = fragment,
          .base_version = base_version,
          .island_id = island,
          .incarnation = 1};
}

// An encoded vector of values that are all `value`, and its description.
struct Encoded {
  explicit Encoded(float value)
      : bytes(*Encode({}, std::vector<float>(kValues, value))),
        object(DescribeEncoding({}, kValues, bytes)) {}

  std::string bytes;
  v1::EncodedObject object;
};

absl::StatusOr<uint64_t> Begin(Staging& staging, const ContributionKey& key,
                               const v1::EncodedObject& object) {
  return staging.Begin(key, object, kBytes);
}

auto HoldsBytes(const std::string& bytes) {
  return IsOkAndHolds(Field(&StagedEncoding::bytes, absl::string_view(bytes)));
}

// Appends [from, end) in chunks of `chunk` bytes.
absl::Status Upload(Staging& staging, const ContributionKey& key,
                    const Encoded& encoded, uint64_t from = 0,
                    uint64_t end = kBytes, uint64_t chunk = 100) {
  const absl::string_view bytes(encoded.bytes.data(), end);
  for (uint64_t offset = from; offset < end; offset += chunk) {
    ASSIGN_OR_RETURN(const bool complete,
                     staging.Append(key, CutChunk(bytes, offset, chunk)));
    EXPECT_EQ(complete, offset + chunk >= kBytes);
  }
  return absl::OkStatus();
}

class StagingTest : public testing::Test {
 protected:
  // Begins the upload of island a, and appends its bytes up to `end`.
  void BeginUpload(const Encoded& encoded, uint64_t end = kBytes) {
    ASSERT_OK(Begin(staging_, Key("a"), encoded.object));
    ASSERT_OK(Upload(staging_, Key("a"), encoded, 0, end));
  }

  const Encoded encoded_{1.5f};
  // Has room for one upload.
  Staging staging_{kBytes};
};

TEST_F(StagingTest, TakesAnUploadAndGivesItsBytes) {
  EXPECT_THAT(Begin(staging_, Key("a"), encoded_.object), IsOkAndHolds(0));
  EXPECT_EQ(staging_.used_bytes(), kBytes)
      << "memory is taken at the beginning";
  ASSERT_OK(Upload(staging_, Key("a"), encoded_));
  EXPECT_OK(staging_.Verify(Key("a"), encoded_.object));
  EXPECT_THAT(staging_.Get(Key("a")), HoldsBytes(encoded_.bytes));
}

TEST_F(StagingTest, AnInterruptedUploadContinuesWhereItStopped) {
  BeginUpload(encoded_, 100);
  EXPECT_THAT(staging_.Get(Key("a")),
              IsFailedPrecondition("has 100 bytes so far"));
  EXPECT_THAT(staging_.Verify(Key("a"), encoded_.object),
              IsFailedPrecondition("has 100 of 256 bytes"));

  EXPECT_THAT(Begin(staging_, Key("a"), encoded_.object), IsOkAndHolds(100));
  ASSERT_OK(Upload(staging_, Key("a"), encoded_, 100));
  EXPECT_OK(staging_.Verify(Key("a"), encoded_.object));
  EXPECT_THAT(staging_.Get(Key("a")), HoldsBytes(encoded_.bytes));
  // A complete upload is offered again after a lost answer.
  EXPECT_THAT(Begin(staging_, Key("a"), encoded_.object), IsOkAndHolds(kBytes));
  EXPECT_EQ(staging_.used_bytes(), kBytes);
}

TEST_F(StagingTest, OtherBytesUnderTheSameKeyStartOver) {
  const Encoded old_bytes(1.5f);
  const Encoded new_bytes(2.5f);
  BeginUpload(old_bytes, 100);
  EXPECT_THAT(Begin(staging_, Key("a"), new_bytes.object), IsOkAndHolds(0));
  EXPECT_EQ(staging_.used_bytes(), kBytes) << "the old memory is given back";
  ASSERT_OK(Upload(staging_, Key("a"), new_bytes));
  ASSERT_OK(staging_.Verify(Key("a"), new_bytes.object));
  EXPECT_THAT(staging_.Get(Key("a")), HoldsBytes(new_bytes.bytes));
}

TEST_F(StagingTest, VerifiedBytesAreNotReplacedUnderTheRoundThatCountsThem) {
  Staging staging(2 * kBytes);
  const Encoded counted(1.5f);
  const Encoded other(2.5f);
  ASSERT_OK(Begin(staging, Key("a"), counted.object));
  ASSERT_OK(Upload(staging, Key("a"), counted));
  ASSERT_OK(staging.Verify(Key("a"), counted.object));
  EXPECT_THAT(Begin(staging, Key("a"), other.object),
              IsFailedPrecondition("island a"));
  EXPECT_THAT(staging.Get(Key("a")), HoldsBytes(counted.bytes));
}

TEST_F(StagingTest, VerifyTellsBytesOfAnotherOfferApart) {
  // One stream completes an upload that another stream of the island has
  // restarted.
  const Encoded first(1.5f);
  const Encoded second(2.5f);
  ASSERT_OK(Begin(staging_, Key("a"), first.object));
  BeginUpload(second);
  EXPECT_THAT(staging_.Verify(Key("a"), first.object), IsUnavailable("offer"));
  EXPECT_OK(staging_.Verify(Key("a"), second.object));
}

TEST_F(StagingTest, MemoryIsBoundedAndComesBack) {
  Staging staging(2 * kBytes);
  ASSERT_OK(Begin(staging, Key("a"), encoded_.object));
  ASSERT_OK(Begin(staging, Key("b"), encoded_.object));
  EXPECT_THAT(Begin(staging, Key("c"), encoded_.object),
              IsResourceExhausted("512 of 512 bytes, 256 more asked for"));
  EXPECT_EQ(staging.used_bytes(), 2 * kBytes);
  // Uploads that have memory continue.
  EXPECT_OK(Upload(staging, Key("a"), encoded_));

  staging.Discard(Key("b"));
  staging.Discard(Key("b"));
  staging.Discard(Key("never begun"));
  EXPECT_EQ(staging.used_bytes(), kBytes);
  EXPECT_OK(Begin(staging, Key("c"), encoded_.object));
}

TEST_F(StagingTest, SizesNearTheLimitOfIntegersDoNotWrapAround) {
  v1::EncodedObject huge;
  ASSERT_OK(Begin(staging_, Key("a"), Encoded(1.5f).object));
  for (const uint64_t bytes : {UINT64_MAX, UINT64_MAX - kBytes + 1}) {
    huge.set_encoded_bytes(bytes);
    EXPECT_THAT(staging_.Begin(Key("b"), huge, bytes), IsResourceExhausted());
  }
  EXPECT_EQ(staging_.used_bytes(), kBytes);
}

TEST_F(StagingTest, BytesThatAreNotTheDescribedOnesAreDiscarded) {
  ASSERT_OK(Begin(staging_, Key("a"), encoded_.object));
  ASSERT_OK(Upload(staging_, Key("a"), Encoded(2.5f)));
  EXPECT_THAT(staging_.Verify(Key("a"), encoded_.object), IsDataLoss());
  EXPECT_EQ(staging_.used_bytes(), 0);
  // The island sends the bytes again, from the beginning.
  EXPECT_THAT(Begin(staging_, Key("a"), encoded_.object), IsOkAndHolds(0));
}

TEST_F(StagingTest, ValuesThatAreNotFiniteAreDiscarded) {
  const Encoded encoded(NAN);
  BeginUpload(encoded);
  EXPECT_THAT(staging_.Verify(Key("a"), encoded.object), IsOutOfRange());
  EXPECT_EQ(staging_.used_bytes(), 0);
}

// The runs are needed most if the contribution does not pass.
TEST_F(StagingTest, VerifyTellsTheRunsOfAnUpload) {
  for (const float value : {0.5f, float{NAN}}) {
    const Encoded encoded(value);
    ASSERT_OK(Begin(staging_, Key("a"), encoded.object));
    std::vector<StripRun> runs(5);
    EXPECT_THAT(staging_.Verify(Key("a"), encoded.object, {kValues}, &runs),
                IsFailedPrecondition());
    EXPECT_THAT(runs, SizeIs(5)) << "the bytes are not there";
    ASSERT_OK(Upload(staging_, Key("a"), encoded));
    const auto norm =
        staging_.Verify(Key("a"), encoded.object, {0, kValues}, &runs);
    EXPECT_EQ(norm.ok(), value == 0.5f);
    ASSERT_THAT(runs, SizeIs(1));
    EXPECT_EQ(runs[0].first_range, 1);
    EXPECT_EQ(std::isnan(runs[0].squares), std::isnan(value));
    if (norm.ok()) {
      EXPECT_EQ(runs[0].squares, kValues * 0.25);
    }
    staging_.Discard(Key("a"));
  }
}

TEST_F(StagingTest, ADamagedChunkLeavesTheUploadAsItWas) {
  ASSERT_OK(Begin(staging_, Key("a"), encoded_.object));
  Chunk chunk = CutChunk(encoded_.bytes, 0, 100);
  std::string damaged(chunk.pieces[0]);
  damaged[50] ^= 1;
  chunk.pieces = {damaged};
  EXPECT_THAT(staging_.Append(Key("a"), chunk), IsDataLoss());
  EXPECT_THAT(Begin(staging_, Key("a"), encoded_.object), IsOkAndHolds(0));
  EXPECT_OK(Upload(staging_, Key("a"), encoded_));
}

// This is more than a cache holds, so it is copied in another way.
TEST_F(StagingTest, ALargeUploadSurvivesADamagedChunk) {
  constexpr uint64_t kMany = 2'000'001;
  const CodecSpec spec = {.format = v1::BF16};
  const std::vector<float> values(kMany, 0.5f);
  ASSERT_OK_AND_ASSIGN(std::string bytes, Encode(spec, values));
  const v1::EncodedObject object = DescribeEncoding(spec, kMany, bytes);
  Staging staging(bytes.size());
  ASSERT_OK(staging.Begin(Key("a"), object, bytes.size()));
  for (uint64_t offset = 0; offset < bytes.size(); offset += 777'777) {
    Chunk chunk = CutChunk(bytes, offset, 777'777);
    ++chunk.crc32c;
    EXPECT_THAT(staging.Append(Key("a"), chunk), IsDataLoss());
    --chunk.crc32c;
    ASSERT_OK(staging.Append(Key("a"), chunk));
  }
  ASSERT_OK_AND_ASSIGN(const double norm, staging.Verify(Key("a"), object));
  EXPECT_NEAR(norm, 0.5 * std::sqrt(double{kMany}), 1e-6);
  EXPECT_THAT(staging.Get(Key("a")), HoldsBytes(bytes));
}

TEST_F(StagingTest, ADiscardedUploadMustBeOfferedAgain) {
  // An island that was uploading when its round closed is not at fault, so the
  // code is retryable: the next offer tells the island that it is late.
  for (const absl::Status& status :
       {staging_.Append(Key("a"), CutChunk(encoded_.bytes, 0)).status(),
        staging_.Verify(Key("a"), encoded_.object).status(),
        staging_.Get(Key("a")).status()}) {
    EXPECT_THAT(status, IsUnavailable("offer the contribution again"));
  }
}

TEST_F(StagingTest, AStreamThatAnotherHasOvertakenMustResume) {
  // After a reconnect, the old stream's last chunks may still arrive.
  BeginUpload(encoded_, 100);
  EXPECT_THAT(staging_.Append(Key("a"), CutChunk(encoded_.bytes, 0, 100)),
              IsUnavailable("offset 100"));
  EXPECT_OK(Upload(staging_, Key("a"), encoded_, 100));
}

TEST_F(StagingTest, DiscardBeforeTouchesOldVersionsOfItsFragmentOnly) {
  Staging staging(100 * kBytes);
  for (uint32_t fragment = 0; fragment < 3; ++fragment) {
    for (uint64_t version = 0; version < 4; ++version) {
      for (const std::string island : {"a", "b"}) {
        ASSERT_OK(
            Begin(staging, Key(island, fragment, version), encoded_.object));
      }
    }
  }
  staging.DiscardBefore(/*fragment=*/1, /*version=*/3);
  EXPECT_EQ(staging.used_bytes(), (24 - 6) * kBytes);
  for (uint32_t fragment = 0; fragment < 3; ++fragment) {
    for (uint64_t version = 0; version < 4; ++version) {
      const auto appended = staging.Append(Key("b", fragment, version),
                                           CutChunk(encoded_.bytes, 0));
      EXPECT_EQ(appended.ok(), fragment != 1 || version >= 3)
          << "fragment " << fragment << ", version " << version;
    }
  }
}

TEST_F(StagingTest, BytesThatAreBeingMergedOutliveTheirUpload) {
  BeginUpload(encoded_);
  ASSERT_OK(staging_.Verify(Key("a"), encoded_.object));
  ASSERT_OK_AND_ASSIGN(const StagedEncoding staged, staging_.Get(Key("a")));
  staging_.DiscardBefore(0, 1);
  ASSERT_OK(Begin(staging_, Key("b"), Encoded(2.5f).object));
  EXPECT_EQ(staged.bytes, absl::string_view(encoded_.bytes));
}

TEST_F(StagingTest, CodesAreKeptWhileThereIsMemoryForThem) {
  constexpr uint64_t kMany = 1000;
  const CodecSpec spec = {.format = v1::INT4, .entropy_coded = true};
  std::vector<float> values(kMany);
  values[7] = 1.5f;
  ASSERT_OK_AND_ASSIGN(const std::string bytes, Encode(spec, values));
  const v1::EncodedObject object = DescribeEncoding(spec, kMany, bytes);
  const uint64_t codes = CodeBytes(spec, kMany);
  Staging staging(1 << 20, codes);
  const auto upload = [&](const std::string& island) {
    EXPECT_OK(staging.Begin(Key(island), object, MaxEncodedBytes(spec, kMany)));
    EXPECT_OK(staging.Append(Key(island), CutChunk(bytes, 0)));
    EXPECT_OK(staging.Verify(Key(island), object));
    return staging.Get(Key(island)).value();
  };
  const StagedEncoding kept = upload("a");
  EXPECT_EQ(kept.bytes, bytes);
  ASSERT_EQ(kept.codes.size(), codes);
  ASSERT_OK_AND_ASSIGN(const auto decoder,
                       OpenDecoder(spec, kept.bytes, kMany, kept.codes));
  std::vector<float> decoded(kMany);
  decoder->NewCursor()->Decode(0, absl::MakeSpan(decoded));
  ASSERT_OK(Decode(spec, bytes, absl::MakeSpan(values)));
  EXPECT_EQ(decoded, values);

  EXPECT_TRUE(upload("b").codes.empty());
  staging.Discard(Key("a"));
  EXPECT_EQ(upload("c").codes.size(), codes);
}

// An upload whose sender still encodes.
class OpenUploadTest : public StagingTest {
 protected:
  void SetUp() override {
    EXPECT_THAT(Begin(staging_, kKey, open_), IsOkAndHolds(0));
  }
  absl::Status Add(uint64_t from, uint64_t end) {
    const absl::string_view bytes(encoded_.bytes.data(), end);
    ASSIGN_OR_RETURN(const bool complete,
                     staging_.Append(kKey, CutChunk(bytes, from)));
    EXPECT_FALSE(complete) << "only the trailer can say so";
    return absl::OkStatus();
  }

  const ContributionKey kKey = Key("a");
  const v1::EncodedObject open_ = DescribeOpen({}, kValues);
};

TEST_F(OpenUploadTest, IsCompleteByItsTrailer) {
  EXPECT_EQ(staging_.used_bytes(), kBytes) << "the most it can have";
  ASSERT_OK(Add(0, 100));
  ASSERT_OK(Add(100, kBytes));
  EXPECT_OK(staging_.Verify(kKey, encoded_.object));
  EXPECT_THAT(staging_.Get(kKey), HoldsBytes(encoded_.bytes));
}

TEST_F(OpenUploadTest, ContinuesUnderItsFullDescription) {
  ASSERT_OK(Add(0, 100));
  EXPECT_THAT(Begin(staging_, kKey, encoded_.object), IsOkAndHolds(100));
  ASSERT_OK(Upload(staging_, kKey, encoded_, 100, kBytes, 1000));
  EXPECT_OK(staging_.Verify(kKey, encoded_.object));
  EXPECT_THAT(staging_.Get(kKey), HoldsBytes(encoded_.bytes));
}

TEST_F(OpenUploadTest, ThatContinuesWithOtherBytesIsFoundOut) {
  ASSERT_OK(Add(0, 100));
  const Encoded other(2.5f);
  EXPECT_THAT(Begin(staging_, kKey, other.object), IsOkAndHolds(100));
  ASSERT_OK(Upload(staging_, kKey, other, 100, kBytes, 1000));
  EXPECT_THAT(staging_.Verify(kKey, other.object), IsDataLoss("digest"));
  EXPECT_THAT(Begin(staging_, kKey, other.object), IsOkAndHolds(0));
}

TEST_F(OpenUploadTest, OfferedOpenAgainStartsOver) {
  ASSERT_OK(Add(0, 100));
  EXPECT_THAT(Begin(staging_, kKey, open_), IsOkAndHolds(0));
  EXPECT_EQ(staging_.used_bytes(), kBytes);
  ASSERT_OK(Add(0, kBytes));
  EXPECT_OK(staging_.Verify(kKey, encoded_.object));
}

TEST_F(OpenUploadTest, AWrongTrailerDiscardsIt) {
  struct Case {
    const char* what;
    std::function<void(v1::EncodedObject&)> damage;
    absl::StatusCode code;
  };
  const Case cases[] = {
      {"lacks the size",
       [](v1::EncodedObject& object) { object = DescribeOpen({}, kValues); },
       absl::StatusCode::kInvalidArgument},
      {"the header said 64",
       [](v1::EncodedObject& object) { object.set_size(kValues - 1); },
       absl::StatusCode::kInvalidArgument},
      {"the header said",
       [](v1::EncodedObject& object) { object.set_format(v1::E3M0); },
       absl::StatusCode::kInvalidArgument},
      {"with 256 bytes, described as 255",
       [](v1::EncodedObject& object) { object.set_encoded_bytes(kBytes - 1); },
       absl::StatusCode::kDataLoss},
      {"with 256 bytes, described as 1",
       [](v1::EncodedObject& object) {
         object.set_encoded_bytes(UINT64_MAX - 7);
       },
       absl::StatusCode::kDataLoss},
      {"digest",
       [](v1::EncodedObject& object) {
         object.set_digest(std::string(16, 'x'));
       },
       absl::StatusCode::kDataLoss},
      {"digest", [](v1::EncodedObject& object) { object.clear_digest(); },
       absl::StatusCode::kDataLoss},
  };
  for (const Case& wrong : cases) {
    ASSERT_OK(Begin(staging_, kKey, open_));
    ASSERT_OK(Add(0, kBytes));
    v1::EncodedObject trailer = encoded_.object;
    wrong.damage(trailer);
    EXPECT_THAT(staging_.Verify(kKey, trailer),
                StatusIs(wrong.code, HasSubstr(wrong.what)));
    EXPECT_EQ(staging_.used_bytes(), 0);
  }
}

TEST_F(OpenUploadTest, ATrailerBeforeTheLastChunkDiscardsIt) {
  ASSERT_OK(Add(0, 100));
  EXPECT_THAT(staging_.Verify(kKey, encoded_.object),
              IsDataLoss("with 100 bytes"));
  EXPECT_EQ(staging_.used_bytes(), 0);
}

TEST_F(OpenUploadTest, AChunkBeyondTheMostItCanHaveIsRefused) {
  ASSERT_OK(Add(0, kBytes));
  const std::string more(kBytes + 1, 'x');
  EXPECT_THAT(staging_.Append(kKey, CutChunk(more, kBytes)),
              IsInvalidArgument("beyond the object's 256 bytes"));
  EXPECT_OK(staging_.Verify(kKey, encoded_.object));
}

TEST_F(OpenUploadTest, NothingIsAppendedToVerifiedBytes) {
  // The encoding has fewer bytes than it might have had.
  Staging staging(2 * kBytes);
  ASSERT_OK(staging.Begin(kKey, open_, 2 * kBytes));
  EXPECT_EQ(staging.used_bytes(), 2 * kBytes);
  ASSERT_OK(staging.Append(kKey, CutChunk(encoded_.bytes, 0)));
  ASSERT_OK(staging.Verify(kKey, encoded_.object));
  EXPECT_EQ(staging.used_bytes(), kBytes) << "the rest is given back";
  const std::string more(kBytes + 1, 'x');
  EXPECT_THAT(staging.Append(kKey, CutChunk(more, kBytes)), IsUnavailable());
  EXPECT_THAT(staging.Get(kKey), HoldsBytes(encoded_.bytes));
}

TEST_F(StagingTest, IslandsUploadAtTheSameTime) {
  constexpr int kIslands = 4;
  constexpr uint64_t kVersions = 50;
  Staging staging(kIslands * kBytes);
  std::vector<std::thread> islands;
  for (int i = 0; i < kIslands; ++i) {
    islands.emplace_back([&staging, i] {
      const Encoded encoded(static_cast<float>(i));
      for (uint64_t version = 0; version < kVersions; ++version) {
        const ContributionKey key = Key(absl::StrCat("island-", i), 0, version);
        ASSERT_THAT(Begin(staging, key, encoded.object), IsOkAndHolds(0));
        ASSERT_OK(Upload(staging, key, encoded, 0, kBytes, 7));
        ASSERT_OK(staging.Verify(key, encoded.object));
        ASSERT_THAT(staging.Get(key), HoldsBytes(encoded.bytes));
        staging.Discard(key);
      }
    });
  }
  for (std::thread& island : islands) island.join();
  EXPECT_EQ(staging.used_bytes(), 0);
}

// An upload that began open takes less memory once its size is known.
TEST_F(StagingTest, AFullDescriptionGivesMemoryBack) {
  Staging staging(2 * kBytes);
  const v1::EncodedObject open = DescribeOpen({}, kValues);
  ASSERT_OK(staging.Begin(Key("a"), open, kBytes + 40));
  EXPECT_EQ(staging.used_bytes(), kBytes + 40);
  ASSERT_OK(staging.Append(Key("a"), CutChunk(encoded_.bytes, 0, 100)));
  // A description of fewer bytes than have arrived is of another upload.
  v1::EncodedObject shorter = encoded_.object;
  shorter.set_encoded_bytes(100);
  EXPECT_THAT(staging.Begin(Key("a"), shorter, kBytes + 40), IsOkAndHolds(100));
  EXPECT_EQ(staging.used_bytes(), 100);
  EXPECT_THAT(staging.Begin(Key("a"), encoded_.object, kBytes + 40),
              IsOkAndHolds(0));
  EXPECT_EQ(staging.used_bytes(), kBytes);
}

TEST_F(StagingTest, TheSizeIsAPartOfTheDescription) {
  Staging staging(2 * kBytes);
  ASSERT_OK(Begin(staging, Key("a"), encoded_.object));
  ASSERT_OK(Upload(staging, Key("a"), encoded_, 0, 100));
  v1::EncodedObject other = encoded_.object;
  other.set_encoded_bytes(kBytes - 1);
  EXPECT_THAT(Begin(staging, Key("a"), other), IsOkAndHolds(0));
}

TEST_F(StagingTest, KeepsBytesThatDidNotComeAsAnUpload) {
  Staging staging(0);
  const auto bytes = std::make_shared<const std::string>("bytes");
  for (const char* const island : {"a", "b"}) {
    staging.Keep(Key(island, 0, 3), {.bytes = *bytes, .owner = bytes});
  }
  EXPECT_EQ(staging.used_bytes(), 0);
  staging.DiscardBefore(0, 3);
  EXPECT_THAT(staging.Get(Key("a", 0, 3)), HoldsBytes("bytes"));
  staging.Discard(Key("a", 0, 3));
  EXPECT_FALSE(staging.Get(Key("a", 0, 3)).ok());
  staging.DiscardBefore(1, 4);
  EXPECT_OK(staging.Get(Key("b", 0, 3)));
  staging.DiscardBefore(0, 4);
  EXPECT_FALSE(staging.Get(Key("b", 0, 3)).ok());
}

}  // namespace
}  // namespace causeway
