// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Reads foreign bytes as a config.json: an accepted model must survive being
// written and read again, and a message must be bounded and fit for a terminal.
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "cli/hugging_face.h"
#include "common/printable.h"
#include "glog/logging.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace causeway;  // NOLINT(build/namespaces): the entry is C.
  const absl::string_view json(reinterpret_cast<const char*>(data), size);
  const absl::StatusOr<v1::ModelConfig> model = ReadHuggingFaceConfig(json, 0);
  if (!model.ok()) {
    const absl::string_view message = model.status().message();
    CHECK_LT(message.size(), 4096);
    CHECK_EQ(Printable(message), message);
    return 0;
  }
  v1::RunConfig config;
  *config.mutable_model() = *model;
  const absl::StatusOr<std::string> written =
      WriteHuggingFaceConfig(config, "float32", json);
  // The ids of its special tokens may be invalid.
  if (!written.ok()) return 0;
  const absl::StatusOr<v1::ModelConfig> again =
      ReadHuggingFaceConfig(*written, 0);
  CHECK(again.ok()) << again.status();
  CHECK_EQ(again->SerializeAsString(), model->SerializeAsString());
  return 0;
}
