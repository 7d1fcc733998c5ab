// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Reads scenarios (scenario.proto) and answers what they mean: which
// configuration a setting makes, and how a link is at a time. Pure.
#ifndef TESTS_WAN_SCENARIO_H_
#define TESTS_WAN_SCENARIO_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "proto/run_config.pb.h"
#include "tests/wan/link.h"
#include "tests/wan/scenario.pb.h"

namespace causeway {

// Parses and checks a scenario, with the configurations that its settings make.
// `file` names it in errors.
//   INVALID_ARGUMENT  the text does not parse or a value is not allowed.
absl::StatusOr<wan::Scenario> ParseScenario(const std::string& text,
                                            absl::string_view file);

// ParseScenario of a file's contents.
absl::StatusOr<wan::Scenario> LoadScenario(const std::string& path);

// The run of a setting.
v1::RunConfig RunOf(const wan::Scenario& scenario, const wan::Setting& setting);

// What speeds are compared with: `scenario.run`, with one round, at its end.
wan::Setting BaselineSetting(const wan::Scenario& scenario);
// Links that limit nothing.
wan::Network BaselineNetwork();

// Before the start of the run, and so before all events.
inline constexpr absl::Duration kBeforeTheRun = -absl::InfiniteDuration();

// The link of an island `elapsed` after the start of the run.
LinkSettings LinkAt(const wan::Scenario& scenario, const wan::Network& network,
                    absl::string_view island, absl::Duration elapsed);

// Whether anything an island sends or is sent was dropped by a partition
// between these times after the start of the run.
bool PartitionedBetween(const wan::Scenario& scenario,
                        const wan::Network& network, absl::string_view island,
                        absl::Duration from, absl::Duration to);

}  // namespace causeway

#endif  // TESTS_WAN_SCENARIO_H_
