// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/data/token_file_format.h"

#include <bit>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/checksum.h"
#include "common/status_macros.h"
#include "glog/logging.h"

namespace causeway {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr int32_t kExtensionMagic = 0x59575343;
constexpr int32_t kExtensionVersion = 1;

// The words of the header as in the file. Words after `tokens` are the
// extension.
struct Words {
  int32_t magic = 0;
  int32_t version = 0;
  int32_t tokens = 0;
  int32_t extension_magic = 0;
  int32_t extension_version = 0;
  int32_t vocabulary = 0;
  int32_t tokenizer = 0;
  int32_t unused = 0;
  char tokenizer_digest[kDigestBytes] = {};
  char tokens_digest[kDigestBytes] = {};
};
static_assert(sizeof(Words) == 16 * sizeof(int32_t));

// One of the two variants of llm.c's format.
struct Variant {
  int32_t magic;
  int32_t version;
  int token_bytes;
};
constexpr Variant kVariants[] = {{20240520, 1, 2}, {20240801, 7, 4}};

const Variant* FindVariant(absl::string_view bytes) {
  int32_t magic;
  if (bytes.size() < sizeof(magic)) return nullptr;
  std::memcpy(&magic, bytes.data(), sizeof(magic));
  for (const Variant& variant : kVariants) {
    if (magic == variant.magic) return &variant;
  }
  return nullptr;
}

absl::StatusOr<PreparedInfo> ParsePreparedInfo(const Words& words,
                                               absl::string_view path) {
  if (words.extension_version != kExtensionVersion) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": prepared by another version of causeway (header version ",
        words.extension_version, ", this one reads ", kExtensionVersion,
        "); run `causeway prepare` again"));
  }
  if (words.vocabulary < 1 ||
      (words.tokenizer != v1::DataConfig::BYTES &&
       words.tokenizer != v1::DataConfig::SENTENCEPIECE)) {
    return absl::DataLossError(absl::StrCat(
        path, ": damaged header: vocabulary ", words.vocabulary, ", tokenizer ",
        words.tokenizer, "; run `causeway prepare` again"));
  }
  return PreparedInfo{
      .vocabulary = words.vocabulary,
      .tokenizer = static_cast<v1::DataConfig::Tokenizer>(words.tokenizer),
      .tokenizer_digest = std::string(words.tokenizer_digest, kDigestBytes),
      .tokens_digest = std::string(words.tokens_digest, kDigestBytes)};
}

}  // namespace

bool HasTokenFileHeader(absl::string_view bytes) {
  return FindVariant(bytes) != nullptr;
}

absl::StatusOr<TokenFileHeader> ParseTokenFileHeader(absl::string_view bytes,
                                                     int64_t file_bytes,
                                                     absl::string_view path) {
  const Variant* variant = FindVariant(bytes);
  CHECK(variant != nullptr);
  if (bytes.size() < kTokenFileHeaderBytes) {
    return absl::DataLossError(absl::StrCat(
        path, ": ", bytes.size(), " bytes are less than the ",
        kTokenFileHeaderBytes, " of a token file's header; copy it again"));
  }
  Words words;
  std::memcpy(&words, bytes.data(), sizeof(words));
  if (words.version != variant->version) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": token file of version ", words.version,
                     "; allowed with magic number ", variant->magic, ": ",
                     variant->version));
  }
  TokenFileHeader header = {.tokens = words.tokens,
                            .token_bytes = variant->token_bytes};
  const int64_t expected_bytes = static_cast<int64_t>(kTokenFileHeaderBytes) +
                                 header.tokens * header.token_bytes;
  if (header.tokens < 0 || file_bytes != expected_bytes) {
    return absl::DataLossError(absl::StrCat(
        path, ": the header says ", header.tokens, " tokens, ", expected_bytes,
        " bytes in all, but the file has ", file_bytes, "; copy it again"));
  }
  if (words.extension_magic == kExtensionMagic) {
    ASSIGN_OR_RETURN(header.prepared, ParsePreparedInfo(words, path));
  }
  return header;
}

std::string SerializeTokenFileHeader(const TokenFileHeader& header) {
  CHECK_GE(header.tokens, 0);
  CHECK_LE(header.tokens, kMaxTokensPerFile);
  CHECK(header.token_bytes == 2 || header.token_bytes == 4);
  const Variant& variant = kVariants[header.token_bytes == 4];
  Words words = {.magic = variant.magic,
                 .version = variant.version,
                 .tokens = static_cast<int32_t>(header.tokens)};
  if (header.prepared.has_value()) {
    const PreparedInfo& info = *header.prepared;
    CHECK_EQ(info.tokenizer_digest.size(), kDigestBytes);
    CHECK_EQ(info.tokens_digest.size(), kDigestBytes);
    words.extension_magic = kExtensionMagic;
    words.extension_version = kExtensionVersion;
    words.vocabulary = static_cast<int32_t>(info.vocabulary);
    words.tokenizer = info.tokenizer;
    info.tokenizer_digest.copy(words.tokenizer_digest, kDigestBytes);
    info.tokens_digest.copy(words.tokens_digest, kDigestBytes);
  }
  std::string bytes(kTokenFileHeaderBytes, '\0');
  std::memcpy(&bytes[0], &words, sizeof(words));
  return bytes;
}

}  // namespace causeway
