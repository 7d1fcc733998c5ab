// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/data/validation_set.h"

#include <algorithm>

#include "absl/numeric/int128.h"
#include "glog/logging.h"

namespace causeway {

ValidationSet::ValidationSet(const Dataset* dataset, int64_t max_windows)
    : dataset_(dataset), size_(dataset->split.validation_windows()) {
  CHECK_GE(max_windows, 0);
  if (max_windows > 0) size_ = std::min(size_, max_windows);
}

int64_t ValidationSet::WindowBegin(int64_t index) const {
  CHECK_GE(index, 0);
  CHECK_LT(index, size_);
  const absl::int128 spread =
      absl::int128(index) * dataset_->split.validation_windows() / size_;
  return dataset_->split.ValidationWindow(static_cast<int64_t>(spread));
}

void ValidationSet::Fill(int64_t first, absl::Span<int32_t> tokens,
                         absl::Span<int32_t> targets) const {
  dataset_->CopyWindows([&] { return WindowBegin(first++); }, tokens, targets);
}

}  // namespace causeway
