// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/sync/update_decoder.h"

#include <utility>

#include "common/status_macros.h"
#include "outer_optimizer/mixing.h"
#include "quantization/strip_layout.h"

namespace causeway {

UpdateDecoder::UpdateDecoder(const CodecSpec& spec,
                             absl::Span<const float> anchor)
    : anchor_(anchor), scanner_(spec, anchor.size()) {
  update_.change.resize(anchor.size());
  update_.new_anchor.reserve(anchor.size());
}

absl::Status UpdateDecoder::Advance(absl::string_view received) {
  ASSIGN_OR_RETURN(const uint64_t complete, scanner_.Scan(received));
  for (; decoded_strips_ < complete; ++decoded_strips_) {
    const uint64_t begin = decoded_strips_ * kStripValues;
    const absl::Span<const float> old_anchor =
        anchor_.subspan(begin, kStripValues);
    const absl::Span<float> change =
        absl::MakeSpan(update_.change).subspan(begin, old_anchor.size());
    RETURN_IF_ERROR(scanner_.DecodeStrip(received, decoded_strips_, change));
    update_.new_anchor.insert(update_.new_anchor.end(), old_anchor.begin(),
                              old_anchor.end());
    const absl::Span<float> new_anchor =
        absl::MakeSpan(update_.new_anchor).subspan(begin);
    Rebase(change, new_anchor);
    digest_.Update(absl::MakeConstSpan(new_anchor));
  }
  return absl::OkStatus();
}

absl::StatusOr<DecodedUpdate> UpdateDecoder::Finish() {
  RETURN_IF_ERROR(scanner_.CheckComplete());
  update_.digest = digest_.Finish();
  return std::move(update_);
}

}  // namespace causeway
