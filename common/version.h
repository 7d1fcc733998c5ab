// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#ifndef COMMON_VERSION_H_
#define COMMON_VERSION_H_

namespace causeway {

// The version of the programs, packages and wheels. deploy/version.sh reads it
// here.
inline constexpr char kVersion[] = "0.1";

}  // namespace causeway

#endif  // COMMON_VERSION_H_
