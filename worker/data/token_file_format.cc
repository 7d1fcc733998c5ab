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

constexpr int kTokensWord = 2;
constexpr int kExtensionMagicWord = 3;
constexpr int kExtensionVersionWord = 4;
constexpr int kVocabularyWord = 5;
constexpr int kTokenizerWord = 6;
constexpr int kTokenizerDigestWord = 8;
constexpr int kTokensDigestWord = 12;

constexpr int32_t kExtensionMagic = 0x59575343;
constexpr int32_t kExtensionVersion = 1;

// A variant of llm.c's format; llm.c has two.
struct Variant {
  int32_t magic;
  int32_t version;
  int token_bytes;
};
constexpr Variant kVariants[] = {{20240520, 1, 2}, {20240801, 7, 4}};

int32_t Word(absl::string_view header, int index) {
  int32_t word;
  std::memcpy(&word, header.data() + index * sizeof(word), sizeof(word));
  return word;
}

void SetWord(std::string& header, int index, int32_t word) {
  std::memcpy(header.data() + index * sizeof(word), &word, sizeof(word));
}

std::string DigestAt(absl::string_view header, int word) {
  return std::string(header.substr(word * sizeof(int32_t), kDigestBytes));
}

void SetDigest(std::string& header, int word, absl::string_view digest) {
  CHECK_EQ(digest.size(), kDigestBytes);
  std::memcpy(header.data() + word * sizeof(int32_t), digest.data(),
              kDigestBytes);
}

const Variant* FindVariant(absl::string_view bytes) {
  if (bytes.size() < sizeof(int32_t)) return nullptr;
  for (const Variant& variant : kVariants) {
    if (Word(bytes, 0) == variant.magic) return &variant;
  }
  return nullptr;
}

absl::StatusOr<PreparedInfo> ParsePreparedInfo(absl::string_view header,
                                               absl::string_view path) {
  if (Word(header, kExtensionVersionWord) != kExtensionVersion) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": prepared by another version of causeway (header version ",
        Word(header, kExtensionVersionWord), ", this one reads ",
        kExtensionVersion, "); run `causeway prepare` again"));
  }
  PreparedInfo info;
  info.vocabulary = Word(header, kVocabularyWord);
  const int32_t tokenizer = Word(header, kTokenizerWord);
  if (info.vocabulary < 1 || (tokenizer != v1::DataConfig::BYTES &&
                              tokenizer != v1::DataConfig::SENTENCEPIECE)) {
    return absl::DataLossError(absl::StrCat(
        path, ": damaged header: vocabulary ", info.vocabulary, ", tokenizer ",
        tokenizer, "; run `causeway prepare` again"));
  }
  info.tokenizer = static_cast<v1::DataConfig::Tokenizer>(tokenizer);
  info.tokenizer_digest = DigestAt(header, kTokenizerDigestWord);
  info.tokens_digest = DigestAt(header, kTokensDigestWord);
  return info;
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
  if (Word(bytes, 1) != variant->version) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": token file of version ", Word(bytes, 1),
                     "; allowed with magic number ", variant->magic, ": ",
                     variant->version));
  }
  TokenFileHeader header;
  header.tokens = Word(bytes, kTokensWord);
  header.token_bytes = variant->token_bytes;
  const int64_t expected_bytes = static_cast<int64_t>(kTokenFileHeaderBytes) +
                                 header.tokens * header.token_bytes;
  if (header.tokens < 0 || file_bytes != expected_bytes) {
    return absl::DataLossError(absl::StrCat(
        path, ": the header says ", header.tokens, " tokens, ", expected_bytes,
        " bytes in all, but the file has ", file_bytes, "; copy it again"));
  }
  if (Word(bytes, kExtensionMagicWord) == kExtensionMagic) {
    ASSIGN_OR_RETURN(header.prepared, ParsePreparedInfo(bytes, path));
  }
  return header;
}

std::string SerializeTokenFileHeader(const TokenFileHeader& header) {
  CHECK_GE(header.tokens, 0);
  CHECK_LE(header.tokens, kMaxTokensPerFile);
  CHECK(header.token_bytes == 2 || header.token_bytes == 4);
  std::string bytes(kTokenFileHeaderBytes, '\0');
  const Variant& variant = kVariants[header.token_bytes == 4];
  SetWord(bytes, 0, variant.magic);
  SetWord(bytes, 1, variant.version);
  SetWord(bytes, kTokensWord, static_cast<int32_t>(header.tokens));
  if (header.prepared.has_value()) {
    const PreparedInfo& info = *header.prepared;
    SetWord(bytes, kExtensionMagicWord, kExtensionMagic);
    SetWord(bytes, kExtensionVersionWord, kExtensionVersion);
    SetWord(bytes, kVocabularyWord, static_cast<int32_t>(info.vocabulary));
    SetWord(bytes, kTokenizerWord, info.tokenizer);
    SetDigest(bytes, kTokenizerDigestWord, info.tokenizer_digest);
    SetDigest(bytes, kTokensDigestWord, info.tokens_digest);
  }
  return bytes;
}

}  // namespace causeway
