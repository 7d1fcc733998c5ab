// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// A real etcd with one member, for tests.
#ifndef SERVER_ELECTION_TESTING_ETCD_PROCESS_H_
#define SERVER_ELECTION_TESTING_ETCD_PROCESS_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/testing/temporary_directory.h"
#include "tests/end_to_end/process.h"

namespace causeway {

class EtcdProcess {
 public:
  static bool IsInstalled();
  // Starts one with an empty directory.
  static absl::StatusOr<std::unique_ptr<EtcdProcess>> Make();

  // Starts it, or restarts it once it has ended.
  absl::Status Start();
  Process& process() { return *process_; }
  int port() const { return port_; }
  // Returns its address, host:port.
  const std::string& member() const { return member_; }
  const std::string& directory() const { return directory_.path(); }

 private:
  explicit EtcdProcess(TemporaryDirectory directory);

  const TemporaryDirectory directory_;
  const int port_;
  const std::string member_;
  std::unique_ptr<Process> process_;
};

}  // namespace causeway

#endif  // SERVER_ELECTION_TESTING_ETCD_PROCESS_H_
