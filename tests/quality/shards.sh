#!/bin/bash
# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
#
# Measures what it costs in loss if each island has its own kind of data:
# English on one, C headers on the other.

set -euo pipefail

# shellcheck disable=SC2034  # for loss_runs.sh
readonly VARIANTS='
both_kinds
own_kind
'
# A part of each file is held out, but the islands' parts are not used: the loss
# is measured on a file that no island has.
# shellcheck disable=SC2034  # for loss_runs.sh
readonly BASE='membership.min_islands: 2 data.shards: 1 data.validation_fraction: 0.3'
# shellcheck disable=SC2034  # for loss_runs.sh
readonly SUMMARY='Trains two islands, with the same data once cut so that each has both kinds, and
once so that each has one, and prints the validation loss on both kinds. About
80 seconds a run on two cores.'

# shellcheck source=tests/quality/loss_runs.sh
. "$(dirname "${BASH_SOURCE[0]}")/loss_runs.sh"

# Writes the islands' files, work/VARIANT.0 and .1, and work/held_out.txt.
cut_texts() {
  local size
  size="$(stat -c %s "${data[0]}")"
  find /usr/include -name '*.h' | LC_ALL=C sort | xargs cat 2>/dev/null |
    LC_ALL=C tr -d '\200-\377' | head -c "${size}" >"${work}/code.txt" || true
  perl -e '
    my ($work, @texts) = @ARGV;
    local $/ = \65536;
    sub out { open my $out, ">", "$work/$_[0]" or die "$_[0]: $!\n"; $out }
    my $held_out = out("held_out.txt");
    my @both = map { out("both_kinds.$_") } 0, 1;
    my @own = map { out("own_kind.$_") } 0, 1;
    for my $kind (0, 1) {
      open my $in, "<", $texts[$kind] or die "$texts[$kind]: $!\n";
      while (my $block = <$in>) {
        if ($. % 10 == 0) { print $held_out $block; next }
        print { $own[$kind] } $block;
        print { $both[$. % 2] } $block;
      }
      close $in;
    }' "${work}" "${data[0]}" "${work}/code.txt"
  data=("${work}/held_out.txt")
}

# train NAME SEED: see loss_runs.sh.
train() {
  local run="$1-$2" island
  if [[ ! -e "${work}/held_out.txt" ]]; then cut_texts; fi
  data=("${work}/held_out.txt")
  configure "$1" "$2" >"${work}/${run}.textproto"
  start_coordinator "${run}" "${work}/${run}.textproto"
  for island in 0 1; do
    start "${run}-${island}" "${worker}" --coordinator "${address}" \
      --island "island-${island}" --threads 1 --data "${work}/$1.${island}"
  done
  await_islands
  stop_processes
  printf '%.6f\n' "$(evaluate "${run}")"
  rm -rf "${work:?}/${run}"
}

# shellcheck disable=SC2034  # for loss_runs.sh
FIGURES=' '
compare_losses "$@"
