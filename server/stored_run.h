// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Describes the run of a state directory as the Status service would, for tools
// that read it without a coordinator.
#ifndef SERVER_STORED_RUN_H_
#define SERVER_STORED_RUN_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "proto/page.pb.h"

namespace causeway {

// Reads the state directory, even while a coordinator uses it. Losses, speeds
// and bytes are those of the newest point of the history; the time is that of
// the newest event. Returns at most `most_events` events.
//
// Errors of StateDirectory::OpenReadOnly and CommitLog.
absl::StatusOr<v1::PageData> ReadPageData(const std::string& state_dir,
                                          uint64_t most_events);

}  // namespace causeway

#endif  // SERVER_STORED_RUN_H_
