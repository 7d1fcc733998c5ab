// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The page on which a run is watched, as files of a browser. They are part of
// the program; nothing is loaded from elsewhere.
#ifndef SERVER_PAGE_ASSETS_H_
#define SERVER_PAGE_ASSETS_H_

#include "absl/strings/string_view.h"

namespace causeway {

// The page. It loads page.css and page.js from its own folder.
absl::string_view PageHtml();
absl::string_view PageCss();
// Asks api/status, api/history and api/events (server/page/page_handlers.h),
// or, if the page has an element "report", shows the data in it.
absl::string_view PageJs();

}  // namespace causeway

#endif  // SERVER_PAGE_ASSETS_H_
