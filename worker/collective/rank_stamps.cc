// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/collective/rank_stamps.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/status_macros.h"

namespace causeway {
namespace {

constexpr absl::Duration kBeat = absl::Milliseconds(100);

// The page and the clock for stamps. Never destroyed, because threads stamp
// until the process ends.
struct Opened {
  std::unique_ptr<RankStampPage> page;
  Clock now;
};
std::atomic<Opened*> opened = nullptr;

uint64_t Now(const Opened& stamps) {
  return static_cast<uint64_t>(absl::ToUnixMicros(stamps.now()));
}

void Beat(const Opened& stamps) {
  const auto self = static_cast<uint32_t>(getpid());
  while (true) {
    const uint64_t now = Now(stamps);
    for (int rank = 0; rank < kMostRanks; ++rank) {
      RankStamps& mine = stamps.page->rank(rank);
      if (mine.process == self) mine.beat = now;
    }
    absl::SleepFor(kBeat);
  }
}

RankStamps* StampsOf(int rank) {
  Opened* const stamps = opened;
  return stamps == nullptr ? nullptr : &stamps->page->rank(rank);
}

absl::Status ErrnoError(absl::string_view what) {
  return absl::ErrnoToStatus(errno, what);
}

}  // namespace

absl::string_view RankSectionName(RankSection section) {
  switch (section) {
    case RankSection::kNone:
      return "nothing";
    case RankSection::kState:
      return "the exchange of the state";
    case RankSection::kStep:
      return "a step";
    case RankSection::kValidation:
      return "a validation";
    case RankSection::kSnapshot:
      return "a snapshot";
    case RankSection::kApply:
      return "an update";
    case RankSection::kEncoding:
      return "encoding or decoding";
    case RankSection::kCollective:
      return "a collective operation";
  }
  return "";
}

void RankStamps::Clear() {
  process = 0;
  beat = 0;
  step = 0;
  rounds = 0;
  for (Lane& lane : lanes) {
    lane.now = 0;
    lane.count = 0;
    for (std::atomic<uint64_t>& longest : lane.longest) longest = 0;
  }
}

absl::StatusOr<std::unique_ptr<RankStampPage>> RankStampPage::Create() {
  const int file = memfd_create("causeway-rank-stamps", MFD_CLOEXEC);
  if (file < 0) {
    return ErrnoError("cannot create the memory for the ranks' stamps");
  }
  if (ftruncate(file, sizeof(Memory)) != 0) {
    const absl::Status status = ErrnoError("cannot size the ranks' stamps");
    close(file);
    return status;
  }
  return Map(file);
}

absl::StatusOr<std::unique_ptr<RankStampPage>> RankStampPage::Open(
    const std::string& path) {
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) {
    return ErrnoError(absl::StrCat("cannot open the ranks' stamps ", path));
  }
  if (lseek(file, 0, SEEK_END) != static_cast<off_t>(sizeof(Memory))) {
    close(file);
    return absl::FailedPreconditionError(absl::StrCat(
        path, " holds ranks' stamps of another version of causeway"));
  }
  return Map(file);
}

absl::StatusOr<std::unique_ptr<RankStampPage>> RankStampPage::Map(int file) {
  void* const memory = mmap(nullptr, sizeof(Memory), PROT_READ | PROT_WRITE,
                            MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) {
    const absl::Status status = ErrnoError("cannot map the ranks' stamps");
    close(file);
    return status;
  }
  return absl::WrapUnique(
      new RankStampPage(file, static_cast<Memory*>(memory)));
}

RankStampPage::~RankStampPage() {
  munmap(memory_, sizeof(Memory));
  close(file_);
}

std::string RankStampPage::path() const {
  return absl::StrCat("/proc/", getpid(), "/fd/", file_);
}

void RankStampPage::Clear() {
  memory_->left = false;
  memory_->others_missing = false;
  memory_->keeps_checkpoint = false;
  // A process may have been killed while it took the verdict.
  memory_->verdict_bytes &= ~kTaking;
  for (int rank = 0; rank < kMostRanks; ++rank) {
    if (memory_->ranks[rank].process != 0) memory_->ranks[rank].Clear();
  }
}

void RankStampPage::SetVerdict(const v1::RankTrouble& verdict) {
  const std::string text = verdict.SerializeAsString();
  if (memory_->verdict_bytes != 0 || text.size() > sizeof(memory_->verdict)) {
    return;
  }
  std::memcpy(memory_->verdict, text.data(), text.size());
  memory_->verdict_bytes = static_cast<uint32_t>(text.size());
}

std::optional<v1::RankTrouble> RankStampPage::TakeVerdict() {
  uint32_t bytes = memory_->verdict_bytes;
  if (bytes == 0 || (bytes & kTaking) != 0 ||
      !memory_->verdict_bytes.compare_exchange_strong(bytes, bytes | kTaking)) {
    return std::nullopt;
  }
  v1::RankTrouble verdict;
  const bool is_whole =
      verdict.ParseFromArray(memory_->verdict, static_cast<int>(bytes));
  // The next verdict may overwrite the bytes only now.
  memory_->verdict_bytes = 0;
  if (!is_whole) return std::nullopt;
  return verdict;
}

absl::Status OpenRankStamps(Clock now) {
  const char* const path = std::getenv(kRankStampsVariable);
  if (path == nullptr || opened != nullptr) return absl::OkStatus();
  auto stamps = std::make_unique<Opened>();
  ASSIGN_OR_RETURN(stamps->page, RankStampPage::Open(path));
  stamps->now = std::move(now);
  opened = stamps.release();
  // Some parents leave their children behind when they are killed.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  std::thread([] { Beat(*opened.load()); }).detach();
  return absl::OkStatus();
}

RankStampPage* OpenedRankStamps() {
  Opened* const stamps = opened;
  return stamps == nullptr ? nullptr : stamps->page.get();
}

std::optional<v1::RankTrouble> TakeOpenedVerdict() {
  RankStampPage* const stamps = OpenedRankStamps();
  return stamps == nullptr ? std::nullopt : stamps->TakeVerdict();
}

RankSectionScope::RankSectionScope(int rank, RankLane lane, RankSection section)
    : stamps_(StampsOf(rank)),
      lane_(stamps_ == nullptr ? nullptr
                               : &stamps_->lanes[static_cast<int>(lane)]),
      section_(section),
      begin_(stamps_ == nullptr ? 0 : Now(*opened.load())) {
  if (stamps_ == nullptr) return;
  const auto self = static_cast<uint32_t>(getpid());
  if (stamps_->process != self) {
    // The stamps may be an earlier process's.
    stamps_->Clear();
    stamps_->beat = begin_;
    stamps_->process = self;
  }
  ++lane_->count;
  lane_->now = begin_ << 8 | static_cast<uint8_t>(section);
}

RankSectionScope::~RankSectionScope() {
  if (stamps_ == nullptr) return;
  const uint64_t took = Now(*opened.load()) - begin_;
  lane_->now = 0;
  std::atomic<uint64_t>& longest = lane_->longest[static_cast<int>(section_)];
  if (stamps_->rounds >= kFirstRounds && took > longest) longest = took;
}

void StampStep(int rank, uint64_t step) {
  RankStamps* const stamps = StampsOf(rank);
  if (stamps != nullptr) stamps->step = step;
}

void StampRound(int rank) {
  RankStamps* const stamps = StampsOf(rank);
  if (stamps != nullptr) ++stamps->rounds;
}

void StampOthersMissing() {
  RankStampPage* const page = OpenedRankStamps();
  if (page != nullptr) page->others_missing() = true;
}

}  // namespace causeway
