#!/bin/bash
# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
#
# Checks the house rules that a machine can check, one line per rule, with every
# place that breaks it. A rule whose tool is missing is skipped, and says so.

set -euo pipefail

usage() {
  cat <<'USAGE'
usage: tests/lint/style.sh [--counts FILE] [ROOT]

Checks the source tree ROOT (default: the one this script is in). Exits with 1
if a rule is broken.

  --counts FILE  write "passed N", "failed N" and "skipped N" to FILE
USAGE
}

counts=
root="$(dirname "${BASH_SOURCE[0]}")/../.."
while (($#)); do
  case "$1" in
    --counts)
      counts="$2"
      shift
      ;;
    -h | --help)
      usage
      exit 0
      ;;
    *) root="$1" ;;
  esac
  shift
done
cd "${root}"

# All files of the project: what git tracks or would track, or, without git,
# what is there.
all_files() {
  if [[ -e .git ]] && command -v git >/dev/null; then
    git -c safe.directory='*' ls-files --cached --others --exclude-standard
  else
    find . -type f -not -path './bazel-*' -not -path './.git/*' \
      -printf '%P\n'
  fi | sort | while IFS= read -r file; do
    if [[ -f "${file}" ]]; then printf '%s\n' "${file}"; fi
  done
}

mapfile -t files < <(all_files)
if ((${#files[@]} == 0)); then
  echo "style: no files in $(pwd)" >&2
  exit 1
fi

# Prints the files whose path matches the extended regular expression $1.
matching() { printf '%s\n' "${files[@]}" | grep -E "$1" || true; }

mapfile -t cpp < <(matching '\.(cc|h|cu|cuh)$')
mapfile -t python < <(matching '\.py$')
mapfile -t headers < <(matching '\.(h|cuh)$')
mapfile -t scripts < <(matching '\.(sh|bash|sbatch)$|^\.ci/run$')
mapfile -t commented < <(matching \
  '\.(cc|h|cu|cuh|proto|sh|bash|sbatch|pl|py|textproto)$|^\.ci/run$')
mapfile -t sources < <(matching \
  '\.(cc|h|cu|cuh|proto|sh|pl|py|bzl|textproto|md)$|(^|/)BUILD$|^\.ci/run$')

# Each rule prints one line per violation.

# Other releases of clang-format lay out some constructs differently.
clang_format() {
  local name
  for name in clang-format-14 clang-format; do
    if "${name}" --version 2>/dev/null | grep -q 'version 14\.'; then
      echo "${name}"
      return
    fi
  done
}

check_format() {
  ((${#cpp[@]} == 0)) || "$(clang_format)" --dry-run "${cpp[@]}" 2>&1 |
    grep -F 'code should be clang-formatted' | cut -d: -f1,2 | uniq || true
}

check_shellcheck() {
  ((${#scripts[@]} == 0)) || shellcheck -x -f gcc "${scripts[@]}" || true
}

check_length() {
  perl -ne 'if (eof) { print "$ARGV: $. lines\n" if $. > 600; close ARGV }' \
    -- "${sources[@]}"
}

# A line that only names something long (an include, a link) cannot be broken.
check_width() {
  local narrow=("${cpp[@]}" "${python[@]}")
  ((${#narrow[@]} == 0)) || perl -CSD -ne 'chomp;
    print "$ARGV:$.: " . length($_) . " columns\n"
      if length > 80 && !m{^#include |https?://|^// SPDX|R"};
    close ARGV if eof' -- "${narrow[@]}"
}

check_license() {
  local file
  for file in "${commented[@]}"; do
    if [[ "$(head -n 3 "${file}" | grep -c \
      -e 'SPDX-FileCopyrightText: The Causeway authors' \
      -e 'SPDX-License-Identifier: Apache-2.0')" -ne 2 ]]; then
      echo "${file}: the two SPDX lines are not at its top"
    fi
  done
}

# The brackets keep the patterns from matching this file.
check_leftovers() {
  grep -nE '\b(TO[D]O|FIX[M]E|HA[C]K|XX[X])\b|<<<<[<]<< |>>>>[>]>> ' \
    -- "${sources[@]}" || true
}

check_paths() {
  grep -nE '(^|[^A-Za-z0-9_.~})-])/(home|root|Users|workspac[e]|wor[k])/' \
    -- "${sources[@]}" || true
}

# Highway includes a -inl.h once for each instruction set; its guard is of a form
# of its own.
check_guards() {
  ((${#headers[@]} == 0)) || perl -e 'for my $file (@ARGV) {
    next if $file =~ /-inl\.h$/;
    (my $want = uc($file) . "_") =~ s/[^A-Z0-9]/_/g;
    open(my $in, "<", $file) or die "$file: $!\n";
    my $text = join "", <$in>;
    print "$file: the include guard is not $want\n"
      unless $text =~ /^#ifndef \Q$want\E\n#define \Q$want\E\n/m
        && $text =~ m{^#endif  // \Q$want\E\n?\z}m;
  }' -- "${headers[@]}"
}

# names_source BUILD FILE: whether a target lists FILE, or has it by its own name
# because it lists no others, or is the library that FILE tests (causeway.bzl).
names_source() {
  perl -e 'my ($build, $file) = @ARGV;
    open(my $in, "<", $build) or exit 1;
    my $text = join "", <$in>;
    exit 0 if $text =~ /"\Q$file\E"/;
    (my $name = $file) =~ s/\.\w+$//;
    exit 0 if $name =~ /^(.*)_test$/
      && $text =~ /^causeway_(cuda_)?cc_library\(\s*name = "\Q$1\E"/m;
    my $list = $file =~ /\.h$/ ? "hdrs" : "srcs";
    exit !($text =~ /name = "\Q$name\E"(.*?)\)\n/s && $1 !~ /\b$list = /);
  ' "$@"
}

# The layers of docs/architecture.md, the lowest first: a file includes none of a
# higher one, and coordinator and island include nothing of each other. The
# longest beginning of a path counts. Tests may include anything.
check_layers() {
  local tests='_(test|benchmark|fuzz|measurement)\.|(^|/)(testing|benchmarks)/'
  tests+='|^(tests|examples|third_party)/'
  printf '%s\n' "${cpp[@]}" | { grep -vE "^$|${tests}" || true; } |
    perl -e '
      my @layers = ("proto/", "common/", "quantization/", "outer_optimizer/",
        "worker/(replica|collective|optimizer|model|data)/",
        "server/rules/|worker/outer_loop/", "server/(storage|trust)/",
        "server/|worker/", "server/(edge|page)/",
        "cli/|server/(main|lead|follow)\\.");
      sub layer {
        my ($path, $found, $length) = (shift, -1, -1);
        for my $i (0 .. $#layers) {
          ($found, $length) = ($i, length $&)
            if $path =~ /^(?:$layers[$i])/ && length $& > $length;
        }
        return $found;
      }
      while (my $file = <STDIN>) {
        chomp $file;
        my $own = layer($file);
        open(my $in, "<", $file) or die "$file: $!\n";
        while (<$in>) {
          next unless my ($other) = m{^#include "([\w-]+/.*)"};
          print "$file:$.: includes $other, which is above it\n"
            if layer($other) > $own;
          print "$file:$.: includes $other of the other side\n"
            if "$file $other" =~ m{^server/.* worker/|^worker/.* server/};
        }
      }'
}

# A source that no target has is neither built nor tested.
check_build_targets() {
  local file folder
  while IFS= read -r file; do
    folder="$(dirname "${file}")"
    while [[ "${folder}" != . && ! -f "${folder}/BUILD" ]]; do
      folder="$(dirname "${folder}")"
    done
    if ! names_source "${folder}/BUILD" "${file#"${folder}/"}"; then
      echo "${file}: no target of ${folder}/BUILD names it"
    fi
  done < <(matching '\.(cc|h|cu|cuh|proto)$')
}

# Time and chance come in from main functions, or from callers of the library,
# so that the same inputs give the same run. Tests and benchmarks may look at
# the clock, and gRPC adapters must: a deadline is a point in time.
check_determinism() {
  printf '%s\n' "${cpp[@]}" |
    grep -vE '(^|[_/])(main|c_api)\.cc$|_(test|benchmark)\.cc$|^tests/|^common/(clock|testing/stopwatch)\.(cc|h)$' |
    xargs -r grep -L '^#include "grpcpp/' |
    xargs -r grep -nE \
      'absl::Now\(|std::random_device|_clock::now\(|\b(time|srand)\((0|NULL|nullptr)\)|\bgettimeofday\(|\brand\(\)' \
      -- || true
}

check_links() {
  mapfile -t pages < <(matching '\.md$')
  ((${#pages[@]} == 0)) || perl -e 'for my $file (@ARGV) {
    my ($folder) = $file =~ m{^(.*/)}; $folder //= "";
    open(my $in, "<", $file) or die "$file: $!\n";
    while (<$in>) {
      while (/\]\(([^)#\s]+)[^)]*\)/g) {
        next if $1 =~ m{^[a-z]+:};
        print "$file:$.: links to $1, which is not there\n"
          unless -e "$folder$1";
      }
    }
  }' -- "${pages[@]}"
}

# A comment is a sentence of its own. One that opens with these words is the
# rest of a sentence that the reader has to guess.
check_comment_openings() {
  ((${#commented[@]} == 0)) || perl -e 'for my $file (@ARGV) {
    my $mark = $file =~ /\.(cc|h|cu|cuh|proto)$/ ? "//" : "#";
    my $column = -1;
    open(my $in, "<", $file) or die "$file: $!\n";
    while (<$in>) {
      if (!m{^(|.*\s)$mark+ (\S.*)} || $2 =~ /^SPDX-/) {
        $column = -1;
        next;
      }
      my ($begin, $text) = (length $1, $2);
      print "$file:$.: the comment opens with \"$1\"\n"
        if $begin != $column && $text =~ /^(Of|Those|That which)\b(?! course)/;
      $column = $begin;
    }
  }' -- "${commented[@]}"
}

# Comments and documents may leave the extension of a file away, and folders that
# are clear from the context.
check_named_paths() {
  printf '%s\n' "${files[@]}" | perl -e '
    my (%known, %folder);
    while (my $path = <STDIN>) {
      chomp $path;
      my @parts = split m{/}, $path;
      my $file = pop @parts;
      $folder{$_} = 1 for @parts;
      for my $first (0 .. $#parts) {
        my $end = "";
        $known{$end .= $_} = 1, $end .= "/" for @parts[$first .. $#parts];
        $known{$end . $_} = 1 for $file, $file =~ s/(.)\..*/$1/r;
      }
    }
    my $name = "[A-Za-z0-9_.{},-]+";
    my $extension = "(?:\\{[a-z,]+\\}|cc|h|cuh?|proto|py|sh|pl|md|bzl|svg)";
    for my $file (@ARGV) {
      my $mark = $file =~ /\.(cc|h|cu|cuh|proto)$/ ? "(?:^|\\s)// "
               : $file =~ /\.md$/ ? "" : "(?:^|\\s)# ";
      open(my $in, "<", $file) or die "$file: $!\n";
      while (<$in>) {
        next if !s/^.*?$mark//;
        s{\w+://\S+}{}g;
        for my $found (
            m@(?<![\w/.~\$}>-])((?:$name/)+$name\.$extension)(?![\w/])@g,
            m@`((?:$name/)+(?:$name)?)`@g) {
          next if !$folder{$found =~ s{/.*}{}r} || $found =~ /NAME|\.\.\./;
          for my $path (glob $found =~ s{/$}{}r) {
            $path =~ s/(\.grpc)?\.pb\.h$/.proto/;
            print "$file:$.: names $found, which is not there\n"
              unless $known{$path};
          }
        }
      }
    }' -- "${sources[@]}"
}

passed=0
failed=0
skipped=0

# rule NAME FUNCTION [TOOL]: TOOL empty means that its tool is missing.
rule() {
  local violations
  if (($# == 3)) && [[ -z "$3" ]]; then
    printf 'skipped  %s (its tool is not installed)\n' "$1"
    skipped=$((skipped + 1))
    return
  fi
  violations="$("$2")"
  if [[ -z "${violations}" ]]; then
    printf 'ok       %s\n' "$1"
    passed=$((passed + 1))
  else
    printf 'FAILED   %s\n%s\n' "$1" "${violations//$'\n'/$'\n'           }" |
      sed '2s/^/           /'
    failed=$((failed + 1))
  fi
}

rule "C++ is laid out as clang-format 14 does it" check_format "$(clang_format)"
rule "no line of C++ or Python is longer than 80 columns" check_width
rule "no source is longer than 600 lines" check_length
rule "every source has its license lines" check_license
rule "no unfinished work is left" check_leftovers
rule "no path of one machine is named" check_paths
rule "include guards match their paths" check_guards
rule "every C++ and proto file is in a target" check_build_targets
rule "includes point downward only" check_layers
rule "clocks and chance come in from outside" check_determinism
rule "links between documents lead somewhere" check_links
rule "comments open with a sentence" check_comment_openings
rule "paths that comments and documents name exist" check_named_paths
rule "shell scripts pass shellcheck" check_shellcheck \
  "$(command -v shellcheck || true)"

if [[ -n "${counts}" ]]; then
  printf 'passed %d\nfailed %d\nskipped %d\n' \
    "${passed}" "${failed}" "${skipped}" >"${counts}"
fi
((failed == 0))
