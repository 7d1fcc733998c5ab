// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Single facts of a run as text for people. Pure functions.
#ifndef CLI_STATUS_FACTS_H_
#define CLI_STATUS_FACTS_H_

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "google/protobuf/repeated_field.h"
#include "proto/status.pb.h"

namespace causeway {

// Returns the time at which the ages in a status were counted: the
// coordinator's, whose clock may differ from this machine's, or `now` if an
// older coordinator does not send its time.
absl::Time TimeOf(const v1::RunStatus& run, absl::Time now);

// Return "running", "waiting for 2 of 2 islands for 5 min 36 s", "draining".
std::string StateText(const v1::RunStatus& run, absl::Time now);
std::string StateText(const v1::IslandStatus& island);

// Returns "critical for 5 min 36 s: no round is merged".
std::string ProblemText(const v1::Attention& problem, absl::Time now);

// Returns "next: `causeway fragments`"; empty if there is no command.
std::string NextStep(const v1::Attention& problem);

// Returns "step 240 of 400 (60 %), round 12 of 20, about 3 min 20 s left"; the
// time only if it is known.
std::string ProgressFact(const v1::RunStatus& run);

// Returns "2 islands, 4.10k tokens/s, loss 2.3457, 1.23M tokens merged".
std::string TrainingFact(const v1::RunStatus& run);

// Returns the coordinator's traffic, and how much more data parallel training
// would have needed.
std::string TrafficFact(const v1::RunStatus& run);

// Returns `text` if `known`, and otherwise "-".
std::string OrDash(bool known, std::string text);

// Returns the island's step; "-" if it is not known.
std::string StepText(const v1::IslandStatus& island);

// Returns "1.2345", or "-" for 0, which means no loss.
std::string Loss(double loss);

// Returns an island's rate of training; "-" if it is not training.
std::string TrainingRate(const v1::IslandStatus& island);

// Returns how many updates came late, and in brackets the steps trained
// meanwhile: "2 (+7)". "-" without overlap, where no update can be late.
std::string Lateness(const v1::IslandProgress& progress);

// Returns the bits per value that contributions aim at, and in brackets those
// that would arrive in time if the coordinator plans them: "1.5 (1.73)". "-" if
// the format has no such target.
std::string UplinkBitsText(const v1::IslandStatus& island);

// Returns how many of the live islands a round has merged: "2 of 3", or "2 of 4
// (3 began)" if more began to contribute.
std::string Participants(const v1::Participation& round);

// Returns "a,b,c and 37 more", or all names if there are no more than three.
std::string FirstOf(
    const google::protobuf::RepeatedPtrField<std::string>& names);

// Returns "12 of 24 (50 %)".
std::string Ratio(uint64_t part, uint64_t whole);

// Returns "12.5"; "-" for 0, which means no transfer.
std::string MegabitsPerSecond(double bytes_per_second);

}  // namespace causeway

#endif  // CLI_STATUS_FACTS_H_
