// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "cli/progress.h"

#include <utility>

#include "absl/strings/str_format.h"
#include "cli/human.h"

namespace causeway {
namespace {

// Goes back to the line's start and erases the line (ECMA-48).
constexpr char kEraseLine[] = "\r\x1b[K";

}  // namespace

Progress::Progress(std::string unit, uint64_t total,
                   ProgressEnvironment environment, std::ostream& out)
    : unit_(std::move(unit)),
      total_(total),
      environment_(std::move(environment)),
      out_(out),
      start_(environment_.now()) {}

Progress::~Progress() {
  absl::MutexLock lock(&mu_);
  if (environment_.terminal && shown_ != start_) {
    out_ << kEraseLine << std::flush;
  }
}

void Progress::Add(uint64_t done) {
  absl::MutexLock lock(&mu_);
  done_ += done;
  const absl::Time now = environment_.now();
  const absl::Duration interval =
      environment_.terminal ? absl::Milliseconds(100) : absl::Seconds(10);
  if (now - shown_ < interval) return;
  shown_ = now;
  if (environment_.terminal) {
    out_ << kEraseLine << Text(now);
  } else {
    out_ << Text(now) << "\n";
  }
  out_.flush();
}

std::string Progress::Text(absl::Time now) const {
  const bool bytes = unit_ == "bytes";
  const auto human = [&](double amount) {
    return bytes ? HumanBytes(amount) : HumanCount(amount);
  };
  const auto done = static_cast<double>(done_);
  const auto total = static_cast<double>(total_);
  const double rate = done / absl::ToDoubleSeconds(now - start_);
  const absl::Duration left = done_ == 0
                                  ? absl::InfiniteDuration()
                                  : (now - start_) * ((total - done) / done);
  return absl::StrFormat(
      "%s of %s%s%s (%d %%), %s/s, %s left", human(done), human(total),
      bytes ? "" : " ", bytes ? "" : unit_,
      static_cast<int>(100 * done / total),
      bytes || rate >= 10 ? human(rate) : absl::StrFormat("%.1f", rate),
      HumanDuration(left));
}

}  // namespace causeway
