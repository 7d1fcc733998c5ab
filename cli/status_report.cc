// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "cli/status_report.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/time/time.h"
#include "cli/events/event_flags.h"
#include "cli/human.h"
#include "cli/status_facts.h"
#include "common/printable.h"
#include "common/proto_time.h"
#include "glog/logging.h"
#include "google/protobuf/util/json_util.h"

namespace causeway {
namespace {

void PrintFact(absl::string_view name, absl::string_view text,
               std::ostream& out) {
  out << absl::StrFormat("%-12s%s\n", name, Printable(text));
}

std::string ModelFact(const v1::RunStatus& run) {
  const std::string parameters = HumanCount(run.parameters());
  if (run.config().has_tensors()) {
    return absl::StrCat(parameters, " parameters, defined by their tensors");
  }
  const v1::ModelConfig& model = run.config().model();
  return absl::StrFormat(
      "%s parameters: %u layers of width %u, vocabulary %u, sequences of %u",
      parameters, model.layers(), model.hidden_size(), model.vocab_size(),
      model.sequence_length());
}

std::string ValidationFact(const v1::ValidationPoint& point, absl::Time now) {
  return absl::StrFormat(
      "loss %.4f at version %d, %s ago (island %s, %s tokens)",
      point.validation().loss(), point.validation().version(),
      HumanDuration(now - ToTime(point.time())), point.island_id(),
      HumanCount(point.validation().tokens()));
}

std::string LedgerFact(const v1::TokenLedger& ledger) {
  const auto share = [&](const char* name, uint64_t tokens) {
    return tokens == 0
               ? ""
               : absl::StrFormat(", %s %.2f %%", name,
                                 100 * static_cast<double>(tokens) /
                                     static_cast<double>(ledger.reported()));
  };
  return absl::StrCat(HumanCount(ledger.reported()), " reported",
                      share("merged", ledger.merged()),
                      share("partial", ledger.partial_merged()),
                      share("pending", ledger.pending()),
                      share("expired", ledger.expired()),
                      share("quarantined", ledger.quarantined()),
                      share("refused", ledger.refused()));
}

std::string ParticipationFact(const v1::Participation& sum) {
  return absl::StrCat("merged ", Ratio(sum.merged(), sum.live()),
                      " live islands; ", sum.contributing(),
                      " had begun to contribute");
}

// Describes the connections that were not served; empty if all were.
std::string ConnectionFact(const v1::ConnectionUse& use) {
  if (use.refused() + use.displaced() + use.cut() + use.unused() == 0) {
    return "";
  }
  return absl::StrCat(use.open(), " of ", use.limit(), "; ", use.refused(),
                      " refused, ", use.displaced(), " displaced, ", use.cut(),
                      " cut off, ", use.unused(), " without a call");
}

std::string FollowersFact(const v1::RunStatus& run) {
  return absl::StrJoin(
      run.followers(), "; ",
      [](std::string* out, const v1::FollowerStatus& follower) {
        absl::StrAppend(out, follower.name(), " ",
                        absl::AsciiStrToLower(absl::StrReplaceAll(
                            v1::FollowerStatus::State_Name(follower.state()),
                            {{"_", " "}})));
        if (!follower.region().empty()) {
          absl::StrAppend(out, ", region ", follower.region());
        }
        if (follower.changes_behind() == 0) return;
        absl::StrAppend(
            out, ", lacks ", follower.changes_behind(),
            follower.changes_behind() == 1 ? " change" : " changes");
        if (follower.seconds_behind() < 1) return;
        absl::StrAppend(
            out, ", ", HumanDuration(absl::Seconds(follower.seconds_behind())));
      });
}

// Returns the coordinator's memory and time; a follower has none to report.
std::string CoordinatorFact(const v1::RunStatus& run, absl::Time now) {
  if (run.has_alone_since()) {
    return absl::StrCat("follows no one since ",
                        HumanDuration(now - ToTime(run.alone_since())), " ago",
                        run.follows().empty()
                            ? ""
                            : absl::StrCat("; the last was ", run.follows()));
  }
  if (run.is_copy()) return absl::StrCat("follows ", run.follows());
  std::string text =
      absl::StrCat("up ", HumanDuration(now - ToTime(run.started_at())),
                   ", memory ", HumanBytes(run.memory_bytes()));
  if (run.outer_step_seconds() > 0) {
    absl::StrAppend(&text, ", outer step ",
                    HumanDuration(absl::Seconds(run.outer_step_seconds())));
  }
  return text;
}

}  // namespace

void PrintCheck(const v1::RunStatus& run, absl::Time now, std::ostream& out) {
  PrintFact("run", absl::StrCat(run.run_id(), ", ", StateText(run, now)), out);
  for (const v1::Attention& problem : run.attention()) {
    PrintFact("attention", ProblemText(problem, now), out);
    const std::string next = NextStep(problem);
    if (!next.empty()) PrintFact("", next, out);
  }
}

void PrintStatus(const StatusSnapshot& snapshot, absl::Time now,
                 std::ostream& out) {
  const v1::RunStatus& run = snapshot.run;
  PrintCheck(run, now, out);
  if (!run.warning().empty()) PrintFact("warning", run.warning(), out);
  PrintFact("model", ModelFact(run), out);
  PrintFact("progress", ProgressFact(run), out);
  PrintFact("training", TrainingFact(run), out);
  if (run.has_validation()) {
    PrintFact("validation", ValidationFact(run.validation(), now), out);
  }
  if (run.ledger().reported() > 0) {
    PrintFact("ledger", LedgerFact(run.ledger()), out);
  }
  if (run.participation().live() > 0) {
    PrintFact("took part", ParticipationFact(run.participation()), out);
  }
  PrintFact("traffic", TrafficFact(run), out);
  PrintFact("coordinator", CoordinatorFact(run, now), out);
  if (run.is_copy()) {
    PrintFact("copy",
              absl::StrCat(HumanBytes(run.copy_bytes_sent()),
                           " sent to islands since its start"),
              out);
  }
  if (run.followers_size() > 0) {
    PrintFact("followers", FollowersFact(run), out);
  }
  const std::string connections = ConnectionFact(run.connections());
  if (!connections.empty()) PrintFact("connections", connections, out);
  out << "\n";
  PrintIslands(snapshot, out);
  PrintLinks(snapshot.islands, out);
  out << "\n";
  PrintFragments(snapshot.fragments, now, out);
}

void PrintIslands(const StatusSnapshot& snapshot, std::ostream& out) {
  Table table({"ISLAND", ">INC", "STATE", ">STEP", ">LOSS", ">TOKENS/S",
               ">MERGED", ">UP", ">DOWN", ">TAU", ">LATE", ">WAITED", ">MEMORY",
               ">HEARD", "ACTIVITY"});
  for (const v1::IslandStatus& island : snapshot.islands.islands()) {
    const v1::IslandProgress& progress = island.progress();
    const bool live = island.state() == v1::IslandStatus::LIVE;
    const bool is_heard = !island.is_unheard();
    table.AddRow(
        {island.island_id(), absl::StrCat(island.incarnation()),
         StateText(island), StepText(island), Loss(progress.loss()),
         TrainingRate(island), HumanCount(island.tokens_merged()),
         OrDash(is_heard, HumanBytes(progress.bytes_up())),
         OrDash(is_heard, HumanBytes(progress.bytes_down())),
         OrDash(is_heard, absl::StrCat(progress.overlap_steps())),
         Lateness(progress),
         OrDash(is_heard,
                HumanDuration(absl::Seconds(progress.wait_seconds()))),
         OrDash(is_heard, HumanBytes(progress.memory_bytes())),
         OrDash(is_heard && live,
                HumanDuration(absl::Seconds(island.heartbeat_age_seconds()))),
         live ? progress.activity() : island.reason()});
  }
  table.Print(out);
}

void PrintPeers(const v1::ListPeersResponse& peers, std::ostream& out) {
  std::vector<v1::PeerUse> sorted(peers.peers().begin(), peers.peers().end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const v1::PeerUse& a, const v1::PeerUse& b) {
                     return a.held_bytes() > b.held_bytes();
                   });
  Table table({"PEER", ">CONNECTIONS", ">CALLS", ">HOLDS", ">CALLS BEGUN",
               ">RECEIVED", ">SENT", ">REFUSED", ">CLOSED"});
  for (const v1::PeerUse& peer : sorted) {
    table.AddRow({peer.peer(), absl::StrCat(peer.connections()),
                  absl::StrCat(peer.calls()), HumanBytes(peer.held_bytes()),
                  absl::StrCat(peer.calls_begun()),
                  HumanBytes(peer.bytes_received()),
                  HumanBytes(peer.bytes_sent()), absl::StrCat(peer.refused()),
                  absl::StrCat(peer.cut())});
  }
  table.Print(out);
}

void PrintFragments(const v1::ListFragmentsResponse& fragments, absl::Time now,
                    std::ostream& out) {
  Table table({">FRAGMENT", ">VERSION", ">OF", ">VALUES", ">TENSORS",
               ">SENT AT", ">NORM", ">SIMILARITY", ">COMMITTED", "DIGEST",
               "TOOK PART", "CONTRIBUTED", "AWAITED"});
  for (const v1::FragmentStatus& fragment : fragments.fragments()) {
    const v1::FragmentHead& head = fragment.head();
    table.AddRow(
        {absl::StrCat(head.fragment()), absl::StrCat(head.version()),
         absl::StrCat(fragment.final_version()), HumanCount(fragment.size()),
         absl::StrCat(fragment.tensors()),
         absl::StrCat("+", fragment.send_offset_steps()),
         OrDash(head.version() > 0,
                absl::StrFormat("%.4g", fragment.merged_norm())),
         OrDash(fragment.has_similarity(),
                absl::StrFormat("%.3f", fragment.similarity())),
         absl::StrCat(HumanDuration(now - ToTime(fragment.committed_at())),
                      " ago"),
         absl::BytesToHexString(head.digest()).substr(0, 8),
         OrDash(head.version() > 0, Participants(fragment.participation())),
         OrDash(fragment.contributed_size() > 0,
                FirstOf(fragment.contributed())),
         OrDash(fragment.awaited_size() > 0, FirstOf(fragment.awaited()))});
  }
  table.Print(out);
}

void PrintEvent(const v1::Event& event, absl::TimeZone zone,
                std::ostream& out) {
  out << absl::StrFormat(
      "%5u  %s  %-8s  %-19s  %-12s  %s\n", event.id(),
      absl::FormatTime("%Y-%m-%d %H:%M:%S", ToTime(event.time()), zone),
      SeverityName(event.severity()), event.kind(),
      event.island_id().empty() ? "-" : event.island_id(),
      Printable(event.text()));
}

std::string MessageJson(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.always_print_primitive_fields = true;
  options.preserve_proto_field_names = true;
  std::string json;
  // This fails only for well-known types with impossible values.
  CHECK(google::protobuf::util::MessageToJsonString(message, &json, options)
            .ok());
  return json;
}

std::string StatusJson(const StatusSnapshot& snapshot) {
  const auto append = [](std::string* out, const auto& message) {
    absl::StrAppend(out, MessageJson(message));
  };
  return absl::StrCat(
      "{\"run\":", MessageJson(snapshot.run), ",\"islands\":[",
      absl::StrJoin(snapshot.islands.islands(), ",", append),
      "],\"fragments\":[",
      absl::StrJoin(snapshot.fragments.fragments(), ",", append), "]}");
}

void PrintLinks(const v1::ListIslandsResponse& islands, std::ostream& out) {
  Table table({"LINK", "DIRECTION", ">ROUND TRIP", ">MBIT/S", ">BITS",
               ">PACED TO", ">BUSY", ">HELD BACK", ">SENT AGAIN",
               ">TCP AGAIN"});
  bool any = false;
  for (const v1::IslandStatus& island : islands.islands()) {
    if (island.state() != v1::IslandStatus::LIVE || island.is_unheard()) {
      continue;
    }
    any = true;
    const v1::IslandProgress& progress = island.progress();
    const auto add = [&](const char* direction, const std::string& bits,
                         const v1::LinkUse& use) {
      table.AddRow(
          {island.island_id(), direction,
           progress.round_trip_seconds() > 0
               ? absl::StrFormat("%.1f ms", progress.round_trip_seconds() * 1e3)
               : "-",
           MegabitsPerSecond(use.bytes_per_second()), bits,
           MegabitsPerSecond(use.pace_bytes_per_second()),
           HumanDuration(absl::Seconds(use.busy_seconds())),
           HumanDuration(absl::Seconds(use.paced_seconds())),
           HumanBytes(use.bytes_sent_again()),
           HumanBytes(use.tcp_bytes_retransmitted())});
    };
    add("up", UplinkBitsText(island), progress.uplink());
    add("down", "-", progress.downlink());
  }
  if (!any) return;
  out << "\n";
  table.Print(out);
}

}  // namespace causeway
