// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/page/assets.h"

namespace causeway {

// The included files are string literals, which BUILD makes.
absl::string_view PageHtml() {
  return
#include "server/page/page_html.inc"
      ;
}

absl::string_view PageCss() {
  return
#include "server/page/page_css.inc"
      ;
}

absl::string_view PageJs() {
  return
#include "server/page/page_js.inc"
      ;
}

}  // namespace causeway
