// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The process that holds libsentencepiece (sentencepiece_protocol.h). Other
// programs start it with a socket as its standard input.
#include <sentencepiece_processor.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "worker/data/sentencepiece_protocol.h"

namespace causeway {
namespace {

constexpr int kSocket = STDIN_FILENO;

using Ids = std::vector<int32_t>;

// Answers one request. Returns false if the other end is gone.
bool Answer(sentencepiece::SentencePieceProcessor& processor,
            SentencePieceCode code, const std::string& request) {
  sentencepiece::util::Status status;
  std::string answer;
  switch (code) {
    case SentencePieceCode::kLoad: {
      status = processor.LoadFromSerializedProto(request);
      if (!status.ok()) break;
      const SentencePieceModelFacts facts = {
          .vocabulary = processor.GetPieceSize(),
          .end_id = processor.eos_id(),
          .begin_id = processor.bos_id()};
      answer.assign(reinterpret_cast<const char*>(&facts), sizeof(facts));
      break;
    }
    case SentencePieceCode::kEncode: {
      Ids ids;
      status = processor.Encode(request, &ids);
      const char* const bytes = reinterpret_cast<const char*>(ids.data());
      answer.assign(bytes, bytes + ids.size() * sizeof(int32_t));
      break;
    }
    case SentencePieceCode::kDecode: {
      Ids ids(request.size() / sizeof(int32_t));
      // memcpy must not get a null pointer, even with a size of 0.
      if (!ids.empty()) {
        std::memcpy(ids.data(), request.data(), ids.size() * sizeof(int32_t));
      }
      status = processor.Decode(ids, &answer);
      break;
    }
    default:
      status = sentencepiece::util::Status(
          sentencepiece::util::StatusCode::kUnimplemented, "unknown request");
  }
  if (!status.ok()) {
    const std::string message = status.ToString();
    return SendFrame(kSocket, SentencePieceCode::kError, message.data(),
                     message.size());
  }
  return SendFrame(kSocket, SentencePieceCode::kOk, answer.data(),
                   answer.size());
}

int Serve() {
  sentencepiece::SentencePieceProcessor processor;
  SentencePieceCode code;
  std::string request;
  while (ReceiveFrame(kSocket, code, request)) {
    if (!Answer(processor, code, request)) break;
  }
  if (errno == ENOTSOCK) {
    std::fputs(
        "causeway-sentencepiece is started by `causeway prepare` and "
        "`causeway sample`, not by hand.\n",
        stderr);
    return 2;
  }
  return 0;
}

}  // namespace
}  // namespace causeway

int main() { return causeway::Serve(); }
