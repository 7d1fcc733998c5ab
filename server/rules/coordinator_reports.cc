// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The part of Coordinator that takes islands' reports, and makes the run's
// history from them.
#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/substitute.h"
#include "common/proto_time.h"
#include "common/status_macros.h"
#include "server/rules/coordinator.h"

namespace causeway {
namespace {

constexpr size_t kDigestBytes = 16;

// Returns the longest time between new speeds of an island that trains: it
// measures each for a few seconds or a step or two, and is heard of within its
// lease. In a longer pause it did not train, perhaps because no island could,
// or because this process was stopped.
absl::Duration LongestPacePause(const v1::RunConfig& config,
                                const v1::IslandProgress& progress) {
  return absl::Seconds(5 + config.membership().lease_seconds()) +
         2 * absl::Seconds(progress.step_seconds());
}

CoordinatorEvent DiffersEvent(const Member& member) {
  return {"data_differs", member.island_id,
          absl::StrCat("island ", member.island_id,
                       " reads other data than the run's; it does not measure "
                       "the merged model")};
}

}  // namespace

void Coordinator::TakeReport(Member& member, const v1::IslandProgress& progress,
                             absl::Time now, Effects& effects) {
  NoteTrouble(member.island_id, member.progress.rank_trouble(),
              progress.rank_trouble(), effects);
  // Sums begin with the first report.
  if (std::exchange(member.has_reported, true)) {
    training_.Heard(member.island_id, member.progress, progress);
  } else if (const auto& sync = options_.config.synchronization();
             sync.uplink_bits_floor() > 0) {
    // Another process of the coordinator may have planned the bits.
    member.uplink_bits.emplace(
        UplinkBits::Limits{.floor = sync.uplink_bits_floor(),
                           .target = sync.ecq_bits()},
        progress.uplink_bits());
  }
  const v1::IslandProgress before = std::exchange(member.progress, progress);
  if (progress.step_seconds() != before.step_seconds()) {
    NotePace(member, now, effects);
  }
  ledger_.Report(
      {member.island_id, member.incarnation},
      std::min(progress.tokens(), claims_.MostTokens(claims_.most_steps())));
  NoteData(member, before.data_digest(), effects);
  NoteValidation(member, now, effects);
}

void Coordinator::NotePace(Member& member, absl::Time now, Effects& effects) {
  std::vector<double> all;
  uint32_t remaining = 0;
  for (const Member* live : membership_.Live()) {
    all.push_back(live->progress.step_seconds());
    remaining += live != &member && live->IsReady() && !live->draining;
  }
  const bool was_behind = member.pace.is_behind_others();
  const std::optional<std::string> change =
      member.pace.Heard(member.progress.step_seconds(), std::move(all));
  if (change.has_value()) {
    effects.events.push_back(
        {member.pace.is_slow() ? "island_slow" : "island_even",
         member.island_id,
         absl::StrCat("island ", member.island_id, " ", *change)});
  }
  const absl::Duration since_last = now - std::exchange(member.paced_at, now);
  if (!member.pace.is_behind_others()) {
    member.slow_for = absl::ZeroDuration();
  } else if (was_behind &&
             since_last <= LongestPacePause(options_.config, member.progress)) {
    member.slow_for += since_last;
  }
  if (member.slow_for < options_.drain_slow_after ||
      remaining < std::max(IslandsNeeded(), 1u)) {
    return;
  }
  Drain(member.island_id,
        absl::StrCat("it has been slow for ",
                     absl::FormatDuration(
                         absl::Trunc(member.slow_for, absl::Seconds(1)))),
        effects)
      .IgnoreError();
}

void Coordinator::BecomeReady(Member& member, Effects& effects) {
  expectations_.Add(member, Versions(), flags_.started);
  effects.changed.push_back(member);
  effects.view_changed = true;
  const uint32_t ready = membership_.ready_count();
  if (flags_.started || ready < options_.config.membership().min_islands()) {
    return;
  }
  flags_.started = true;
  effects.flags = flags_;
  effects.events.push_back({"run_started", "",
                            absl::StrCat("training starts with ", ready,
                                         ready == 1 ? " island" : " islands")});
}

void Coordinator::NoteData(const Member& member, absl::string_view before,
                           Effects& effects) {
  const std::string& data = member.progress.data_digest();
  if (data.size() != kDigestBytes || data == before) return;
  // The view tells the island whether its data differ.
  effects.view_changed = true;
  if (flags_.data_digest.empty()) {
    flags_.data_digest = data;
    effects.flags = flags_;
    return;
  }
  ElectData(effects);
  if (DataDiffers(member)) effects.events.push_back(DiffersEvent(member));
}

void Coordinator::ElectData(Effects& effects) {
  if (flags_.data_accepted) return;
  const std::vector<Member*>& live = membership_.Live();
  std::map<std::string, size_t> readers;
  for (const Member* member : live) ++readers[member->progress.data_digest()];
  for (const auto& [data, count] : readers) {
    if (data.size() != kDigestBytes || data == flags_.data_digest ||
        2 * count <= live.size()) {
      continue;
    }
    SetData(data,
            {"data_accepted", "",
             absl::Substitute("$0 of $1 live islands read other data than the "
                              "run's: theirs are the run's from now on",
                              count, live.size())},
            effects);
    return;
  }
}

void Coordinator::SetData(const std::string& data, CoordinatorEvent event,
                          Effects& effects) {
  const std::string before = std::exchange(flags_.data_digest, data);
  effects.flags = flags_;
  effects.view_changed = true;
  effects.events.push_back(std::move(event));
  for (const Member* member : membership_.Live()) {
    if (DataDiffers(*member) && member->progress.data_digest() == before) {
      effects.events.push_back(DiffersEvent(*member));
    }
  }
}

absl::Status Coordinator::AcceptData(const std::string& island_id,
                                     Effects& effects) {
  ASSIGN_OR_RETURN(const Member* const member, membership_.FindLive(island_id));
  const std::string& data = member->progress.data_digest();
  if (data.size() != kDigestBytes) {
    return absl::FailedPreconditionError(absl::StrCat(
        "island ", island_id,
        " has not opened its data yet: repeat the call when it trains"));
  }
  const bool accepted = std::exchange(flags_.data_accepted, true);
  if (accepted && data == flags_.data_digest) return absl::OkStatus();
  SetData(data,
          {"data_accepted", island_id,
           absl::StrCat("the data that island ", island_id,
                        " reads are the run's, as an operator says")},
          effects);
  return absl::OkStatus();
}

bool Coordinator::DataDiffers(const Member& member) const {
  const std::string& data = member.progress.data_digest();
  return member.state == v1::IslandStatus::LIVE &&
         data.size() == kDigestBytes && !flags_.data_digest.empty() &&
         data != flags_.data_digest;
}

const Member* Coordinator::Validator() {
  // Islands without a digest, which train their own data, hold nothing out.
  if (options_.config.validation().every_rounds() == 0 ||
      flags_.data_digest.empty()) {
    return nullptr;
  }
  const Member* validator = nullptr;
  for (const Member* member : membership_.Live()) {
    if (member->draining ||
        member->progress.data_digest() != flags_.data_digest) {
      continue;
    }
    if (validator == nullptr || member->joined_at < validator->joined_at) {
      validator = member;
    }
  }
  return validator;
}

void Coordinator::NoteValidation(const Member& member, absl::Time now,
                                 Effects& effects) {
  if (!member.progress.has_validation() || Validator() != &member) return;
  const v1::Validation& claim = member.progress.validation();
  const uint64_t newest =
      validation_.has_value() ? validation_->validation().version() : 0;
  if (claim.version() <= newest ||
      claim.version() > schedule().ModelVersion(Versions()) ||
      claim.tokens() == 0 || claim.tokens() > TokenLedger::kMost ||
      !IsPossibleLoss(claim.loss()) || !(claim.seconds() >= 0) ||
      absl::Seconds(claim.seconds()) == absl::InfiniteDuration()) {
    return;
  }
  v1::ValidationPoint& point = validation_.emplace();
  *point.mutable_validation() = claim;
  point.set_island_id(member.island_id);
  *point.mutable_time() = ToTimestamp(now);
  effects.validations.push_back(point);
  effects.events.push_back(
      {"validated", member.island_id,
       absl::StrFormat("version %d of the model has a validation loss of %.4f "
                       "nats per token (island %s, %d tokens, %.3g s)",
                       claim.version(), claim.loss(), member.island_id,
                       claim.tokens(), claim.seconds())});
}

void Coordinator::NoteTraining(absl::Time now, Effects& effects) {
  const uint64_t version = schedule().ModelVersion(Versions());
  if (version <= training_.version()) return;
  v1::TrainingPoint& point =
      effects.training.emplace_back(training_.Take(version));
  *point.mutable_time() = ToTimestamp(now);
  point.set_run_step(RunStep());
  point.set_tokens_per_second(membership_.TokensPerSecond());
  *point.mutable_participation() = participation_;
}

}  // namespace causeway
