// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/data/sentencepiece_tokenizer.h"

#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "common/as_bytes.h"
#include "common/checksum.h"
#include "common/foreign/file.h"
#include "common/os/file.h"
#include "common/status_macros.h"
#include "worker/data/sentencepiece_protocol.h"

namespace causeway {
namespace {

// The running tool. Thread-safe.
class ToolProcess {
 public:
  static absl::StatusOr<std::unique_ptr<ToolProcess>> Start(
      const std::string& tool_path);

  ~ToolProcess() {
    // The tool ends at the end of its input.
    close(socket_);
    while (waitpid(process_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }

  // Returns the answer to a request.
  //   INVALID_ARGUMENT  the library refused; has its message.
  //   INTERNAL          the process ended.
  absl::StatusOr<std::string> Call(SentencePieceCode code,
                                   absl::string_view request) {
    absl::MutexLock lock(&mutex_);
    std::string answer;
    SentencePieceCode answer_code;
    if (!SendFrame(socket_, code, request.data(), request.size()) ||
        !ReceiveFrame(socket_, answer_code, answer)) {
      return absl::InternalError(
          absl::StrCat("the SentencePiece process ", process_, " ended"));
    }
    if (answer_code != SentencePieceCode::kOk) {
      return absl::InvalidArgumentError(answer);
    }
    return answer;
  }

 private:
  ToolProcess(pid_t process, int socket) : process_(process), socket_(socket) {}

  const pid_t process_;
  const int socket_;
  // Held from a request until its answer.
  absl::Mutex mutex_;
};

absl::StatusOr<std::unique_ptr<ToolProcess>> ToolProcess::Start(
    const std::string& tool_path) {
  int sockets[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0) {
    return ErrnoStatus(errno, "make a socket for", tool_path);
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  // dup2 clears the copy's close-on-exec flag.
  posix_spawn_file_actions_adddup2(&actions, sockets[1], STDIN_FILENO);
  std::string program = tool_path;
  char* const arguments[] = {program.data(), nullptr};
  pid_t process = 0;
  const int error = posix_spawn(&process, tool_path.c_str(), &actions, nullptr,
                                arguments, environ);
  posix_spawn_file_actions_destroy(&actions);
  close(sockets[1]);
  if (error != 0) {
    close(sockets[0]);
    return ErrnoStatus(error, "start", tool_path);
  }
  return std::unique_ptr<ToolProcess>(new ToolProcess(process, sockets[0]));
}

class SentencePieceTokenizer : public Tokenizer {
 public:
  SentencePieceTokenizer(std::unique_ptr<ToolProcess> process,
                         const SentencePieceModelFacts& facts,
                         std::string digest)
      : process_(std::move(process)),
        facts_(facts),
        digest_(std::move(digest)) {}

  v1::DataConfig::Tokenizer kind() const override {
    return v1::DataConfig::SENTENCEPIECE;
  }
  int64_t vocabulary() const override { return facts_.vocabulary; }
  std::optional<int32_t> end_of_text() const override {
    if (facts_.end_id >= 0) return facts_.end_id;
    // A begin marker separates documents just as well.
    if (facts_.begin_id >= 0) return facts_.begin_id;
    return std::nullopt;
  }
  const std::string& digest() const override { return digest_; }

  absl::Status Encode(absl::string_view text,
                      std::vector<int32_t>& ids) const override {
    ASSIGN_OR_RETURN(const std::string answer,
                     process_->Call(SentencePieceCode::kEncode, text));
    const size_t count = answer.size() / sizeof(int32_t);
    if (count == 0) return absl::OkStatus();
    ids.resize(ids.size() + count);
    std::memcpy(ids.data() + ids.size() - count, answer.data(),
                count * sizeof(int32_t));
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> Decode(
      absl::Span<const int32_t> ids) const override {
    // The library only asserts this.
    RETURN_IF_ERROR(CheckIds(ids, facts_.vocabulary));
    return process_->Call(SentencePieceCode::kDecode, AsStringView(ids));
  }

 private:
  const std::unique_ptr<ToolProcess> process_;
  const SentencePieceModelFacts facts_;
  const std::string digest_;
};

}  // namespace

std::string DefaultSentencePieceTool() {
  std::error_code error;
  const std::filesystem::path program =
      std::filesystem::read_symlink("/proc/self/exe", error);
  return (program.parent_path() / "causeway-sentencepiece").string();
}

absl::StatusOr<std::unique_ptr<Tokenizer>> LoadSentencePiece(
    const std::string& model_path, const std::string& tool_path) {
  ASSIGN_OR_RETURN(const std::string model, ReadForeignFile(model_path));
  ASSIGN_OR_RETURN(std::unique_ptr<ToolProcess> process,
                   ToolProcess::Start(tool_path));
  const absl::StatusOr<std::string> answer =
      process->Call(SentencePieceCode::kLoad, model);
  if (absl::IsInvalidArgument(answer.status())) {
    return absl::InvalidArgumentError(absl::StrCat(
        model_path, ": not a SentencePiece model (", answer.status().message(),
        "); give the .model file that spm_train wrote"));
  }
  RETURN_IF_ERROR(answer.status());
  SentencePieceModelFacts facts;
  if (answer->size() != sizeof(facts)) {
    return absl::InternalError(
        absl::StrCat(tool_path, " is of another version of causeway"));
  }
  std::memcpy(&facts, answer->data(), sizeof(facts));
  return std::make_unique<SentencePieceTokenizer>(std::move(process), facts,
                                                  Digest128(model));
}

}  // namespace causeway
