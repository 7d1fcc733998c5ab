# shellcheck shell=bash
# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
#
# Completes the words of Causeway's programs for bash, from what they say of
# themselves when asked for --help.

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
  # Files, where nothing else is known.
  mapfile -t COMPREPLY < <(compgen -W "${words-}" -- "${word}" ||
    compgen -f -- "${word}")
}
complete -o filenames -F _causeway causeway causeway-coordinator causeway-worker
