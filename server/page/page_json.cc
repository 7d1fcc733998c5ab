// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/page/page_json.h"

#include "absl/strings/str_replace.h"
#include "glog/logging.h"
#include "google/protobuf/util/json_util.h"

namespace causeway {
namespace {

// The most bytes of an event's text. Rounds of many islands name them all.
constexpr size_t kMostText = 300;

// Returns whether a byte continues a character of UTF-8.
bool IsContinuation(char byte) { return (byte & 0xc0) == 0x80; }

}  // namespace

void ShortenEvents(v1::PageData& data) {
  for (v1::Event& event : *data.mutable_events()) {
    std::string& text = *event.mutable_text();
    if (text.size() <= kMostText) continue;
    size_t end = kMostText;
    while (end > 0 && IsContinuation(text[end])) --end;
    text.replace(end, std::string::npos, "…");
  }
}

std::string PageJson(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  std::string json;
  const auto status =
      google::protobuf::util::MessageToJsonString(message, &json, options);
  // Fails only for well-known types with impossible values, which no peer
  // sends.
  LOG_IF(ERROR, !status.ok()) << "cannot print JSON: " << status.ToString();
  if (!status.ok()) return "{}";
  return absl::StrReplaceAll(json, {{"<", "\\u003c"}});
}

}  // namespace causeway
