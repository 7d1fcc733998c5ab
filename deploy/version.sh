# shellcheck shell=bash
# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
#
# To be sourced in the root of the source tree: sets VERSION to that of the
# programs.

# shellcheck disable=SC2034  # for those who source this
VERSION="$(sed -n 's/.*kVersion\[\] = "\(.*\)".*/\1/p' common/version.h)"
readonly VERSION
