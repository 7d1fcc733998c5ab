// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "cli/history/report.h"

#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "common/os/file.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "server/edge/testing/served_engine.h"

namespace causeway {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

// Returns the data embedded in a report.
json DataOf(const std::string& html) {
  constexpr absl::string_view kBegin =
      "<script type=\"application/json\" id=\"report\">";
  const size_t begin = html.find(std::string(kBegin)) + kBegin.size();
  return json::parse(html.substr(begin, html.find("</script>", begin) - begin),
                     nullptr, /*allow_exceptions=*/false);
}

TEST(ReportTest, TheFileNeedsNothingElse) {
  const std::string html = ReportHtml({});
  EXPECT_THAT(html, HasSubstr("<style>"));
  EXPECT_THAT(html, HasSubstr("default-src 'none'"));
  EXPECT_THAT(html, Not(HasSubstr("page.css\"")));
  EXPECT_THAT(html, Not(HasSubstr("page.js\"")));
  EXPECT_THAT(html, Not(HasSubstr("https://")));
  EXPECT_EQ(DataOf(html), json::object());
}

TEST(ReportTest, TextsOfTheRunCannotEndTheData) {
  constexpr char kHostile[] = "</script><script>alert(1)</script><!--";
  v1::PageData data;
  data.add_islands()->set_reason(kHostile);
  const std::string html = ReportHtml(data);
  EXPECT_EQ(DataOf(html)["islands"][0]["reason"], kHostile);
  EXPECT_THAT(html, Not(HasSubstr("<script>alert")));
}

TEST(ReportTest, ACoordinatorAndItsStateDirectoryGiveReports) {
  ServedEngine driver;
  ASSERT_OK(driver.Start(TestRunConfig()));
  ASSERT_OK(driver.Join("east").status());
  ASSERT_OK(driver.Serve());
  const std::string file = absl::StrCat(testing::TempDir(), "/report.html");
  const auto report = [&](const std::string& source) {
    std::ostringstream out;
    std::ostringstream err;
    EXPECT_EQ(RunCommandLine("causeway", "",
                             {ReportCommand([] { return absl::Now(); })},
                             {"report", "--out", file, source}, out, err),
              kExitOk)
        << err.str();
    return DataOf(ReadFile(file).value_or(""));
  };
  for (const std::string& source :
       {"--coordinator=" + driver.address(), driver.state_dir()}) {
    const json data = report(source);
    EXPECT_EQ(data["run"]["config"]["name"], "test") << source;
    EXPECT_EQ(data["islands"][0]["island_id"], "east") << source;
    EXPECT_EQ(data["events"].back()["kind"], "island_joined") << source;
  }
}

}  // namespace
}  // namespace causeway
