// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Parts on a device compute the same bits as parts in host memory, in every
// step of contributions and updates. Skipped where there is no device.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <ostream>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/checksum.h"
#include "common/testing/cuda_device.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "outer_optimizer/mixing.h"
#include "quantization/codec.h"
#include "quantization/strips/layout.h"
#include "quantization/testing/whole_vectors.h"
#include "worker/replica/device/device_fragment_part.h"
#include "worker/replica/device/device_queue.h"
#include "worker/replica/host_fragment_part.h"

namespace causeway {
namespace {

constexpr int64_t kStrip = static_cast<int64_t>(kStripValues);
constexpr int64_t kFragment = 2 * kStrip + 1234;

using Values = std::vector<float>;

std::unique_ptr<DeviceQueue> NewQueue() {
  return NewCudaQueue(0, QueuePriority::kLow).value();
}

TEST(CudaQueueTest, SaysWhyThereIsNoDevice) {
  if (CudaDevice().ok()) GTEST_SKIP() << "there is a device";
  EXPECT_THAT(NewCudaQueue(0, QueuePriority::kLow), IsFailedPrecondition());
}

TEST(CudaQueueTest, SaysHowMuchMemoryThereIsNot) {
  SKIP_WITHOUT_CUDA_DEVICE();
  const std::unique_ptr<DeviceQueue> queue = NewQueue();
  EXPECT_THAT(queue->Allocate(MemoryKind::kDevice, size_t{1} << 50),
              IsResourceExhausted("of the device's memory"));
  EXPECT_OK(queue->Synchronize());
}

Values Random(int64_t size, uint64_t seed, float scale) {
  std::mt19937_64 random(seed);
  Values values(static_cast<size_t>(size));
  for (float& value : values) {
    // The values have all magnitudes and both signs.
    const uint64_t bits = random();
    value = scale * static_cast<float>(static_cast<int32_t>(bits)) * 0x1p-31f;
    if (bits >> 60 == 0) value *= 0x1p-6f;
  }
  return values;
}

std::vector<uint32_t> BitsOf(const Values& values) {
  std::vector<uint32_t> bits;
  bits.reserve(values.size());
  for (const float value : values) {
    bits.push_back(std::bit_cast<uint32_t>(value));
  }
  return bits;
}

TEST(CudaQueueTest, AddsAndSubtractsAsTheHostDoes) {
  SKIP_WITHOUT_CUDA_DEVICE();
  const std::unique_ptr<DeviceQueue> queue = NewQueue();
  const auto allocate = [&] {
    return static_cast<float*>(
        queue->Allocate(MemoryKind::kDevice, 2000 * sizeof(float)).value());
  };
  float* const device_other = allocate();
  float* const device_values = allocate();
  for (const size_t size : {1u, 3u, 4u, 130u, 2000u}) {
    const auto special = [&](uint64_t seed) {
      Values values = Random(static_cast<int64_t>(size), seed, 1);
      for (size_t i = 3; i < size; i += 97) values[i] = -0.0f;
      for (size_t i = 5 + seed; i < size; i += 101) values[i] = INFINITY;
      return values;
    };
    const size_t bytes = size * sizeof(float);
    const Values other = special(1);
    for (const bool adds : {false, true}) {
      Values want = special(2);
      Values got = want;
      queue->Copy(other.data(), bytes, device_other);
      queue->Copy(got.data(), bytes, device_values);
      if (adds) {
        absl::c_transform(want, other, want.begin(), std::plus<>());
        queue->Add(device_other, size, device_values);
      } else {
        PseudoGradient(want, other, absl::MakeSpan(want));
        queue->Subtract(device_other, size, device_values);
      }
      queue->Copy(device_values, bytes, got.data());
      ASSERT_OK(queue->Synchronize());
      EXPECT_EQ(BitsOf(got), BitsOf(want)) << size << " " << adds;
    }
  }
  queue->Free(MemoryKind::kDevice, device_other);
  queue->Free(MemoryKind::kDevice, device_values);
}

// Returns the share of a rank that holds [begin, end), in two pieces of its
// shard, or in 11 if these are more than a strip.
FragmentShare ShareOf(int64_t begin, int64_t end) {
  const auto next_strip = [](int64_t value) {
    return std::min((value + kStrip - 1) / kStrip * kStrip, kFragment);
  };
  FragmentShare share = {.fragment_size = kFragment,
                         .held = {begin, end},
                         .encoded = {next_strip(begin), next_strip(end)}};
  const auto size = static_cast<uint64_t>(end - begin);
  const uint64_t pieces = size > kStripValues ? 11 : 2;
  // Every other gap keeps the alignment of a quad of values.
  uint64_t gap = 5;
  for (uint64_t piece = 0; piece < pieces && size > 0; ++piece) {
    const uint64_t first = piece * size / (pieces + 1) / 4 * 4;
    const uint64_t next =
        piece + 1 < pieces ? (piece + 1) * size / (pieces + 1) / 4 * 4 : size;
    if (next > first) {
      share.segments.push_back({.model_offset = first + gap,
                                .fragment_offset = first,
                                .size = next - first});
    }
    gap += piece % 2 == 0 ? 3 : 5;
  }
  share.shard_size = end - begin + 50;
  return share;
}

// A rank's parameters on the device.
class DeviceShard {
 public:
  DeviceShard(DeviceQueue* queue, size_t size) : queue_(queue), size_(size) {
    const absl::StatusOr<void*> memory =
        queue->Allocate(MemoryKind::kDevice, size * sizeof(float));
    EXPECT_OK(memory.status());
    data_ = static_cast<float*>(*memory);
  }
  ~DeviceShard() { queue_->Free(MemoryKind::kDevice, data_); }

  float* data() { return data_; }
  void Set(const Values& values) {
    queue_->Copy(values.data(), size_ * sizeof(float), data_);
    EXPECT_OK(queue_->Synchronize());
  }
  Values Get() {
    Values values(size_);
    queue_->Copy(data_, size_ * sizeof(float), values.data());
    EXPECT_OK(queue_->Synchronize());
    return values;
  }

 private:
  DeviceQueue* const queue_;
  const size_t size_;
  float* data_ = nullptr;
};

struct Formats {
  std::string name;
  ReplicaOptions options;
};

struct Scenario {
  Formats formats;
  bool anchors_on_device = false;
};

void PrintTo(const Scenario& scenario, std::ostream* out) {
  *out << scenario.formats.name;
}

class DeviceFragmentPartTest : public testing::TestWithParam<Scenario> {
 protected:
  void SetUp() override {
    SKIP_WITHOUT_CUDA_DEVICE();
    queue_ = NewQueue();
  }

  // Makes both parts for a share, with the same anchor.
  void Begin(const FragmentShare& share, uint64_t piece_strips) {
    End();
    share_ = share;
    options_ = GetParam().formats.options;
    auto device =
        PartDevice::Create({.training = NewQueue(),
                            .background = NewQueue(),
                            .anchors_on_device = GetParam().anchors_on_device,
                            .piece_strips = piece_strips});
    ASSERT_OK(device.status());
    device_ = *std::move(device);
    master_ = Random(share.shard_size, ++seed_, 0.02f);
    shard_ = std::make_unique<DeviceShard>(queue_.get(), master_.size());
    shard_->Set(master_);
    host_ = MakeHostFragmentPart(share_, options_, master_.data(),
                                 &host_snapshots_);
    ASSERT_OK_AND_ASSIGN(
        part_, MakeDeviceFragmentPart(share_, options_, shard_->data(),
                                      device_.get()));
    ExpectSameAnchors();
  }
  void End() {
    part_.reset();
    shard_.reset();
    device_.reset();
  }
  void TearDown() override { End(); }

  void Train() {
    const Values change = Random(share_.shard_size, ++seed_, 1e-3f);
    for (size_t i = 0; i < master_.size(); ++i) master_[i] += change[i];
    shard_->Set(master_);
  }

  void Snapshot() {
    ASSERT_OK(host_->TakeSnapshot(master_.data()));
    ASSERT_OK(part_->TakeSnapshot(shard_->data()));
    ExpectSameMasters();
  }

  void Contribute(bool merged) {
    ASSERT_OK(host_->BeginContribution(0));
    ASSERT_OK(part_->BeginContribution(0));
    if (share_.edge_out() > 0) {
      Values want(share_.edge_out());
      Values got(share_.edge_out());
      ASSERT_OK(host_->TakeEdge(absl::MakeSpan(want)));
      ASSERT_OK(part_->TakeEdge(absl::MakeSpan(got)));
      ASSERT_EQ(BitsOf(got), BitsOf(want));
    }
    if (share_.edge_in() > 0) {
      const Values edge = Random(share_.edge_in(), ++seed_, 1e-3f);
      ASSERT_OK(host_->AddEdge(edge));
      ASSERT_OK(part_->AddEdge(edge));
    }
    const uint64_t most =
        MaxEncodedBytes(options_.uplink, share_.encoded.size());
    std::string want(most, 'x');
    std::string got(most, 'y');
    ASSERT_OK_AND_ASSIGN(const EncodedBytes wanted,
                         host_->Encode(most, absl::MakeSpan(want)));
    // Encodes in pieces, as a sender does.
    EncodedBytes encoded;
    for (uint64_t bytes = 0; !encoded.complete; bytes += 20'000) {
      ASSERT_OK_AND_ASSIGN(encoded, part_->Encode(bytes, absl::MakeSpan(got)));
      ASSERT_TRUE(encoded.complete || encoded.ready >= bytes);
    }
    ASSERT_TRUE(wanted.complete);
    ASSERT_EQ(encoded.ready, wanted.ready);
    want.resize(wanted.ready);
    got.resize(wanted.ready);
    ASSERT_TRUE(got == want);
    ASSERT_OK(host_->EndContribution(merged));
    ASSERT_OK(part_->EndContribution(merged));
  }

  // Returns the strips of an update's encoding that have held values.
  std::string Update(float special = 0) {
    Values values = Random(kFragment, ++seed_, 1e-3f);
    if (share_.held.size() == 0) return "";
    if (special != 0) values[share_.held.begin] = special;
    const absl::StatusOr<std::string> encoded =
        Encode(options_.downlink, values);
    EXPECT_OK(encoded.status());
    EncodingReader reader = NewEncodingReader(options_.downlink, values.size());
    EXPECT_OK(reader.Read(*encoded));
    std::string strips;
    for (int64_t strip = share_.held.begin / kStrip;
         strip * kStrip < share_.held.end; ++strip) {
      absl::StrAppend(&strips, reader.Strip(*encoded, strip));
    }
    return strips;
  }

  void Receive(absl::string_view update) {
    for (size_t end = 0; end < update.size(); end += 50'000) {
      ASSERT_OK(host_->Decode(update.substr(0, end)));
      ASSERT_OK(part_->Decode(update.substr(0, end)));
    }
    if (!update.empty()) {
      ASSERT_OK(host_->Decode(update));
      ASSERT_OK(part_->Decode(update));
    }
    ASSERT_OK(host_->FinishUpdate());
    ASSERT_OK(part_->FinishUpdate());
    // A finished update is not dropped.
    ASSERT_OK(host_->DropUpdate());
    ASSERT_OK(part_->DropUpdate());
  }

  void Use(bool includes_island) {
    Digest128Stream want;
    Digest128Stream got;
    if (share_.held.begin > 0) {
      const Values before = {1, 2, 3};
      want.Update(before);
      got.Update(before);
    }
    ASSERT_OK(host_->Digest(want));
    ASSERT_OK(part_->Digest(got));
    EXPECT_EQ(got.Finish(), want.Finish());
    Train();
    ASSERT_OK(host_->Apply(includes_island, master_.data()));
    ASSERT_OK(part_->Apply(includes_island, shard_->data()));
    ExpectSameMasters();
    ExpectSameAnchors();
  }

  void ExpectSameMasters() {
    ASSERT_TRUE(BitsOf(shard_->Get()) == BitsOf(master_));
  }
  void ExpectSameAnchors() {
    Values want(static_cast<size_t>(share_.held.size()));
    Values got = want;
    ASSERT_OK(host_->ReadAnchor(absl::MakeSpan(want)));
    ASSERT_OK(part_->ReadAnchor(absl::MakeSpan(got)));
    ASSERT_TRUE(BitsOf(got) == BitsOf(want));
  }

  // Runs two contributions and updates, with training in between.
  void Rounds() {
    Train();
    Snapshot();
    Train();
    Contribute(/*merged=*/true);
    Receive(Update());
    Use(/*includes_island=*/true);
    Train();
    Snapshot();
    Contribute(/*merged=*/false);
    Receive(Update());
    Use(/*includes_island=*/false);
  }

  std::unique_ptr<DeviceQueue> queue_;
  uint64_t seed_ = 0;
  FragmentShare share_;
  ReplicaOptions options_;
  SnapshotPool host_snapshots_;
  std::unique_ptr<PartDevice> device_;
  Values master_;
  std::unique_ptr<DeviceShard> shard_;
  std::unique_ptr<FragmentPart> host_;
  std::unique_ptr<FragmentPart> part_;
};

std::vector<Scenario> Scenarios() {
  const CodecSpec plain = {.format = v1::INT8, .block_size = 64};
  const CodecSpec compressed = {.format = v1::INT4, .entropy_coded = true};
  const CodecSpec dense = {.format = v1::BF16};
  const Formats formats[] = {
      {"Plain", {.uplink = plain, .downlink = plain}},
      {"Compressed", {.uplink = compressed, .downlink = compressed}},
      {"DenseDown", {.uplink = compressed, .downlink = dense}},
      {"Feedback",
       {.uplink = compressed, .error_feedback = 0.9f, .downlink = plain}}};
  std::vector<Scenario> scenarios;
  for (const Formats& each : formats) {
    scenarios.push_back({.formats = each});
    if (each.name == "Plain" || each.name == "Feedback") {
      scenarios.push_back({.formats = each, .anchors_on_device = true});
    }
  }
  return scenarios;
}

INSTANTIATE_TEST_SUITE_P(, DeviceFragmentPartTest,
                         testing::ValuesIn(Scenarios()), [](const auto& info) {
                           return absl::StrCat(
                               info.param.formats.name,
                               info.param.anchors_on_device ? "OnDevice" : "");
                         });

TEST_P(DeviceFragmentPartTest, ComputesWhatThePartInHostMemoryComputes) {
  // The rank holds all values; from the middle of a strip into another; up to a
  // strip's end; from a strip's start on; a few in a strip; none.
  const std::pair<int64_t, int64_t> held[] = {{0, kFragment},
                                              {100, kStrip + 48},
                                              {kStrip + 48, 2 * kStrip},
                                              {kStrip, kFragment},
                                              {kStrip + 16, kStrip + 32},
                                              {kFragment, kFragment}};
  uint64_t piece_strips = 1;
  for (const auto& [begin, end] : held) {
    SCOPED_TRACE(absl::StrCat("values ", begin, " to ", end));
    ASSERT_NO_FATAL_FAILURE(Begin(ShareOf(begin, end), piece_strips));
    ASSERT_NO_FATAL_FAILURE(Rounds());
    piece_strips = piece_strips % 3 + 1;
  }
}

TEST_P(DeviceFragmentPartTest, TakesAnchorsInsteadOfUpdates) {
  ASSERT_NO_FATAL_FAILURE(Begin(ShareOf(400, 2 * kStrip + 7), 1));
  for (const bool includes_island : {false, true}) {
    Train();
    const Values anchor = Random(share_.held.size(), ++seed_, 0.02f);
    ASSERT_OK(host_->ReplaceAnchor(anchor));
    ASSERT_OK(part_->ReplaceAnchor(anchor));
    ASSERT_NO_FATAL_FAILURE(Use(includes_island));
  }
  ASSERT_NO_FATAL_FAILURE(Rounds());
}

TEST_P(DeviceFragmentPartTest, GoesOnAfterUpdatesThatBreakOffOrAreBad) {
  ASSERT_NO_FATAL_FAILURE(Begin(ShareOf(64, 2 * kStrip + 64), 1));
  std::string update = Update();
  ASSERT_OK(
      part_->Decode(absl::string_view(update).substr(0, update.size() - 1)));
  EXPECT_THAT(part_->FinishUpdate(), IsInvalidArgument());
  ASSERT_OK(part_->DropUpdate());
  EXPECT_THAT(part_->Decode(Update(INFINITY)), IsInvalidArgument());
  ASSERT_OK(part_->DropUpdate());
  ASSERT_NO_FATAL_FAILURE(Rounds());
}

// An anchor may also replace a finished update that does not lead to the
// coordinator's anchor.
TEST_P(DeviceFragmentPartTest, TakesAnchorsInsteadOfFinishedUpdates) {
  ASSERT_NO_FATAL_FAILURE(Begin(ShareOf(0, kStrip + 64), 2));
  ASSERT_NO_FATAL_FAILURE(Receive(Update()));
  const Values anchor = Random(share_.held.size(), ++seed_, 0.02f);
  ASSERT_OK(host_->ReplaceAnchor(anchor));
  ASSERT_OK(part_->ReplaceAnchor(anchor));
  ASSERT_NO_FATAL_FAILURE(Use(/*includes_island=*/true));
  ASSERT_NO_FATAL_FAILURE(Rounds());
}

TEST_P(DeviceFragmentPartTest, ThreadsWorkOnFragmentsAtOnce) {
  constexpr uint32_t kFragments = 3;
  ASSERT_NO_FATAL_FAILURE(Begin(ShareOf(0, kFragment), 1));
  const auto work = [&](FragmentPart& part, const std::string& update,
                        std::string& encoded, std::string& digest) {
    ASSERT_OK(part.BeginContribution(0));
    encoded.resize(MaxEncodedBytes(options_.uplink, kFragment));
    ASSERT_OK_AND_ASSIGN(
        const EncodedBytes bytes,
        part.Encode(encoded.size(),
                    absl::MakeSpan(&encoded[0], encoded.size())));
    encoded.resize(bytes.ready);
    ASSERT_OK(part.EndContribution(false));
    for (size_t end = 0; end < update.size(); end += 10'000) {
      ASSERT_OK(part.Decode(absl::string_view(update).substr(0, end)));
    }
    ASSERT_OK(part.Decode(update));
    ASSERT_OK(part.FinishUpdate());
    Digest128Stream all;
    ASSERT_OK(part.Digest(all));
    digest = all.Finish();
  };
  std::vector<std::unique_ptr<FragmentPart>> parts;
  std::vector<std::string> updates;
  for (uint32_t fragment = 0; fragment < kFragments; ++fragment) {
    ASSERT_OK_AND_ASSIGN(
        auto part, MakeDeviceFragmentPart(share_, options_, shard_->data(),
                                          device_.get()));
    parts.push_back(std::move(part));
    updates.push_back(Update());
  }
  for (const auto& part : parts) {
    ASSERT_OK(part->TakeSnapshot(shard_->data()));
  }
  std::vector<std::string> encoded(kFragments);
  std::vector<std::string> digests(kFragments);
  std::vector<std::thread> threads;
  for (uint32_t fragment = 0; fragment < kFragments; ++fragment) {
    threads.emplace_back([&, fragment] {
      work(*parts[fragment], updates[fragment], encoded[fragment],
           digests[fragment]);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (uint32_t fragment = 0; fragment < kFragments; ++fragment) {
    const auto part = MakeHostFragmentPart(share_, options_, master_.data(),
                                           &host_snapshots_);
    ASSERT_OK(part->TakeSnapshot(master_.data()));
    std::string want;
    std::string want_digest;
    work(*part, updates[fragment], want, want_digest);
    EXPECT_TRUE(encoded[fragment] == want) << fragment;
    EXPECT_EQ(digests[fragment], want_digest) << fragment;
  }
}

// The second snapshot finds the device's memory for snapshots in use.
TEST_P(DeviceFragmentPartTest, SnapshotsMayWait) {
  ASSERT_NO_FATAL_FAILURE(Begin(ShareOf(0, kStrip + 64), 1));
  ASSERT_OK_AND_ASSIGN(
      const auto other,
      MakeDeviceFragmentPart(share_, options_, shard_->data(), device_.get()));
  ASSERT_OK(other->TakeSnapshot(shard_->data()));
  ASSERT_NO_FATAL_FAILURE(Rounds());
  ASSERT_OK(other->BeginContribution(0));
  ASSERT_OK(other->EndContribution(false));
  ASSERT_NO_FATAL_FAILURE(Rounds());
}

}  // namespace
}  // namespace causeway
