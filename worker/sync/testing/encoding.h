// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#ifndef WORKER_SYNC_TESTING_ENCODING_H_
#define WORKER_SYNC_TESTING_ENCODING_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "quantization/codec.h"
#include "quantization/strips/layout.h"
#include "worker/sync/streamed_encoding.h"

namespace causeway {

// Returns a streamed encoding of `values`, made strip by strip.
inline StreamedEncoding StreamValues(const CodecSpec& spec,
                                     std::vector<float> values) {
  struct State {
    std::vector<float> values;
    uint64_t encoded = 0;
    std::unique_ptr<Encoder> encoder;
  };
  auto state = std::make_shared<State>();
  const uint64_t size = values.size();
  state->values = std::move(values);
  return StreamedEncoding(
      spec, size,
      [spec, state](uint64_t bytes,
                    absl::Span<char> buffer) -> absl::StatusOr<EncodedBytes> {
        const uint64_t count = state->values.size();
        if (state->encoder == nullptr) {
          state->encoder = NewEncoder(spec, {}, count, buffer);
        }
        while (state->encoder->ready() < bytes && state->encoded < count) {
          const auto strip = absl::MakeConstSpan(state->values)
                                 .subspan(state->encoded, kStripValues);
          state->encoder->Encode(state->encoded, strip, {});
          state->encoded += strip.size();
        }
        if (state->encoded < count) {
          return EncodedBytes{.ready = state->encoder->ready()};
        }
        return EncodedBytes{.ready = state->encoder->Finish(),
                            .complete = true};
      });
}

}  // namespace causeway

#endif  // WORKER_SYNC_TESTING_ENCODING_H_
