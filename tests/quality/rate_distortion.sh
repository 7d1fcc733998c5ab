#!/bin/bash
# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
#
# Measures rate and distortion of every wire format, on random values and on the
# pseudo-gradients of a real run: tests/quality/adamw.textproto with one island,
# where an outer step of SGD at rate 1 makes each update the island's
# pseudo-gradient.

set -euo pipefail

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)"
readonly ROOT
# shellcheck source=deploy/run_processes.sh
. "${ROOT}/deploy/run_processes.sh"
# shellcheck source=deploy/read_options.sh
. "${ROOT}/deploy/read_options.sh"

usage() {
  cat <<'USAGE'
usage: tests/quality/rate_distortion.sh [--json FILE] [--plot FILE.svg]
                                        [--rounds N] [--keep]

Prints rate and distortion of every format. About a minute after the build.

  --json FILE      write the figures as JSON, too
  --plot FILE.svg  draw them with gnuplot
  --rounds N       rounds of the run that makes the pseudo-gradients (default:
                   12); every third is used
  --keep           keep the working directory
USAGE
}

json=
plot=
rounds=12
read_options keep "json plot rounds" "$@"
refuse_rest
if [[ -n "${json}" ]]; then json="$(realpath "${json}")"; fi
if [[ -n "${plot}" ]]; then plot="$(realpath "${plot}")"; fi
if [[ ! "${rounds}" =~ ^[1-9][0-9]{0,3}$ ]]; then
  echo "rate_distortion: '${rounds}' is not a number of 1 or more" >&2
  exit 2
fi
if [[ -n "${plot}" ]] && ! command -v gnuplot >/dev/null; then
  echo "rate_distortion: --plot needs gnuplot (Debian: gnuplot-nox)" >&2
  exit 2
fi
cd "${ROOT}"

configure() {
  perl -e '
    my ($rounds) = @ARGV;
    local $/;
    my $text = <STDIN>;
    sub set {
      my ($field, $value) = @_;
      $text =~ s/^(\s*$field:).*$/$1 $value/m or die "no field $field\n";
    }
    $text =~ /inner_steps_per_round:\s*(\d+)/ or die "no round length\n";
    set("total_steps", $rounds * $1);
    set("min_islands", 1);
    set("max_islands", 1);
    set("algorithm", "SGD");
    set("uplink_format", "FP32");
    set("downlink_format", "FP32");
    set("fragments", 1);
    set("overlap_steps", 0);
    $text =~ s/(algorithm: SGD\s+learning_rate:).*$/$1 1/m or die "no rate\n";
    print "$text\nstorage { update_history: $rounds }\n";
  ' "${rounds}" <tests/quality/adamw.textproto
}

# draw FILE: draws the points of the JSON file FILE, a panel for each kind of
# data.
draw() {
  perl -MJSON::PP -e '
    my ($out) = @ARGV;
    local $/;
    my (%points, @data);
    for my $point (@{decode_json(<STDIN>)}) {
      push @data, $point->{data} unless $points{$point->{data}};
      push @{$points{$point->{data}}}, $point;
    }
    for my $data (@data) {
      open my $curve, ">", "$out/$data.ecq" or die;
      open my $single, ">", "$out/$data.formats" or die;
      for my $p (sort { $a->{bits} <=> $b->{bits} } @{$points{$data}}) {
        my $file = $p->{format} =~ /^ECQ/ ? $curve : $single;
        print $file join("\t", $p->{bits}, $p->{relative_error},
          $p->{fixed_bits}, $p->{format} =~ s/_/ /gr), "\n";
      }
    }
    print join(" ", @data), "\n";' "${work}" <"$1" >"${work}/panels"
  local panels columns
  read -r -a panels <"${work}/panels"
  columns=$((${#panels[@]} > 1 ? 2 : 1))
  {
    cat <<PLOT
set terminal svg size 980,760 font "sans-serif,12" background "#ffffff"
set output "${plot}"
set multiplot layout $(((${#panels[@]} + 1) / 2)),${columns}
set datafile separator "\t"
set logscale y
set format y "10^{%T}"
set xrange [0:9]
set yrange [1e-5:1]
set xlabel "bits per value on the wire"
set ylabel "mean squared error / mean square"
set grid lc rgb "#dddddd"
set key bottom left
gaussian = "Gaussian"
laplace = "Laplace"
student_t4 = "Student t, 4 degrees"
real = "pseudo-gradients of a run"
PLOT
    local panel
    for panel in "${panels[@]}"; do
      cat <<PLOT
set title ${panel}
plot "${work}/${panel}.ecq" using 1:2 with linespoints pt 7 ps 0.4 lw 1.5 \
    lc rgb "#1f77b4" title "ECQ", \
  "${work}/${panel}.formats" using 1:2 with points pt 7 ps 0.8 \
    lc rgb "#d62728" title "formats, entropy coded", \
  "" using 3:2 with points pt 6 ps 0.8 lc rgb "#888888" title "as they are", \
  "" using 1:2:4 with labels font ",9" offset 0.8,0.6 left notitle
PLOT
    done
  } >"${work}/plot.gnuplot"
  gnuplot "${work}/plot.gnuplot"
  # gnuplot writes many empty groups, and the others over several lines each.
  perl -0pi -e '
    1 while s{<g [^>]*>\s*</g>\s*}{}g;
    s{\s+}{ }g;
    s{ (?=<g [^>]*stroke-linecap)}{\n}g;
    s{ $}{\n};
  ' "${plot}"
}

finish_on_exit
deploy/install_deps.sh build quickstart
say "" "Building..."
build_programs
"${BAZEL[@]}" build //tests/quality:rate_distortion
tool="$("${BAZEL[@]}" info bazel-bin 2>/dev/null)/tests/quality/rate_distortion"
work="$(mktemp -d "${TMPDIR:-/tmp}/causeway-rate.XXXXXX")"
use_perl_manual
configure >"${work}/run.textproto"
start_coordinator run "${work}/run.textproto"
start island "${worker}" --coordinator "${address}" --island alone \
  --threads "$(nproc)" --data "${data[0]}"
await_islands
stop_processes
updates="$(find "${work}/run/updates" -name '*.safetensors' | sort |
  awk 'NR % 3 == 1' | paste -sd ,)"
say ""
"${tool}" --updates="${updates}" --json="${work}/figures.json"
if [[ -n "${json}" ]]; then cp "${work}/figures.json" "${json}"; fi
if [[ -n "${plot}" ]]; then draw "${work}/figures.json"; fi
