# shellcheck shell=bash
# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
#
# Completes commands and flags of Causeway's programs in bash, from their --help.

_causeway() {
  local word="${COMP_WORDS[COMP_CWORD]}" words
  if ((COMP_CWORD == 1)) && [[ "${1##*/}" == causeway && "${word}" != -* ]]; then
    words="$("$1" help 2>/dev/null | awk '/^  [a-z]/ { print $1 }') help"
  elif ((COMP_CWORD == 2)) && [[ "${1##*/}" == causeway && "${word}" != -* ]]; then
    # The usage of a command names its actions: "token list | revoke ID".
    words="$("$1" help "${COMP_WORDS[1]}" 2>/dev/null |
      awk '/^Usage: / { for (i = 4; i <= NF; i++)
        if ($i ~ /^[a-z]/ && (i == 4 || $(i - 1) == "|")) print $i }')"
  elif [[ "${word}" == -* && "${1##*/}" == causeway ]]; then
    words="$("$1" help "${COMP_WORDS[1]}" 2>/dev/null |
      awk '/^  --/ { print $1 }')"
  elif [[ "${word}" == -* ]]; then
    words="$("$1" --help 2>/dev/null | awk '/^    --/ { print $1 }')"
  fi
  # Without a matching word, complete file names.
  mapfile -t COMPREPLY < <(compgen -W "${words-}" -- "${word}" ||
    compgen -f -- "${word}")
}
complete -o filenames -F _causeway causeway causeway-coordinator causeway-worker
