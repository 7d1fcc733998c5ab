// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "cli/command_line.h"

#include <cstdint>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/testing/status_matchers.h"
#include "common/version.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class FlagSetTest : public testing::Test {
 protected:
  FlagSetTest() {
    flags_.Add("json", "", "Prints JSON.", &json_);
    flags_.Add("count", "N", "How many.", &count_);
    flags_.Add("rate", "X", "How fast.", &rate_);
    flags_.Add("name", "NAME", "Who.", &name_);
    flags_.Add("text", "FILE...", "What.", &text_);
  }

  bool json_ = false;
  uint64_t count_ = 7;
  double rate_ = 0.5;
  std::string name_;
  std::vector<std::string> text_;
  FlagSet flags_;
};

TEST_F(FlagSetTest, ParsesEveryForm) {
  EXPECT_THAT(
      flags_.Parse({"first", "--count", "9", "--json", "--rate=-1.5e3",
                    "--name=a=b", "second", "--text", "x", "y", "--text=z",
                    "third", "--", "--json=no"}),
      IsOkAndHolds(ElementsAre("first", "second", "third", "--json=no")));
  EXPECT_TRUE(json_);
  EXPECT_EQ(count_, 9);
  EXPECT_EQ(rate_, -1500);
  EXPECT_EQ(name_, "a=b");
  EXPECT_THAT(text_, ElementsAre("x", "y", "z"));
}

TEST_F(FlagSetTest, LeavesDefaults) {
  EXPECT_THAT(flags_.Parse({}), IsOkAndHolds(IsEmpty()));
  EXPECT_FALSE(json_);
  EXPECT_EQ(count_, 7);
}

TEST_F(FlagSetTest, SaysWhatIsWrong) {
  EXPECT_THAT(flags_.Parse({"--cuont", "9"}),
              IsInvalidArgument("no flag --cuont; there are: --json, --count"));
  EXPECT_THAT(flags_.Parse({"--count"}), IsInvalidArgument("--count needs N"));
  EXPECT_THAT(flags_.Parse({"--count", "--json"}),
              IsInvalidArgument("--count needs N"));
  EXPECT_THAT(
      flags_.Parse({"--count", "-1"}),
      IsInvalidArgument("--count is \"-1\"; allowed: a whole number from 0"));
  EXPECT_THAT(flags_.Parse({"--rate=fast"}),
              IsInvalidArgument("allowed: a number"));
  EXPECT_THAT(flags_.Parse({"--json=maybe"}),
              IsInvalidArgument("true or false"));
  EXPECT_THAT(flags_.Parse({"--text"}),
              IsInvalidArgument("--text needs FILE..."));
}

TEST_F(FlagSetTest, ANumberOf32BitsIsNotCutOff) {
  uint32_t uses = 1;
  flags_.Add("uses", "N", "Uses.", &uses);
  EXPECT_OK(flags_.Parse({"--uses", "4294967295"}));
  EXPECT_EQ(uses, 4294967295);
  EXPECT_THAT(flags_.Parse({"--uses", "4294967297"}),
              IsInvalidArgument("from 0 to 2^32 - 1"));
}

TEST_F(FlagSetTest, ARequiredFlagMustBeGiven) {
  std::string out;
  flags_.AddRequired("out", "FILE", "Where to.", &out);
  EXPECT_THAT(flags_.Parse({"--json"}),
              IsInvalidArgument("--out FILE is missing"));
  EXPECT_OK(flags_.Parse({"--out", "x"}));
  EXPECT_EQ(out, "x");
}

class CommandLineTest : public testing::Test {
 protected:
  CommandLineTest() : commands_(2) {
    commands_[0].name = "greet";
    commands_[0].arguments = "NAME";
    commands_[0].summary = "Greets somebody.";
    commands_[0].details = "At length.";
    commands_[0].flags.Add("times", "N", "How often.", &times_);
    commands_[0].run = [this](const Invocation& call) {
      for (uint64_t i = 0; i < times_; ++i) {
        call.out << "hello " << call.arguments[0] << "\n";
      }
      return absl::OkStatus();
    };
    commands_[1].name = "fail";
    commands_[1].arguments = "WORD...";
    commands_[1].summary = "Fails.";
    commands_[1].run = [](const Invocation& call) {
      return absl::NotFoundError(absl::StrJoin(call.arguments, "+"));
    };
  }

  int Run(const std::vector<std::string>& words) {
    out_.str("");
    err_.str("");
    return RunCommandLine("tool", "A tool.", commands_, words, out_, err_);
  }

  uint64_t times_ = 1;
  std::vector<Command> commands_;
  std::ostringstream out_;
  std::ostringstream err_;
};

TEST_F(CommandLineTest, RunsTheCommand) {
  EXPECT_EQ(Run({"greet", "--times", "2", "you"}), kExitOk);
  EXPECT_EQ(out_.str(), "hello you\nhello you\n");
  EXPECT_EQ(err_.str(), "");
}

TEST_F(CommandLineTest, ErrorsOfTheCommandAreFailures) {
  EXPECT_EQ(Run({"fail", "no", "such", "thing"}), kExitFailure);
  EXPECT_EQ(out_.str(), "");
  EXPECT_EQ(err_.str(), "tool fail: no+such+thing\n");
}

TEST_F(CommandLineTest, ACommandMayFindWrongUse) {
  absl::Status result;
  commands_[1].run = [&](const Invocation&) { return result; };
  result = UsageError("--uses is 0");
  EXPECT_EQ(Run({"fail", "now"}), kExitUsage);
  EXPECT_EQ(err_.str(), "tool fail: --uses is 0\nSee `tool fail --help`.\n");
  // A server or a file may be wrong, too.
  result = absl::InvalidArgumentError("no map");
  EXPECT_EQ(Run({"fail", "now"}), kExitFailure);
  result = AsUsageError(result);
  EXPECT_EQ(Run({"fail", "now"}), kExitUsage);
  result = AsUsageError(absl::NotFoundError("no map"));
  EXPECT_EQ(Run({"fail", "now"}), kExitFailure);
}

TEST_F(CommandLineTest, NonsenseIsAUsageError) {
  EXPECT_EQ(Run({}), kExitUsage);
  EXPECT_THAT(err_.str(), HasSubstr("Usage: tool COMMAND"));
  EXPECT_EQ(Run({"gret"}), kExitUsage);
  EXPECT_THAT(err_.str(), HasSubstr("no command \"gret\""));
  EXPECT_EQ(Run({"greet"}), kExitUsage);
  EXPECT_THAT(err_.str(), HasSubstr("tool greet: NAME is missing"));
  EXPECT_EQ(Run({"greet", "a", "b"}), kExitUsage);
  EXPECT_THAT(err_.str(), HasSubstr("\"b\" is one word too many"));
  EXPECT_EQ(Run({"fail"}), kExitUsage);
  EXPECT_THAT(err_.str(), HasSubstr("WORD... is missing"));
  EXPECT_EQ(Run({"greet", "a", "--time", "2"}), kExitUsage);
  EXPECT_THAT(err_.str(), HasSubstr("there is no flag --time"));
  EXPECT_EQ(out_.str(), "");
}

TEST_F(CommandLineTest, ACommandMayHaveSeveralForms) {
  commands_[1].arguments = "list | drop ID";
  EXPECT_EQ(Run({"fail", "list"}), kExitFailure);
  EXPECT_EQ(Run({"fail", "drop", "7"}), kExitFailure);
  EXPECT_EQ(err_.str(), "tool fail: drop+7\n");
  EXPECT_EQ(Run({"fail", "keep"}), kExitUsage);
  EXPECT_THAT(err_.str(), HasSubstr("fail takes `list` or `drop ID`"));
  EXPECT_EQ(Run({"fail"}), kExitUsage);
  EXPECT_EQ(Run({"fail", "list", "7"}), kExitUsage);
  EXPECT_THAT(err_.str(), HasSubstr("\"7\" is one word too many"));
  EXPECT_EQ(Run({"fail", "drop"}), kExitUsage);
  EXPECT_THAT(err_.str(), HasSubstr("ID is missing"));
}

TEST_F(CommandLineTest, HelpIsOnRequestAndComplete) {
  const std::string help =
      "A tool.\n"
      "\n"
      "Usage: tool COMMAND [ARGUMENTS] [--flags]\n"
      "\n"
      "  greet  Greets somebody.\n"
      "  fail   Fails.\n"
      "\n"
      "`tool COMMAND --help` says more about a command.\n";
  EXPECT_EQ(Run({"--help"}), kExitOk);
  EXPECT_EQ(out_.str(), help);
  EXPECT_EQ(Run({"help"}), kExitOk);
  EXPECT_EQ(out_.str(), help);
  EXPECT_EQ(Run({"--version"}), kExitOk);
  EXPECT_EQ(out_.str(), absl::StrCat("tool ", kVersion, "\n"));

  const std::string greet_help =
      "Greets somebody.\n"
      "\n"
      "Usage: tool greet NAME [--flags]\n"
      "\n"
      "At length.\n"
      "\n"
      "Flags:\n"
      "  --times N\n"
      "      How often. Default: 1.\n"
      "  --help\n"
      "      Shows this text.\n";
  EXPECT_EQ(Run({"greet", "--times", "3", "--help"}), kExitOk);
  EXPECT_EQ(out_.str(), greet_help);
  EXPECT_EQ(Run({"help", "greet"}), kExitOk);
  EXPECT_EQ(out_.str(), greet_help);
  EXPECT_EQ(Run({"help", "nothing"}), kExitUsage);
}

TEST_F(CommandLineTest, LongHelpIsWrapped) {
  commands_[0].summary = std::string(60, 'a') + " " + std::string(30, 'b');
  EXPECT_EQ(Run({"greet", "--help"}), kExitOk);
  EXPECT_THAT(out_.str(), testing::StartsWith(std::string(60, 'a') + "\n" +
                                              std::string(30, 'b') + "\n"));
}

TEST_F(FlagSetTest, AListEndsWhereTheArgumentsBegin) {
  EXPECT_THAT(flags_.Parse({"--text", "x", "--", "y"}),
              IsOkAndHolds(ElementsAre("y")));
  EXPECT_THAT(text_, ElementsAre("x"));
}

TEST_F(FlagSetTest, HelpTellsDefaultsAndWhatIsRequired) {
  std::string out;
  FlagSet flags;
  bool on = true;
  flags.Add("json", "", "Prints JSON.", &json_);
  flags.Add("on", "", "Is on.", &on);
  flags.AddRequired("out", "FILE", "Where to.", &out);
  std::ostringstream help;
  flags.PrintHelp(help);
  EXPECT_EQ(help.str(),
            "  --json\n      Prints JSON.\n"
            "  --on\n      Is on. Default: true.\n"
            "  --out FILE\n      Where to. Required.\n"
            "  --help\n      Shows this text.\n");
}

TEST_F(CommandLineTest, ALineOfHelpMayBeFull) {
  commands_[0].summary = std::string(60, 'a') + " " + std::string(17, 'b');
  EXPECT_EQ(Run({"greet", "--help"}), kExitOk);
  EXPECT_THAT(out_.str(), testing::StartsWith(commands_[0].summary + "\n"));
  commands_[0].summary += "b";
  EXPECT_EQ(Run({"greet", "--help"}), kExitOk);
  EXPECT_THAT(out_.str(), testing::StartsWith(std::string(60, 'a') + "\n"));
  EXPECT_EQ(Run({"-h"}), kExitOk);
  EXPECT_THAT(out_.str(), HasSubstr("Usage: tool COMMAND"));
}

}  // namespace
}  // namespace causeway
