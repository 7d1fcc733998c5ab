// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Reads scenarios (scenario.proto) and derives from them the configuration of a
// setting and the state of a link at a time. Pure.
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
// Errors name it `file`.
//   INVALID_ARGUMENT  the text does not parse or a value is not allowed.
absl::StatusOr<wan::Scenario> ParseScenario(const std::string& text,
                                            absl::string_view file);

// Parses a file's contents with ParseScenario.
absl::StatusOr<wan::Scenario> LoadScenario(const std::string& path);

// Returns the configuration of a setting.
v1::RunConfig RunOf(const wan::Scenario& scenario, const wan::Setting& setting);

// Returns the setting to compare speeds with: `scenario.run`, with one round,
// at its end.
wan::Setting BaselineSetting(const wan::Scenario& scenario);
// Returns links that limit nothing.
wan::Network BaselineNetwork();

// A time before the start of the run, and so before all events.
inline constexpr absl::Duration kBeforeTheRun = -absl::InfiniteDuration();

// Returns the link of an island `elapsed` after the start of the run.
LinkSettings LinkAt(const wan::Scenario& scenario, const wan::Network& network,
                    absl::string_view island, absl::Duration elapsed);

// Returns whether a partition dropped anything to or from an island between
// these times after the start of the run.
bool PartitionedBetween(const wan::Scenario& scenario,
                        const wan::Network& network, absl::string_view island,
                        absl::Duration from, absl::Duration to);

}  // namespace causeway

#endif  // TESTS_WAN_SCENARIO_H_
