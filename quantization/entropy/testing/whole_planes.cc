// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "quantization/entropy/testing/whole_planes.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "common/status_macros.h"
#include "quantization/entropy/rans_reference.h"

namespace causeway {

std::string RansCompressReference(SymbolWidth width, absl::string_view codes) {
  const RansPlane plane{width, codes.size()};
  std::vector<uint32_t> counts(AlphabetSize(width));
  for (size_t step = 0; step < plane.Steps(); ++step) {
    for (size_t lane = 0; lane < plane.LanesOf(step); ++lane) {
      const RansPlane::Place place = plane.PlaceOf(step, lane);
      ++counts[(static_cast<uint8_t>(codes[place.byte]) >> place.shift) &
               (AlphabetSize(width) - 1)];
    }
  }
  const RansTable table = NormalizedTable(width, counts);
  std::string bytes(kMaxRansTableBytes, '\0');
  bytes.resize(WriteRansTable(table, bytes.data()));
  RansStates states = InitialRansStates();
  const size_t room = plane.Steps() * kRansFrontLanes * kRansWordBytes;
  std::string words(2 * room, '\0');
  RansStream stream{words.data() + room, words.data() + room};
  RansEncodeSteps(table, plane, codes.data(), 0, plane.Steps(), states, stream);
  bytes.append(reinterpret_cast<const char*>(states.data()), kRansStateBytes);
  bytes.append(stream.front, stream.Bytes());
  return bytes;
}

absl::Status RansDecompressReference(SymbolWidth width,
                                     absl::string_view compressed,
                                     absl::Span<char> codes) {
  ASSIGN_OR_RETURN(const RansTable table, ReadRansTable(width, compressed));
  ASSIGN_OR_RETURN(RansStates states, ReadRansStates(compressed));
  const RansPlane plane{width, codes.size()};
  std::fill(codes.begin(), codes.end(), '\0');
  RETURN_IF_ERROR(RansDecodeSteps(table, plane, 0, plane.Steps(), states,
                                  compressed, codes.data()));
  return CheckRansEnd(states, compressed);
}

}  // namespace causeway
