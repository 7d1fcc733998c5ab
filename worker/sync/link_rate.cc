// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/sync/link_rate.h"

#include <cmath>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace causeway {
namespace {

constexpr double kSlowest = 0.2;
constexpr char kMeasured[] = "auto";

}  // namespace

bool AbslParseFlag(absl::string_view text, LinkRate* rate, std::string* error) {
  if (text == kMeasured) {
    rate->mbit_s.reset();
    return true;
  }
  double mbit_s = 0;
  if (!absl::SimpleAtod(text, &mbit_s) || !std::isfinite(mbit_s) ||
      (mbit_s != 0 && mbit_s < kSlowest)) {
    *error =
        absl::StrCat("allowed: 0, ", kSlowest, " and more, or ", kMeasured);
    return false;
  }
  rate->mbit_s = mbit_s;
  return true;
}

std::string AbslUnparseFlag(const LinkRate& rate) {
  return rate.mbit_s.has_value() ? absl::StrCat(*rate.mbit_s) : kMeasured;
}

}  // namespace causeway
