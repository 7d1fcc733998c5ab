#!/bin/bash
# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
#
# Trains a small language model on two islands and shows that it pays: one
# coordinator and two islands, each a process of its own, talk TLS over loopback.
# For comparison, one of the islands then trains alone, with as many steps on the
# same data. deploy/quickstart.textproto describes the run.

set -euo pipefail

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)"
readonly ROOT
# shellcheck source=deploy/run_processes.sh
. "${ROOT}/deploy/run_processes.sh"

usage() {
  cat <<'USAGE'
usage: deploy/quickstart.sh [--report FILE] [--text FILE...] [--rounds N]
                            [--threads N] [--pytorch] [--keep]

Installs what is missing, builds, trains on two islands and on one alone, and
compares. Takes four minutes on two cores after the build. Exits with 0 if
the merged model learnt. Leaves one file, the run in pictures, and says where.

  --report FILE   write the figures as JSON, too
  --text FILE...  text to train on (default: the prose of Perl's manual)
  --rounds N      rounds of the run (default: as configured)
  --threads N     threads of each of the two islands (default: half the cores,
                  at most 4)
  --pytorch       islands are PyTorch loops (examples/pytorch) instead of
                  causeway-worker
  --keep          keep the working directory: data, logs, models
USAGE
}

report=
rounds=
pytorch=false
loss_start=
threads=
texts=()
while (($#)); do
  case "$1" in
    --report | --rounds | --threads)
      if (($# < 2)); then
        echo "quickstart: $1 needs a value" >&2
        exit 2
      fi
      printf -v "${1#--}" '%s' "$2"
      shift
      ;;
    --text)
      while (($# > 1)) && [[ "$2" != --* ]]; do
        texts+=("$(realpath "$2")")
        shift
      done
      ;;
    --pytorch) pytorch=true ;;
    --keep) keep=true ;;
    -h | --help)
      usage
      exit 0
      ;;
    *)
      usage >&2
      echo "quickstart: unknown argument '$1'" >&2
      exit 2
      ;;
  esac
  shift
done
for number in "${rounds}" "${threads}"; do
  if [[ -n "${number}" && ! "${number}" =~ ^[1-9][0-9]{0,5}$ ]]; then
    echo "quickstart: '${number}' is not a number of 1 or more" >&2
    exit 2
  fi
done
for text in ${texts[@]+"${texts[@]}"}; do
  if [[ ! -r "${text}" || ! -f "${text}" ]]; then
    echo "quickstart: cannot read the text ${text}" >&2
    exit 2
  elif [[ "${text}" == *,* ]]; then
    echo "quickstart: ${text}: rename it, as a comma separates files for the worker" >&2
    exit 2
  fi
done
if [[ -n "${report}" ]]; then report="$(realpath "${report}")"; fi
cd "${ROOT}"

# ---- The run

# configure FILE ISLANDS: writes the configuration for that many islands. A
# single island trains plainly: with an outer step of SGD at rate 1 and nothing
# rounded on the wire, the coordinator takes over its parameters.
configure() {
  perl -e '
    my ($islands, $rounds) = @ARGV;
    local $/;
    my $text = <STDIN>;
    sub set {
      my ($field, $value) = @_;
      $text =~ s/^(\s*$field:).*$/$1 $value/m or die "no field $field\n";
    }
    if ($rounds) {
      $text =~ /inner_steps_per_round:\s*(\d+)/ or die "no round length\n";
      set("total_steps", $rounds * $1);
    }
    if ($islands == 1) {
      set("name", "\"alone\"");
      set("min_islands", 1);
      set("max_islands", 1);
      set("algorithm", "SGD");
      set("uplink_format", "FP32");
      set("downlink_format", "FP32");
      set("fragments", 1);
      set("overlap_steps", 0);
      $text =~ s/(algorithm: SGD\s+learning_rate:).*$/$1 1/m or die "no rate\n";
    }
    print $text;' "$2" "${rounds:-0}" <deploy/quickstart.textproto >"$1"
}

megabytes() { awk -v bytes="$1" 'BEGIN { printf "%.1f MB", bytes / 1e6 }'; }

clock() { printf '%d:%02d' $(($1 / 60)) $(($1 % 60)); }

progress_line() {
  local elapsed="$1" left=-
  if ((step > 0 && step <= total_steps)); then
    left="$(clock $((elapsed * (total_steps - step) / step)))"
  fi
  awk -v elapsed="$(clock "${elapsed}")" -v step="${step}/${total_steps}" \
    -v round="${merged}/${total_rounds}" -v loss="${loss}" -v rate="${rate}" \
    -v up="$(megabytes "${up}")" -v down="$(megabytes "${down}")" \
    -v left="${left}" 'BEGIN {
      printf "%7s %11s %8s %8s %11.0f %10s %10s %8s", elapsed, step, round,
        (loss > 0 ? sprintf("%.4f", loss) : "-"), rate, up, down, left
    }'
}

# Shows the progress of the run at `address` until it is finished: a permanent
# line for each tenth of the run, and in a terminal a live one below it.
follow_run() {
  local began=${SECONDS} tenth shown=-1 failures=0 ended
  loss=0 rate=0
  printf '%7s %11s %8s %8s %11s %10s %10s %8s\n' time step round loss \
    tokens/s up down left
  while true; do
    # This comes first: an island may end as soon as the run is finished.
    ended="$(ended_process)"
    if read_status; then
      failures=0
      tenth=$((total_steps > 0 ? step * 10 / total_steps : 0))
      if [[ -t 1 ]]; then
        printf '\r\e[K%s' "$(progress_line $((SECONDS - began)))"
      fi
      if ((tenth > shown)) || [[ "${run_state}" == FINISHED ]]; then
        if [[ -t 1 ]]; then
          printf '\n'
        else
          say "$(progress_line $((SECONDS - began)))"
        fi
        shown="${tenth}"
      fi
      if [[ "${run_state}" == FINISHED ]]; then break; fi
    elif ((++failures == 5)); then
      cat "${work}/status.log" >&2
      fail "the coordinator does not answer"
    fi
    if [[ -n "${ended}" ]]; then
      fail_of "${ended}" "ended before the run was finished"
    fi
    sleep 1
  done
  if [[ -t 1 ]]; then printf '\r\e[K'; fi
}

# ---- Islands of causeway-worker

# Starts the coordinator and the islands, and sets loss_start.
begin_islands() {
  local island
  configure "${work}/islands.textproto" 2
  start_coordinator islands "${work}/islands.textproto" auto \
    --http_listen "${host}:0"
  loss_start="$(evaluate islands)"
  for island in north south; do
    join_island "${island}" --threads "${threads}" --data "${data_list}"
  done
}

train_alone() {
  configure "${work}/alone.textproto" 1
  start_coordinator alone "${work}/alone.textproto" auto
  join_island alone --threads "$((2 * threads))" --data "${data_list}"
  follow_run
  await_islands
  stop_processes
}

# loss_of NAME start|end: prints the validation loss of islands or alone.
loss_of() { evaluate "$1"; }

show_sample() {
  say "" "The merged model continues \"The \":" ""
  "${causeway}" sample "${work}/islands" --prompt "The " --tokens 300 \
    2>"${work}/sample.log" | fold -s -w 76 | sed 's/^/  /' ||
    fail_of sample "of the merged model failed"
}

# ---- Islands of PyTorch, in place of these

if [[ "${pytorch}" == true ]]; then
  # shellcheck source=deploy/quickstart_pytorch.sh
  . "${ROOT}/deploy/quickstart_pytorch.sh"
fi

# ---- Results

# Prints how the islands synchronize, as configured.
describe_synchronization() {
  perl -ne '
    $value{$1} = $2 if /^\s*(\w+):\s*(\S+)/;
    END {
      print "Streaming DiLoCo in $value{ecq_bits} bits: ",
        "$value{fragments} fragments, H $value{inner_steps_per_round}, ",
        "tau $value{overlap_steps}";
    }' "${work}/islands.textproto"
}

# print_table ROUNDS UP DOWN DATA_PARALLEL TOKENS PARAMETERS
print_table() {
  say ""
  awk -v start="${loss_start}" -v alone="${loss_alone}" -v end="${loss_end}" '
    function row(name, loss) {
      printf "%-28s %15.4f %15.4f\n", name, loss, loss / log(2)
    }
    BEGIN {
      printf "%-28s %15s %15s\n", "", "validation loss", "bits per byte"
      row("before training", start)
      row("one island alone", alone)
      row("two islands, merged", end)
    }'
  say ""
  awk -v rounds="$1" -v up="$2" -v down="$3" -v parallel="$4" -v tokens="$5" \
    -v parameters="$6" -v seconds="${training_seconds}" \
    -v synchronization="$(describe_synchronization)" \
    -v wall="${wall_seconds}" 'BEGIN {
      printf "%-28s %.2f million\n", "parameters", parameters / 1e6
      printf "%-28s %d rounds, %.2f million tokens, %d s\n", "two islands",
        rounds, tokens / 1e6, seconds
      printf "%-28s %s\n", "synchronized by", synchronization
      mib = 1048576
      printf "%-28s %.1f MiB up, %.1f MiB down\n", "sent", up / mib, down / mib
      printf "%-28s %.1f MiB, %.1f times as much\n",
        "data parallel would send", parallel / mib, parallel / (up + down)
      printf "%-28s %d s\n", "everything after the build", wall
    }'
}

# write_report takes the same arguments.
write_report() {
  printf '{
  "val_loss_start": %s,
  "val_loss_end": %s,
  "val_loss_single_island": %s,
  "bytes_up": %s,
  "bytes_down": %s,
  "bytes_data_parallel": %s,
  "wall_seconds": %s,
  "tokens": %s,
  "rounds": %s,
  "islands": 2
}
' "${loss_start}" "${loss_end}" "${loss_alone}" "$2" "$3" "$4" \
    "${wall_seconds}" "$5" "$1"
}

# ---- Main

finish_on_exit
if ((${#texts[@]} > 0)); then
  deploy/install_deps.sh build
else
  deploy/install_deps.sh build quickstart
fi
if [[ "${pytorch}" == true ]]; then deploy/install_deps.sh peers; fi

say "" "Building..."
build_programs

work="$(mktemp -d "${TMPDIR:-/tmp}/causeway-quickstart.XXXXXX")"
began=${SECONDS}
cores="$(nproc)"
: "${threads:=$((cores < 2 ? 1 : cores > 8 ? 4 : cores / 2))}"

data=(${texts[@]+"${texts[@]}"})
if ((${#data[@]} == 0)); then
  use_perl_manual
fi

# The worker takes a list with commas; file names with commas were refused above.
data_list="$(IFS=, && printf '%s' "${data[*]}")"

say "" "Two islands, ${threads} thread(s) each, on $(
  megabytes "$(cat "${data[@]}" | wc -c)"
) of text" ""
begin_islands
say "Watch it at $(sed -n 's/.*page is //p' "${work}/islands-coordinator.log")" ""
training_began=${SECONDS}
follow_run
training_seconds=$((SECONDS - training_began))
page="$(mktemp --suffix=.html "${TMPDIR:-/tmp}/causeway-quickstart.XXXXXX")"
"${causeway}" report --coordinator "${address}" "${tls[@]}" --out "${page}" \
  2>"${work}/page.log" || fail_of page "of the run was not written"
await_islands
stop_processes
loss_end="$(loss_of islands end)"
loss_start="${loss_start:-$(loss_of islands start)}"
readonly run=("${merged}" "${up}" "${down}" "${data_parallel}" "${tokens}"
  "${parameters}")

say "" "One island alone, $((2 * threads)) thread(s), same steps and data" ""
train_alone
loss_alone="$(loss_of alone end)"
wall_seconds=$((SECONDS - began))

print_table "${run[@]}"
show_sample
say "" "The run in pictures, for a browser: ${page}"
if [[ -n "${report}" ]]; then
  write_report "${run[@]}" >"${report}"
  say "" "Wrote ${report}"
fi

say ""
if ! awk -v start="${loss_start}" -v end="${loss_end}" \
  'BEGIN { exit !(end < 0.9 * start) }'; then
  fail "the merged model did not learn: its validation loss went from \
${loss_start} to ${loss_end}, not down by a tenth at least"
fi
if awk -v alone="${loss_alone}" -v end="${loss_end}" \
  'BEGIN { exit !(end < alone) }'; then
  say "The merged model learnt, and is better than one island alone."
else
  say "The merged model learnt, but is no better than one island alone."
fi
