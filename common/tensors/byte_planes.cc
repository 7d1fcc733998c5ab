// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/tensors/byte_planes.h"

#include <zstd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "common/status_macros.h"
#include "glog/logging.h"

namespace causeway {
namespace {

static_assert(std::endian::native == std::endian::little,
              "values and numbers are copied as they lie in memory");

// Higher levels took more time and more bytes.
constexpr int kLevel = 1;

// A plane begins with a header: the number of bytes that follow in the lower 31
// bits, and whether they are a zstd frame in the top bit.
constexpr size_t kHeaderBytes = 4;
constexpr uint32_t kIsCompressed = 1u << 31;

struct FreeContext {
  void operator()(ZSTD_CCtx* context) const { ZSTD_freeCCtx(context); }
  void operator()(ZSTD_DCtx* context) const { ZSTD_freeDCtx(context); }
};

// Splits the bytes of values into planes of `count` bytes each; Join inverts
// it.
template <size_t kWidth>
void Split(const char* values, size_t count, char* planes) {
  for (size_t i = 0; i < count; ++i) {
    for (size_t plane = 0; plane < kWidth; ++plane) {
      planes[plane * count + i] = values[kWidth * i + plane];
    }
  }
}
template <size_t kWidth>
void Join(const char* planes, size_t count, char* values) {
  for (size_t i = 0; i < count; ++i) {
    for (size_t plane = 0; plane < kWidth; ++plane) {
      values[kWidth * i + plane] = planes[plane * count + i];
    }
  }
}

void SplitPlanes(size_t width, const char* values, size_t count, char* planes) {
  width == 4   ? Split<4>(values, count, planes)
  : width == 2 ? Split<2>(values, count, planes)
               : Split<1>(values, count, planes);
}
void JoinPlanes(size_t width, const char* planes, size_t count, char* values) {
  width == 4   ? Join<4>(planes, count, values)
  : width == 2 ? Join<2>(planes, count, values)
               : Join<1>(planes, count, values);
}

absl::Status Damaged(absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrFormat("compressed byte planes: %s; the bytes are damaged, or "
                      "from another version",
                      what));
}

// Takes `size` bytes off the front of `bytes`.
absl::StatusOr<absl::string_view> Take(absl::string_view& bytes, size_t size) {
  if (bytes.size() < size) return Damaged("they are cut off");
  const absl::string_view taken = bytes.substr(0, size);
  bytes.remove_prefix(size);
  return taken;
}

class Compressor {
 public:
  explicit Compressor(size_t width)
      : width_(width), context_(ZSTD_createCCtx()) {}

  // Appends a block's bytes to `compressed`.
  void Add(absl::string_view block, std::string& compressed) {
    const size_t count = block.size() / width_;
    planes_.resize(count * width_);
    SplitPlanes(width_, block.data(), count, planes_.data());
    for (size_t plane = 0; plane < width_; ++plane) {
      AddPlane(absl::string_view(planes_).substr(plane * count, count),
               compressed);
    }
    const absl::string_view rest = block.substr(count * width_);
    compressed.append(rest.data(), rest.size());
  }

 private:
  void AddPlane(absl::string_view plane, std::string& compressed) {
    const size_t begin = compressed.size();
    compressed.resize(begin + kHeaderBytes + plane.size());
    char* const to = compressed.data() + begin + kHeaderBytes;
    // An error means that the plane does not get smaller.
    size_t bytes = plane.empty()
                       ? 0
                       : ZSTD_compressCCtx(context_.get(), to, plane.size() - 1,
                                           plane.data(), plane.size(), kLevel);
    uint32_t header = static_cast<uint32_t>(bytes) | kIsCompressed;
    if (plane.empty() || ZSTD_isError(bytes)) {
      std::copy(plane.begin(), plane.end(), to);
      bytes = plane.size();
      header = static_cast<uint32_t>(bytes);
    }
    std::memcpy(to - kHeaderBytes, &header, kHeaderBytes);
    compressed.resize(begin + kHeaderBytes + bytes);
  }

  const size_t width_;
  const std::unique_ptr<ZSTD_CCtx, FreeContext> context_;
  std::string planes_;
};

class Decompressor {
 public:
  explicit Decompressor(size_t width)
      : width_(width), context_(ZSTD_createDCtx()) {}

  // Takes the bytes of `block` off the front of `compressed`.
  absl::Status Take(absl::string_view& compressed, absl::Span<char> block) {
    const size_t count = block.size() / width_;
    planes_.resize(count * width_);
    for (size_t plane = 0; plane < width_; ++plane) {
      RETURN_IF_ERROR(TakePlane(
          compressed, absl::MakeSpan(planes_).subspan(plane * count, count)));
    }
    JoinPlanes(width_, planes_.data(), count, block.data());
    const absl::Span<char> rest = block.subspan(count * width_);
    ASSIGN_OR_RETURN(const absl::string_view taken,
                     causeway::Take(compressed, rest.size()));
    std::copy(taken.begin(), taken.end(), rest.begin());
    return absl::OkStatus();
  }

 private:
  absl::Status TakePlane(absl::string_view& compressed,
                         absl::Span<char> plane) {
    ASSIGN_OR_RETURN(const absl::string_view head,
                     causeway::Take(compressed, kHeaderBytes));
    uint32_t header;
    std::memcpy(&header, head.data(), sizeof(header));
    ASSIGN_OR_RETURN(const absl::string_view bytes,
                     causeway::Take(compressed, header & ~kIsCompressed));
    if ((header & kIsCompressed) == 0) {
      if (bytes.size() != plane.size()) return Damaged("a plane has no length");
      std::copy(bytes.begin(), bytes.end(), plane.begin());
      return absl::OkStatus();
    }
    // zstd writes no more than the plane, whatever the frame says.
    const size_t got = ZSTD_decompressDCtx(
        context_.get(), plane.data(), plane.size(), bytes.data(), bytes.size());
    if (ZSTD_isError(got)) return Damaged(ZSTD_getErrorName(got));
    if (got != plane.size()) return Damaged("a plane is too short");
    return absl::OkStatus();
  }

  const size_t width_;
  const std::unique_ptr<ZSTD_DCtx, FreeContext> context_;
  std::string planes_;
};

}  // namespace

std::string CompressPlanes(absl::string_view bytes, size_t width) {
  std::string compressed;
  const size_t blocks = (bytes.size() + kPlanesBlock - 1) / kPlanesBlock;
  compressed.reserve(bytes.size() + blocks * width * kHeaderBytes);
  const absl::Status appended =
      StreamPlanes(bytes, width, 1, [&](absl::string_view block) {
        compressed.append(block.data(), block.size());
        return absl::OkStatus();
      });
  CHECK(appended.ok());
  if (compressed.size() >= bytes.size()) compressed.clear();
  return compressed;
}

absl::Status StreamPlanes(
    absl::string_view bytes, size_t width, int threads,
    absl::FunctionRef<absl::Status(absl::string_view)> sink) {
  CHECK(width == 1 || width == 2 || width == 4) << width;
  CHECK_GE(threads, 1);
  std::atomic<size_t> next = 0;
  struct {
    absl::Mutex mu;
    size_t end ABSL_GUARDED_BY(mu) = 0;
    absl::Status status ABSL_GUARDED_BY(mu);
  } handed_on;
  const auto compress = [&] {
    Compressor compressor(width);
    std::string compressed;
    for (size_t begin = next.fetch_add(kPlanesBlock); begin < bytes.size();
         begin = next.fetch_add(kPlanesBlock)) {
      compressed.clear();
      compressor.Add(bytes.substr(begin, kPlanesBlock), compressed);
      absl::MutexLock lock(&handed_on.mu);
      const auto is_next = [&] {
        handed_on.mu.AssertReaderHeld();
        return handed_on.end == begin || !handed_on.status.ok();
      };
      handed_on.mu.Await(absl::Condition(&is_next));
      if (!handed_on.status.ok()) return;
      handed_on.status = sink(compressed);
      handed_on.end = begin + kPlanesBlock;
    }
  };
  std::vector<std::thread> others;
  for (int i = 1; i < threads; ++i) others.emplace_back(compress);
  compress();
  for (std::thread& other : others) other.join();
  absl::MutexLock lock(&handed_on.mu);
  return handed_on.status;
}

absl::Status DecompressPlanes(absl::string_view compressed, size_t width,
                              absl::Span<char> bytes) {
  CHECK(width == 1 || width == 2 || width == 4) << width;
  Decompressor decompressor(width);
  for (size_t begin = 0; begin < bytes.size(); begin += kPlanesBlock) {
    RETURN_IF_ERROR(
        decompressor.Take(compressed, bytes.subspan(begin, kPlanesBlock)));
  }
  return compressed.empty() ? absl::OkStatus()
                            : Damaged("there are bytes after the last plane");
}

}  // namespace causeway
