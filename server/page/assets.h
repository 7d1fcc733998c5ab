// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The files of the page on which a run is watched. They are part of the
// program; nothing is loaded from elsewhere.
#ifndef SERVER_PAGE_ASSETS_H_
#define SERVER_PAGE_ASSETS_H_

#include "absl/strings/string_view.h"

namespace causeway {

// The page. It loads page.css and page.js from its own folder.
absl::string_view PageHtml();
absl::string_view PageCss();
// The script. It reads api/status, api/history and api/events
// (server/page/page_handlers.h), or the page's element "report" if it has one.
absl::string_view PageJs();

}  // namespace causeway

#endif  // SERVER_PAGE_ASSETS_H_
