#!/bin/bash
# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
#
# What the wire format costs in loss: trains the model of
# deploy/quickstart.textproto on two islands with DiLoCo (one fragment, nothing
# overlapped) once for every format and seed, and compares bits per parameter and
# validation loss.

set -euo pipefail

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)"
readonly ROOT
# shellcheck source=deploy/bazel.sh
. "${ROOT}/deploy/bazel.sh"
# shellcheck source=deploy/run_processes.sh
. "${ROOT}/deploy/run_processes.sh"

usage() {
  cat <<'USAGE'
usage: tests/quality/codecs.sh [--json FILE] [--seeds N] [--rounds N]
                               [--formats NAME,...] [--keep]

Trains two islands once for every format and seed, both directions in that
format, and prints bits per parameter and validation loss. About 40 seconds a
run on two cores.

  --json FILE        write the figures as JSON, too
  --seeds N          seeds 1 .. N (default: 3)
  --rounds N         rounds of 40 inner steps (default: 12)
  --formats NAME,... only these (default: all; the first one is the reference)
  --keep             keep the working directory: logs, models
USAGE
}

# name, fields of the configuration's `synchronization`. The last ones send less
# than single pseudo-gradients need and rely on error feedback; the coordinator
# feeds its own errors back in any lossy format.
readonly FORMATS='
fp32      uplink_format: FP32 downlink_format: FP32
bf16      uplink_format: BF16 downlink_format: BF16
int8      uplink_format: INT8 downlink_format: INT8 entropy_coding: true
int4      uplink_format: INT4 downlink_format: INT4 entropy_coding: true
e3m0      uplink_format: E3M0 downlink_format: E3M0 entropy_coding: true
ecq       uplink_format: ECQ downlink_format: ECQ
ecq_fine  uplink_format: ECQ downlink_format: ECQ ecq_distortion: 0.0125
ecq_ef    uplink_format: ECQ downlink_format: ECQ error_feedback: 1
int2      uplink_format: INT2 downlink_format: INT2 entropy_coding: false error_feedback: 1
ecq_2     uplink_format: ECQ downlink_format: ECQ ecq_bits: 2 error_feedback: 1
ecq_1.5   uplink_format: ECQ downlink_format: ECQ ecq_bits: 1.5 error_feedback: 1
'

json=
seeds=3
rounds=12
formats=
while (($#)); do
  case "$1" in
    --json | --seeds | --rounds | --formats)
      if (($# < 2)); then
        echo "codecs: $1 needs a value" >&2
        exit 2
      fi
      case "$1" in
        --json) json="$(realpath "$2")" ;;
        --seeds) seeds="$2" ;;
        --rounds) rounds="$2" ;;
        --formats) formats="${2//,/ }" ;;
      esac
      shift
      ;;
    --keep) keep=true ;;
    -h | --help)
      usage
      exit 0
      ;;
    *)
      usage >&2
      echo "codecs: unknown argument '$1'" >&2
      exit 2
      ;;
  esac
  shift
done
for number in "${seeds}" "${rounds}"; do
  if [[ ! "${number}" =~ ^[1-9][0-9]{0,3}$ ]]; then
    echo "codecs: '${number}' is not a number of 1 or more" >&2
    exit 2
  fi
done
: "${formats:=$(awk 'NF { print $1 }' <<<"${FORMATS}" | paste -sd ' ')}"
for name in ${formats}; do
  if ! awk -v name="${name}" '$1 == name { found = 1 } END { exit !found }' \
    <<<"${FORMATS}"; then
    echo "codecs: there is no format '${name}'; there are" \
      "$(awk 'NF { print $1 }' <<<"${FORMATS}" | paste -sd ' ')" >&2
    exit 2
  fi
done
cd "${ROOT}"

# configure NAME SEED: prints the configuration of a run.
configure() {
  local fields
  fields="$(awk -v name="$1" '$1 == name { $1 = ""; print }' <<<"${FORMATS}")"
  perl -e '
    my ($fields, $seed, $rounds) = @ARGV;
    local $/;
    my $text = <STDIN>;
    $text =~ /inner_steps_per_round:\s*(\d+)/ or die "no round length\n";
    my $steps = $rounds * $1;
    $text =~ s/^seed:.*$/seed: $seed/m or die "no seed\n";
    $text =~ s/total_steps:.*/total_steps: $steps/ or die "no steps\n";
    $text =~ s/\n\s*((up|down)link_format|entropy_coding|fragments
        |overlap_steps|mixing):.*//gx;
    $text =~ s/(synchronization \{)/$1\n $fields/ or die "no place\n";
    print $text;' "${fields}" "$2" "${rounds}" <deploy/quickstart.textproto
}

# train NAME SEED: prints bits per parameter and contribution, the same for an
# update, and the validation loss.
train() {
  local run="$1-$2" island
  configure "$1" "$2" >"${work}/${run}.textproto"
  start_coordinator "${run}" "${work}/${run}.textproto"
  for island in north south; do
    start "${run}-${island}" "${worker}" --coordinator "${address}" \
      --island "${island}" --threads 1 --data "${data[0]}"
  done
  await_islands
  read_status || fail_of "${run}-coordinator" "does not answer"
  stop_processes
  awk -v up="${up}" -v down="${down}" -v transfers="$((2 * merged))" \
    -v parameters="${parameters}" -v loss="$(evaluate "${run}")" 'BEGIN {
      printf "%.4f %.4f %.6f\n", 8 * up / transfers / parameters,
        8 * down / transfers / parameters, loss
    }'
  rm -rf "${work:?}/${run}"
}

# Reads lines "NAME SEED BITS_UP BITS_DOWN LOSS"; prints the table, and the JSON
# to the file $1 unless that is empty.
report() {
  perl -MJSON::PP -e '
    my ($file) = @ARGV;
    my (@names, %runs);
    while (<STDIN>) {
      my ($name, $seed, @figures) = split;
      push @names, $name unless $runs{$name};
      push @{$runs{$name}}, \@figures;
    }
    sub mean { my $sum = 0; $sum += $_ for @_; $sum / @_ }
    printf "%-10s %8s %8s  %-30s %8s  %s\n", "", "bits up", "bits down",
      "validation loss by seed", "mean", "relative to $names[0], by seed";
    my %json;
    for my $name (@names) {
      my @runs = @{$runs{$name}};
      my ($up, $down) = map { my $i = $_; mean(map { $_->[$i] } @runs) } 0, 1;
      my @loss = map { $_->[2] } @runs;
      my @relative =
        map { $loss[$_] / $runs{$names[0]}[$_][2] - 1 } 0 .. $#loss;
      printf "%-10s %8.3f %9.3f  %-30s %8.4f  %s\n", $name, $up, $down,
        join(" ", map { sprintf "%.4f", $_ } @loss), mean(@loss),
        join(" ", map { sprintf "%+.3f %%", 100 * $_ } @relative);
      $json{$name} = {bits_per_parameter => 0 + sprintf("%.4f", $up),
        bits_per_parameter_down => 0 + sprintf("%.4f", $down),
        val_loss => [map { 0 + $_ } @loss],
        relative => [map { 0 + sprintf("%.6f", $_) } @relative]};
    }
    exit unless $file ne "";
    open my $out, ">", $file or die "$file: $!\n";
    print $out JSON::PP->new->canonical->pretty->encode(\%json);' "$1"
}

finish_on_exit
deploy/install_deps.sh build quickstart
say "" "Building..."
build_programs
work="$(mktemp -d "${TMPDIR:-/tmp}/causeway-codecs.XXXXXX")"
use_perl_manual
say ""
for name in ${formats}; do
  for ((seed = 1; seed <= seeds; ++seed)); do
    train "${name}" "${seed}" >"${work}/figures"
    say "${name} ${seed} $(<"${work}/figures")" | tee -a "${work}/all"
  done
done
say ""
report "${json}" <"${work}/all"
