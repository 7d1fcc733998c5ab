// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/end_to_end/process_test_fixture.h"

#include <sched.h>
#include <sys/mount.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace causeway {

ProcessTestFixture::ProcessTestFixture()
    : directory_(*TemporaryDirectory::Make("causeway-test")) {}

ProcessTestFixture::~ProcessTestFixture() {
  umount2(Path("disk").c_str(), MNT_DETACH);
  if (HasFailure()) directory_.Keep();
}

std::string ProcessTestFixture::Path(absl::string_view name) const {
  return absl::StrCat(directory_.path(), "/", name);
}

std::string ProcessTestFixture::Write(absl::string_view name,
                                      absl::string_view text) const {
  std::string path = Path(name);
  std::ofstream(path) << text;
  return path;
}

void ProcessTestFixture::WriteRun(absl::string_view settings) const {
  Write("run.textproto",
        absl::StrCat("model { layers: 2 hidden_size: 32 intermediate_size: 64 ",
                     "heads: 2 sequence_length: 32 }\n", settings));
}

std::vector<std::string> ProcessTestFixture::CoordinatorCommand(
    int port, absl::string_view state,
    const std::vector<std::string>& flags) const {
  std::vector<std::string> command = {
      ProgramPath("server/causeway-coordinator"),
      absl::StrCat("--config=", Path("run.textproto")),
      absl::StrCat("--state_dir=", Path(state)),
      absl::StrCat("--listen=127.0.0.1:", port),
      absl::StrCat("--port_file=", Path("port")),
      "--exit_when_finished"};
  command.insert(command.end(), flags.begin(), flags.end());
  return command;
}

std::unique_ptr<Process> ProcessTestFixture::StartServing(
    absl::string_view name, std::vector<std::string> command) const {
  auto coordinator = Start(name, std::move(command));
  EXPECT_TRUE(coordinator->AwaitOutput("waiting for islands"))
      << coordinator->Output();
  return coordinator;
}

int ProcessTestFixture::Port() const {
  return std::atoi(FileText(Path("port")).c_str());
}

std::string ProcessTestFixture::Address() const {
  return absl::StrCat("127.0.0.1:", Port());
}

std::vector<std::string> ProcessTestFixture::WorkerCommand(
    absl::string_view island, int port,
    const std::vector<std::string>& flags) const {
  std::vector<std::string> command = {
      ProgramPath("worker/causeway-worker"),
      absl::StrCat("--coordinator=127.0.0.1:", port),
      absl::StrCat("--island=", island),
      absl::StrCat("--data=", kText),
      "--threads=1",
      "--log_seconds=0"};
  command.insert(command.end(), flags.begin(), flags.end());
  return command;
}

std::string ProcessTestFixture::RunTool(std::vector<std::string> arguments,
                                        int exit_code) const {
  arguments.insert(arguments.begin(), ProgramPath("cli/causeway"));
  Process tool(std::move(arguments), Path("tool.log"));
  EXPECT_EQ(tool.Wait(), exit_code) << tool.Output();
  std::string output = tool.Output();
  std::remove(Path("tool.log").c_str());
  return output;
}

bool ProcessTestFixture::Await(const std::function<bool()>& condition,
                               absl::Duration limit, absl::Duration pause) {
  const absl::Time end = absl::Now() + limit;
  while (!condition()) {
    if (absl::Now() > end) return false;
    absl::SleepFor(pause);
  }
  return true;
}

std::string ProcessTestFixture::MountSmallDisk() {
  const std::string disk = Path("disk");
  std::filesystem::create_directory(disk);
  if (unshare(CLONE_NEWNS) == 0 &&
      mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
      mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=32m") == 0) {
    return "";
  }
  return absl::StrCat("this process may not mount a disk of its own: ",
                      std::strerror(errno));
}

void ProcessTestFixture::FillSmallDisk() const {
  std::ofstream filler(Path("disk/filler"), std::ios::binary);
  const std::string chunk(4096, 'x');
  while (filler.write(chunk.data(), static_cast<std::streamsize>(chunk.size()))
             .flush()) {
  }
}

std::unique_ptr<Process> ProcessTestFixture::Start(
    absl::string_view name, std::vector<std::string> command) const {
  return std::make_unique<Process>(std::move(command),
                                   Path(absl::StrCat(name, ".log")));
}

}  // namespace causeway
