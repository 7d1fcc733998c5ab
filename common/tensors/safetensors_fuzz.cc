// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Parses foreign bytes as a safetensors file: accepted tensors must lie within
// the file and survive being written again.
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/tensors/safetensors.h"
#include "glog/logging.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace causeway;  // NOLINT(build/namespaces): the entry is C.
  const absl::string_view file(reinterpret_cast<const char*>(data), size);
  absl::StatusOr<Safetensors> parsed = ParseSafetensors(file);
  if (!parsed.ok()) return 0;
  for (const SafetensorsTensor& tensor : parsed->tensors) {
    if (tensor.bytes.empty()) continue;
    CHECK(tensor.bytes.begin() >= file.begin());
    CHECK(tensor.bytes.end() <= file.end());
    // The tensor is either aligned and readable, or refused.
    parsed->Floats(tensor.name).status().IgnoreError();
  }
  absl::StatusOr<std::string> again = EncodeSafetensorsHeader(*parsed);
  CHECK(again.ok()) << again.status();
  for (const SafetensorsTensor& tensor : parsed->tensors) {
    again->append(tensor.bytes.data(), tensor.bytes.size());
  }
  const absl::StatusOr<Safetensors> reparsed = ParseSafetensors(*again);
  CHECK(reparsed.ok()) << reparsed.status();
  CHECK_EQ(reparsed->tensors.size(), parsed->tensors.size());
  CHECK(reparsed->metadata == parsed->metadata);
  return 0;
}
