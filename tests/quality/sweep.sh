#!/bin/bash
# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
#
# Measures how the loss depends on fields of the configuration: trains once for
# every point of a grid.

set -euo pipefail

# shellcheck disable=SC2034  # for loss_runs.sh
readonly CONFIG=deploy/quickstart.textproto
# shellcheck disable=SC2034  # for loss_runs.sh
readonly SUMMARY='Trains the quickstart once for every point of a grid and seed, and prints bits per
parameter and validation loss. About 40 seconds a run of 12 rounds on two cores.
Begins with these arguments:

  --field FIELD=VALUE,VALUE...  an axis of the grid, which may be repeated, for
                                instance outer_optimizer.momentum=0.4,0.8
  --set FIELD=VALUE             a field of all points, which may be repeated
  --plot FILE.svg               draw the losses over the first axis'

# shellcheck source=tests/quality/loss_runs.sh
. "$(dirname "${BASH_SOURCE[0]}")/loss_runs.sh"

BASE=
plot=
axes=()
while (($# >= 2)); do
  case "$1" in
    --field | --set)
      if [[ ! "$2" =~ ^[a-z0-9_.]+=[^=\ ]+$ ]]; then
        wrong_usage "'$2' is not FIELD=VALUE"
      fi
      if [[ "$1" == --field ]]; then axes+=("$2"); else BASE+=" ${2/=/: }"; fi
      ;;
    --plot) plot="$(realpath "$2")" ;;
    *) break ;;
  esac
  shift 2
done
if [[ -n "${plot}" ]] && ! command -v gnuplot >/dev/null; then
  fail "--plot needs gnuplot (Debian: gnuplot-nox)"
fi
if ((${#axes[@]} == 0)) && [[ "${1-}" != -h && "${1-}" != --help ]]; then
  usage >&2
  wrong_usage "there is no --field"
fi

# points AXIS...: prints a line for every point of the grid: its name, such as
# "momentum=0.4+fragments=2", then its fields.
points() {
  perl -e '
    my @points = (["", ""]);
    for my $axis (@ARGV) {
      my ($field, $values) = split /=/, $axis;
      my $short = $field =~ s/.*\.//r;
      @points = map {
        my ($name, $fields) = @$_;
        map { ["$name+$short=$_", "$fields $field: $_"] } split /,/, $values
      } @points;
    }
    print substr($_->[0], 1), $_->[1], "\n" for @points;' "$@"
}

VARIANTS="$(points "${axes[@]}")"

# draw RESULTS: draws the mean, lowest and highest loss over the first axis, with
# a line for each point of the others.
draw() {
  local curves
  mapfile -t curves < <(perl -e '
    my ($results, $work) = @ARGV;
    open my $in, "<", $results or die "$results: $!\n";
    my %curves;
    while (<$in>) {
      my ($name, $seed, @figures) = split;
      my ($first, @others) = split /[+]/, $name;
      push @{$curves{join ", ", @others}{$first =~ s/.*=//r}}, $figures[-1];
    }
    my $count = 0;
    for my $curve (sort keys %curves) {
      open my $out, ">", "$work/curve." . $count++ or die "$!\n";
      my $points = $curves{$curve};
      for my $x (sort { $a <=> $b } keys %$points) {
        my @loss = sort { $a <=> $b } @{$points->{$x}};
        my $sum = 0;
        $sum += $_ for @loss;
        print $out join("\t", $x, $sum / @loss, @loss[0, -1]), "\n";
      }
      print "$curve\n";
    }' "$1" "${work}")
  {
    cat <<PLOT
set terminal svg size 760,480 font "sans-serif,12" background "#ffffff"
set output "${plot}"
set datafile separator "\t"
set xlabel "${axes[0]%%=*}" noenhanced
set ylabel "validation loss (nats per token)"
set grid lc rgb "#dddddd"
set key noenhanced
PLOT
    local index separator=plot
    for index in "${!curves[@]}"; do
      printf '%s "%s" using 1:2:3:4 with yerrorlines pt 7 ps 0.5 title "%s"' \
        "${separator}" "${work}/curve.${index}" "${curves[index]}"
      separator=,
    done
    echo
  } >"${work}/plot.gnuplot"
  gnuplot "${work}/plot.gnuplot"
}

compare_losses "$@"
if [[ -n "${plot}" ]]; then draw "${results}"; fi
