// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Times in protobuf messages, to the microsecond.
#ifndef COMMON_PROTO_TIME_H_
#define COMMON_PROTO_TIME_H_

#include "absl/time/time.h"
#include "google/protobuf/util/time_util.h"

namespace causeway {

inline google::protobuf::Timestamp ToTimestamp(absl::Time time) {
  return google::protobuf::util::TimeUtil::MicrosecondsToTimestamp(
      absl::ToUnixMicros(time));
}

inline absl::Time ToTime(const google::protobuf::Timestamp& timestamp) {
  return absl::FromUnixMicros(
      google::protobuf::util::TimeUtil::TimestampToMicroseconds(timestamp));
}

}  // namespace causeway

#endif  // COMMON_PROTO_TIME_H_
