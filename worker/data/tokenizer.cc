// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/data/tokenizer.h"

#include <cstddef>

#include "absl/strings/str_cat.h"
#include "common/checksum.h"
#include "common/status_macros.h"

namespace causeway {
namespace {

class ByteTokenizer : public Tokenizer {
 public:
  v1::DataConfig::Tokenizer kind() const override {
    return v1::DataConfig::BYTES;
  }
  int64_t vocabulary() const override { return kByteVocabulary; }
  std::optional<int32_t> end_of_text() const override { return kEndOfText; }
  const std::string& digest() const override { return digest_; }

  absl::Status Encode(absl::string_view text,
                      std::vector<int32_t>& ids) const override {
    const auto* bytes = reinterpret_cast<const uint8_t*>(text.data());
    ids.insert(ids.end(), bytes, bytes + text.size());
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> Decode(
      absl::Span<const int32_t> ids) const override {
    RETURN_IF_ERROR(CheckIds(ids, kByteVocabulary));
    std::string text;
    for (const int32_t id : ids) {
      if (id < kBeginOfText) text.push_back(static_cast<char>(id));
    }
    return text;
  }

 private:
  const std::string digest_ = std::string(kDigestBytes, '\0');
};

}  // namespace

absl::Status CheckIds(absl::Span<const int32_t> ids, int64_t vocabulary) {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= vocabulary) {
      return absl::InvalidArgumentError(absl::StrCat(
          "token ", i, " is ", ids[i], "; allowed: 0 to ", vocabulary - 1));
    }
  }
  return absl::OkStatus();
}

std::unique_ptr<Tokenizer> MakeByteTokenizer() {
  return std::make_unique<ByteTokenizer>();
}

}  // namespace causeway
