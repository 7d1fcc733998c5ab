# shellcheck shell=bash
# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
#
# Measures what a choice costs in loss, for scripts that source this file:
# trains the run of a configuration once for every variant and seed, and
# compares bits per parameter and validation loss. A script sets
#
#   VARIANTS   a line for each: its name, then fields of the configuration as
#              "field: value", of `synchronization` unless written
#              "section.field: value" or "section.message.field: value". The
#              first one is the reference.
#   BASE       fields for all variants that do not set them
#   SUMMARY    a description for the help text
#
# and calls compare_losses "$@". A variant has as many islands as its
# membership.min_islands; a single island gets two ranks, so that variants with
# one and with two islands compute alike. A script may define functions of its
# own for `train` or `figures` after it has sourced this file; before that it
# sets
#
#   FIGURES    what `train` prints before the loss: KEY:HEADING for each,
#              separated by spaces, with the key in the JSON and _ for a space
#   rounds     the default of --rounds
#   CONFIG     the default of --config, if not tests/quality/adamw.textproto

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)"
readonly ROOT
# shellcheck source=deploy/run_processes.sh
. "${ROOT}/deploy/run_processes.sh"
# shellcheck source=deploy/read_options.sh
. "${ROOT}/deploy/read_options.sh"

: "${FIGURES:=bits_per_parameter:bits_up bits_per_parameter_down:bits_down}"

# The functions below set and use these.
config="${CONFIG:-tests/quality/adamw.textproto}"
json=
results=
seeds=3
: "${rounds:=12}"
text=
chosen=()

usage() {
  cat <<USAGE
usage: tests/quality/${program}.sh [--json FILE] [--results FILE] [--seeds N]
                                   [--rounds N] [--variants NAME,...]
                                   [--config FILE] [--text FILE] [--keep]

${SUMMARY}

  --json FILE          write the figures as JSON, too
  --results FILE       go on with the results in FILE, if there are any, and add
                       the new ones
  --seeds N            seeds 1 .. N (default: 3)
  --rounds N           40 N steps in all (default: ${rounds})
  --variants NAME,...  only these (default: all; the first one is the reference)
  --config FILE        the run that variants change (default:
                       ${config})
  --text FILE          train on this text (default: the prose of Perl's manual)
  --keep               keep the working directory: logs, models
USAGE
}

wrong_usage() {
  echo "${program}: $1" >&2
  exit 2
}

# Prints all names on one line.
variant_names() {
  # shellcheck disable=SC2153  # of the script that sources this
  awk 'NF { print $1 }' <<<"${VARIANTS}" | paste -sd ' '
}

parse_arguments() {
  local number name variants='' default="${config}"
  read_options keep "json results seeds rounds variants config text" "$@"
  refuse_rest
  for name in json results text; do
    if [[ -n "${!name}" ]]; then
      printf -v "${name}" '%s' "$(realpath "${!name}")"
    fi
  done
  # The default is a path below ROOT.
  if [[ "${config}" != "${default}" ]]; then config="$(realpath "${config}")"; fi
  if [[ -n "${variants}" ]]; then IFS=, read -ra chosen <<<"${variants}"; fi
  for number in "${seeds}" "${rounds}"; do
    if [[ ! "${number}" =~ ^[1-9][0-9]{0,3}$ ]]; then
      wrong_usage "'${number}' is not a number of 1 or more"
    fi
  done
  if ((${#chosen[@]} == 0)); then read -ra chosen <<<"$(variant_names)"; fi
  for name in "${chosen[@]}"; do
    if [[ " $(variant_names) " != *" ${name} "* ]]; then
      wrong_usage "there is no variant '${name}'; there are $(variant_names)"
    fi
  done
}

# configure NAME SEED: prints the configuration of a run.
configure() {
  local fields
  # shellcheck disable=SC2153  # of the script that sources this
  fields="${BASE} $(awk -v name="$1" '$1 == name { $1 = ""; print }' \
    <<<"${VARIANTS}")"
  perl -e '
    my ($fields, $seed, $rounds) = @ARGV;
    local $/;
    my $text = <STDIN>;
    my $steps = 40 * $rounds;
    $text =~ s/^seed:.*$/seed: $seed/m or die "no seed\n";
    $fields .= " training.total_steps: $steps";
    # Sets the field at the path in the text of a message.
    sub set {
      my ($text, $indent, $value, $name, @path) = @_;
      if (!@path) {
        $text =~ s/^$indent$name:.*$/$indent$name: $value/m
          or $text .= "$indent$name: $value\n";
      } elsif ($text =~ /^$indent$name \{\n(.*?)^$indent\}/ms) {
        my ($begin, $end) = ($-[1], $+[1]);
        substr($text, $begin, $end - $begin) =
          set($1, "$indent  ", $value, @path);
      } else {
        $text .= "$indent$name {\n" . set("", "$indent  ", $value, @path) .
          "$indent}\n";
      }
      $text
    }
    while ($fields =~ /([\w.]+):\s*(\S+)/g) {
      my ($value, @path) = ($2, split /\./, $1);
      unshift @path, "synchronization" if @path == 1;
      $text = set($text, "", $value, @path);
    }
    print $text;' "${fields}" "$2" "${rounds}" <"${config}"
}

# figures RUN ISLANDS: prints bits per parameter of a contribution and of an
# update. Each figure is for the whole model, from all its fragments.
figures() {
  local inner_steps
  inner_steps="$(sed -n 's/^ *inner_steps_per_round: //p' \
    "${work}/$1.textproto")"
  awk -v up="${up}" -v down="${down}" -v parameters="${parameters}" \
    -v transfers="$(($2 * total_steps / inner_steps))" 'BEGIN {
      printf "%.4f %.4f", 8 * up / transfers / parameters,
        8 * down / transfers / parameters
    }'
}

# train NAME SEED: prints the figures and the validation loss.
train() {
  local run="$1-$2" island ranks=1 count
  configure "$1" "$2" >"${work}/${run}.textproto"
  count="$(sed -n 's/^ *min_islands: //p' "${work}/${run}.textproto")"
  if ((count == 1)); then ranks=2; fi
  start_coordinator "${run}" "${work}/${run}.textproto"
  for ((island = 1; island <= count; ++island)); do
    start "${run}-${island}" "${worker}" --coordinator "${address}" \
      --island "island-${island}" --ranks "${ranks}" --threads "${ranks}" \
      --data "${data[0]}"
  done
  await_islands
  read_status || fail_of "${run}-coordinator" "does not answer"
  stop_processes
  printf '%s %.6f\n' "$(figures "${run}" "${count}")" "$(evaluate "${run}")"
  rm -rf "${work:?}/${run}"
}

# Reads lines "NAME SEED FIGURE... LOSS"; prints the table, and the JSON to the
# file $1 unless that is empty. The losses are compared seed by seed.
report() {
  perl -MJSON::PP -e '
    my ($file, $figures, @names) = @ARGV;
    my @figures = map { [split /:/] } split " ", $figures;
    my @headings = map { $_->[1] =~ tr/_/ /r } @figures;
    my @widths = map { length > 8 ? length : 8 } @headings;
    my %runs;
    while (<STDIN>) {
      my ($name, $seed, @figures) = split;
      $runs{$name}{$seed} = \@figures;
    }
    my ($width) = sort { $b <=> $a } 14, map { length } @names;
    sub mean { my $sum = 0; $sum += $_ for @_; $sum / @_ }
    printf "%-*s", $width, "";
    printf " %*s", $widths[$_], $headings[$_] for 0 .. $#figures;
    printf "  %-24s %8s  %s\n", "validation loss by seed", "mean",
      "relative to $names[0], by seed";
    my %json;
    for my $name (grep { $runs{$_} } @names) {
      my $own = $runs{$name};
      my @seeds = sort { $a <=> $b } keys %$own;
      printf "%-*s", $width, $name;
      for my $i (0 .. $#figures) {
        my $mean = mean(map { $own->{$_}[$i] } @seeds);
        printf " %*.3f", $widths[$i], $mean;
        $json{$name}{$figures[$i][0]} = 0 + sprintf("%.4f", $mean);
      }
      my @loss = map { $own->{$_}[-1] } @seeds;
      my @relative = map { $own->{$_}[-1] / $runs{$names[0]}{$_}[-1] - 1 }
        grep { $runs{$names[0]}{$_} } @seeds;
      printf "  %-24s %8.4f  %s\n",
        join(" ", map { sprintf "%.4f", $_ } @loss), mean(@loss),
        join(" ", map { sprintf "%+.3f %%", 100 * $_ } @relative);
      $json{$name}{val_loss} = [map { 0 + $_ } @loss];
      $json{$name}{relative} = [map { 0 + sprintf("%.6f", $_) } @relative];
    }
    exit unless $file ne "";
    open my $out, ">", $file or die "$file: $!\n";
    print $out JSON::PP->new->canonical->pretty->encode(\%json);' "$1" \
    "${FIGURES}" "${chosen[@]}"
}

# left DONE TOTAL BEGAN: prints how long the rest will take at the speed since
# BEGAN.
left() {
  local seconds=$(((SECONDS - $3) * ($2 - $1) / $1))
  printf '%d of %d runs, %d:%02d left' "$1" "$2" \
    $((seconds / 60)) $((seconds % 60))
}

# Builds the programs, makes the text, and reads the arguments.
prepare() {
  parse_arguments "$@"
  cd "${ROOT}" || exit
  finish_on_exit
  deploy/install_deps.sh build quickstart
  say "" "Building..."
  build_programs
  work="$(mktemp -d "${TMPDIR:-/tmp}/causeway-${program}.XXXXXX")"
  : "${results:=${work}/results}"
  touch "${results}"
  if [[ -n "${text}" ]]; then data=("${text}"); else use_perl_manual; fi
  say ""
}

# measure NAME SEED [REST]: trains that variant, unless its result is there.
# Prints the result, and what REST prints.
measure() {
  if grep -q "^$1 $2 " "${results}"; then return; fi
  train "$1" "$2" >"${work}/figures"
  say "$1 $2 $(<"${work}/figures")" >>"${results}"
  say "$1 $2 $(<"${work}/figures")   $("${@:3}")"
}

# Trains what is missing, and reports.
compare() {
  local name seed began=${SECONDS} done=0 missing=()
  for ((seed = 1; seed <= seeds; ++seed)); do
    for name in "${chosen[@]}"; do
      if ! grep -q "^${name} ${seed} " "${results}"; then
        missing+=("${name} ${seed}")
      fi
    done
  done
  for run in ${missing[@]+"${missing[@]}"}; do
    done=$((done + 1))
    measure "${run% *}" "${run#* }" left "${done}" "${#missing[@]}" "${began}"
  done
  say ""
  report "${json}" <"${results}"
}

compare_losses() {
  prepare "$@"
  compare
}
