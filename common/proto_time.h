// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Times in protobuf messages, to the microsecond.
#ifndef COMMON_PROTO_TIME_H_
#define COMMON_PROTO_TIME_H_

#include <algorithm>

#include "absl/time/time.h"
#include "google/protobuf/util/time_util.h"

namespace causeway {

// A Timestamp holds the years 1 to 9999, and TimeUtil throws for other times:
// they become the first or last that it holds.
inline google::protobuf::Timestamp ToTimestamp(absl::Time time) {
  using google::protobuf::util::TimeUtil;
  return TimeUtil::MicrosecondsToTimestamp(absl::ToUnixMicros(
      std::clamp(time, absl::FromUnixSeconds(TimeUtil::kTimestampMinSeconds),
                 absl::FromUnixSeconds(TimeUtil::kTimestampMaxSeconds))));
}

inline absl::Time ToTime(const google::protobuf::Timestamp& timestamp) {
  return absl::FromUnixMicros(
      google::protobuf::util::TimeUtil::TimestampToMicroseconds(timestamp));
}

}  // namespace causeway

#endif  // COMMON_PROTO_TIME_H_
