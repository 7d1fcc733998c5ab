// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/transport/certificate_expiry.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/os/file.h"
#include "common/transport/x509.h"
#include "glog/logging.h"

namespace causeway {
namespace {

// The time for which the contents of a file count as current.
constexpr absl::Duration kKept = absl::Seconds(10);

// The longest time before the end at which a notice begins.
constexpr absl::Duration kNotice = absl::Hours(48);

// The time between checks, and between two log lines about the same notice.
constexpr absl::Duration kTick = absl::Seconds(10);
constexpr absl::Duration kRepeat = absl::Hours(1);
constexpr absl::Duration kRepeatExpired = absl::Minutes(1);

}  // namespace

CertificateExpiry::Life CertificateExpiry::Read(const std::string& path) {
  const absl::StatusOr<std::string> pem = ReadFile(path);
  if (!pem.ok()) return {};
  const auto certificates = ParseCertificates(*pem);
  if (!certificates.ok()) return {};
  const CertificateFacts facts = FactsOf(*certificates->front());
  return {.from = facts.valid_from, .until = facts.valid_until};
}

CertificateExpiry::Life CertificateExpiry::Current() {
  if (path_.empty()) return {};
  const absl::Time now = now_();
  absl::MutexLock lock(&mu_);
  // The clock may have been put back.
  if (now - read_at_ >= kKept || now < read_at_) {
    read_at_ = now;
    life_ = Read(path_);
  }
  return life_;
}

absl::Time CertificateExpiry::Get() { return Current().until; }

CertificateExpiry::Notice CertificateExpiry::Check() {
  const Life life = Current();
  if (life.until == absl::InfiniteFuture()) return {};
  Notice notice{.since = life.until -
                         std::min(kNotice, (life.until - life.from) / 10)};
  const absl::Time now = now_();
  if (now < notice.since) return notice;
  notice.has_expired = now >= life.until;
  notice.text = absl::StrCat(
      "the certificate \"", path_, "\" ",
      notice.has_expired ? "expired" : "expires", " at ",
      absl::FormatTime(absl::RFC3339_sec, life.until, absl::UTCTimeZone()),
      notice.has_expired ? ", so no new connection succeeds" : "",
      ": put a new one in its place, which is read within seconds");
  return notice;
}

CertificateWatch::CertificateWatch(CertificateExpiry* certificate)
    : certificate_(certificate), thread_([this] { Loop(); }) {}

CertificateWatch::~CertificateWatch() {
  {
    absl::MutexLock lock(&mu_);
    stopping_ = true;
  }
  thread_.join();
}

void CertificateWatch::Loop() {
  std::string last;
  absl::Duration quiet;
  absl::MutexLock lock(&mu_);
  do {
    const CertificateExpiry::Notice notice = certificate_->Check();
    if (notice.text != last) quiet = absl::ZeroDuration();
    last = notice.text;
    if (!last.empty() && quiet <= absl::ZeroDuration()) {
      LOG_IF(ERROR, notice.has_expired) << last;
      LOG_IF(WARNING, !notice.has_expired) << last;
      quiet = notice.has_expired ? kRepeatExpired : kRepeat;
    }
    quiet -= kTick;
  } while (!mu_.AwaitWithTimeout(absl::Condition(&stopping_), kTick));
}

}  // namespace causeway
