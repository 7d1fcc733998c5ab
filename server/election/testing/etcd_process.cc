// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/election/testing/etcd_process.h"

#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/end_to_end/free_port.h"

namespace causeway {
namespace {

constexpr char kProgram[] = "/usr/bin/etcd";

}  // namespace

bool EtcdProcess::IsInstalled() { return access(kProgram, X_OK) == 0; }

EtcdProcess::EtcdProcess(TemporaryDirectory directory)
    : directory_(std::move(directory)),
      port_(FreePort()),
      member_(absl::StrCat("127.0.0.1:", port_)) {}

absl::StatusOr<std::unique_ptr<EtcdProcess>> EtcdProcess::Make() {
  absl::StatusOr<TemporaryDirectory> directory =
      TemporaryDirectory::Make("etcd");
  if (!directory.ok()) return directory.status();
  std::unique_ptr<EtcdProcess> etcd(new EtcdProcess(*std::move(directory)));
  const absl::Status started = etcd->Start();
  if (!started.ok()) return started;
  return etcd;
}

absl::Status EtcdProcess::Start() {
  const std::string peers = absl::StrCat("http://127.0.0.1:", FreePort());
  const std::string clients = absl::StrCat("http://", member_);
  process_ = std::make_unique<Process>(
      // Do not sync: leases are short, and a busy disk syncs slowly. A killed
      // etcd's writes survive without syncs.
      DyingWithParent({kProgram, "--name=e", "--unsafe-no-fsync",
                       absl::StrCat("--data-dir=", directory(), "/data"),
                       absl::StrCat("--listen-client-urls=", clients),
                       absl::StrCat("--advertise-client-urls=", clients),
                       absl::StrCat("--listen-peer-urls=", peers),
                       absl::StrCat("--initial-advertise-peer-urls=", peers),
                       absl::StrCat("--initial-cluster=e=", peers)}),
      absl::StrCat(directory(), "/log"));
  if (process_->AwaitOutput("ready to serve client requests")) {
    return absl::OkStatus();
  }
  return absl::UnavailableError(
      absl::StrCat("etcd does not start: ", process_->Output()));
}

}  // namespace causeway
