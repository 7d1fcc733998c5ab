// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// A fixture for tests of the daemons as users run them: a directory for a run's
// files, and the commands that start the run there.
#ifndef TESTS_END_TO_END_PROCESS_TEST_FIXTURE_H_
#define TESTS_END_TO_END_PROCESS_TEST_FIXTURE_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/testing/temporary_directory.h"
#include "gtest/gtest.h"
#include "tests/end_to_end/process.h"

namespace causeway {

// An English text that every Debian system has.
inline constexpr char kText[] = "/usr/share/common-licenses/GPL-3";

class ProcessTestFixture : public testing::Test {
 protected:
  ProcessTestFixture();
  // Removes the directory if the test has passed, and unmounts its disk.
  ~ProcessTestFixture() override;

  // Returns the path of a file in the directory.
  std::string Path(absl::string_view name) const;
  // Writes a file to the directory. Returns its path.
  std::string Write(absl::string_view name, absl::string_view text) const;

  // Writes run.textproto: these settings, and a model that trains in a moment.
  void WriteRun(absl::string_view settings) const;

  // Returns the command of a coordinator for the run that run.textproto
  // describes. It listens on this host, on `port` or on any free port if that
  // is 0; keeps its state in Path(state); and ends with the run. `flags` come
  // last, so they override these.
  std::vector<std::string> CoordinatorCommand(
      int port, absl::string_view state = "state",
      const std::vector<std::string>& flags = {}) const;
  // Starts the command of a coordinator, and expects that it serves islands.
  std::unique_ptr<Process> StartServing(absl::string_view name,
                                        std::vector<std::string> command) const;
  // Returns the port of the coordinator that last said "waiting for islands".
  int Port() const;
  // Returns the address of that coordinator.
  std::string Address() const;
  // Returns the command of an island that trains on kText with one thread.
  // `flags` come last, so they override these.
  std::vector<std::string> WorkerCommand(
      absl::string_view island, int port,
      const std::vector<std::string>& flags = {}) const;

  // Runs `causeway` with these arguments, expects its exit code, and returns
  // its output.
  std::string RunTool(std::vector<std::string> arguments,
                      int exit_code = 0) const;

  // Checks `condition` every `pause`. Returns whether it held within `limit`.
  static bool Await(const std::function<bool()>& condition,
                    absl::Duration limit = absl::Minutes(1),
                    absl::Duration pause = absl::Milliseconds(5));

  // Waits for the ends of processes, and expects that each exits with 0.
  template <typename... Processes>
  static void ExpectOk(Processes&... processes) {
    for (Process* const process : {&processes...}) {
      EXPECT_EQ(process->Wait(), 0) << process->Output();
    }
  }

  // Mounts a disk of 32 MB at Path("disk") that only this process and those
  // that it starts see. Returns why this is not permitted; empty if it
  // succeeded.
  std::string MountSmallDisk();
  // Writes to Path("disk/filler") until the disk is full.
  void FillSmallDisk() const;

  // Starts `command` with its output in Path(name + ".log").
  std::unique_ptr<Process> Start(absl::string_view name,
                                 std::vector<std::string> command) const;

 private:
  TemporaryDirectory directory_;
};

}  // namespace causeway

#endif  // TESTS_END_TO_END_PROCESS_TEST_FIXTURE_H_
