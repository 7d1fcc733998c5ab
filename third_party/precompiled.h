// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The headers that most sources include, directly or not. causeway.bzl lets the
// compiler parse them once for all. Sources include what they use all the same:
// builds with sanitizers and clang-tidy do not have this.
#ifndef THIRD_PARTY_PRECOMPILED_H_
#define THIRD_PARTY_PRECOMPILED_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "glog/logging.h"
#include "google/protobuf/message.h"

#endif  // THIRD_PARTY_PRECOMPILED_H_
