// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/elections/elections_checker.h"

#include <algorithm>

#include "server/election/office.h"
#include "tests/simulation/elections/scenario.h"

namespace causeway::simulation {

void ElectionsChecker::Leads(const std::string& name, uint64_t process,
                             uint64_t epoch) {
  const auto [leader, is_new] = leaders_.emplace(epoch, process);
  if (!is_new && leader->second != process) {
    Fail("two coordinators have led with epoch ", epoch, ", the second is ",
         name);
  }
}

void ElectionsChecker::Published(const std::string& name,
                                 const ElectionDisk& disk, size_t index) {
  ++published_;
  const size_t known = std::min(index, truth_.size());
  if (known > 0 &&
      disk.log[known - 1]->position().hash() != truth_[known - 1].hash()) {
    Fail("coordinator ", name, " publishes change ", index,
         ", and its log is another than was published up to change ", known);
  }
  for (size_t next = truth_.size(); next < index; ++next) {
    truth_.push_back(disk.log[next]->position());
  }
  CheckInSync("a version was published");
}

void ElectionsChecker::Acknowledges(const std::string& name,
                                    const ElectionDisk& disk,
                                    const ElectionDisk& leader, size_t index) {
  if (disk.durable < index) {
    Fail("follower ", name, " acknowledges change ", index, ", and has ",
         disk.durable, " on its disk");
  } else if (index > 0 && leader.log.size() >= index &&
             leader.log[index - 1]->position().hash() !=
                 disk.log[index - 1]->position().hash()) {
    Fail("follower ", name, " acknowledges change ", index,
         ", and its log is not the leader's");
  }
}

void ElectionsChecker::OfficeIs(const std::string& written) {
  if (written == written_) return;
  const uint64_t before = office_.epoch();
  written_ = written;
  office_.Clear();
  if (!ReadKey(written, office_).ok()) Fail("etcd has no office: ", written);
  if (office_.epoch() < before) Fail("the office's epoch has gone back");
  CheckInSync("the office has changed");
}

void ElectionsChecker::CheckInSync(const char* when) {
  if (truth_.empty()) return;
  for (const std::string& name : office_.in_sync()) {
    const ElectionDisk& disk = (*disks_)[CoordinatorOf(name)];
    if (!disk.is_complete) continue;
    if (disk.durable < truth_.size()) {
      Fail("when ", when, ", ", name, " was in sync, and lacked changes after ",
           disk.durable, " of ", truth_.size(), " that are published");
    } else if (disk.log[truth_.size() - 1]->position().hash() !=
               truth_.back().hash()) {
      Fail("when ", when, ", ", name,
           " was in sync, and its log was not what is published");
    }
  }
}

}  // namespace causeway::simulation
