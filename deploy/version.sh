# shellcheck shell=bash
# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
#
# Sets VERSION, the programs' version. Sourced in the root of the source tree.

# shellcheck disable=SC2034  # for those who source this
VERSION="$(sed -n 's/.*kVersion\[\] = "\(.*\)".*/\1/p' common/version.h)"
readonly VERSION
