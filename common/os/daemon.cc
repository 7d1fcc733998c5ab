// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/os/daemon.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <new>
#include <string>
#include <system_error>
#include <vector>

#include "absl/flags/commandlineflag.h"
#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/reflection.h"
#include "absl/flags/usage.h"
#include "absl/flags/usage_config.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "common/clock.h"
#include "common/os/json_log.h"
#include "common/printable.h"
#include "common/trace.h"
#include "common/version.h"
#include "glog/logging.h"

namespace causeway {
namespace {

struct LogFormat {
  bool json = false;
};

bool AbslParseFlag(absl::string_view text, LogFormat* format,
                   std::string* error) {
  *error = "text and json are allowed";
  format->json = text == "json";
  return format->json || text == "text";
}

std::string AbslUnparseFlag(LogFormat format) {
  return format.json ? "json" : "text";
}

}  // namespace
}  // namespace causeway

ABSL_FLAG(
    causeway::LogFormat, log_format, {},
    "Format of the log on stderr: text, or json with an object per line.");
ABSL_FLAG(std::string, trace, "",
          "File to record the timing of each exchange's parts in, for Perfetto "
          "or chrome://tracing. At most 1 GiB. Empty: none.");

namespace causeway {
namespace {

sigset_t TerminationSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGUSR1);
  // A terminal that closes sends SIGHUP, which nohup asks to ignore.
  struct sigaction hangup;
  sigaction(SIGHUP, nullptr, &hangup);
  if (hangup.sa_handler != SIG_IGN) sigaddset(&signals, SIGHUP);
  return signals;
}

// Only this signal tells that a mapped file cannot be read. The read that
// failed is then repeated, and ends the process.
void ExplainBusError(int) {
  constexpr absl::string_view kText =
      "a file that this process has mapped, such as one of --data, was "
      "truncated or can no longer be read\n";
  [[maybe_unused]] const ssize_t written =
      write(STDERR_FILENO, kText.data(), kText.size());
}

// Writes how much of its address space this process uses, if that is limited.
// Takes no memory.
void SayAddressSpace() {
  rlimit limit;
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
    return;
  }
  char text[128] = "";
  const int file = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  if (file < 0) return;
  const ssize_t read_bytes = read(file, text, sizeof(text) - 1);
  close(file);
  if (read_bytes <= 0) return;
  // The first number counts pages.
  const auto used = static_cast<uint64_t>(std::strtoull(text, nullptr, 10)) *
                    static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const int length =
      std::snprintf(text, sizeof(text),
                    "this process uses %" PRIu64 " of the %" PRIu64
                    " MiB of address space that ulimit -v allows\n",
                    used >> 20, static_cast<uint64_t>(limit.rlim_cur) >> 20);
  [[maybe_unused]] const ssize_t written =
      write(STDERR_FILENO, text, static_cast<size_t>(length));
}

// The standard library throws if it gets no thread or memory, which would end
// the process without saying what to do. Neither is a bug, for which a core
// should be kept.
[[noreturn]] void ExplainLimits() {
  try {
    if (std::current_exception() != nullptr) throw;
  } catch (const std::bad_alloc&) {
    std::cerr << "there is no more memory for this process: raise the limit of "
                 "its container or unit, or ulimit -v\n";
    SayAddressSpace();
    std::_Exit(EXIT_FAILURE);
  } catch (const std::system_error& error) {
    if (error.code() == std::errc::resource_unavailable_try_again) {
      std::cerr << "the system starts no more threads for this process: raise "
                   "the limit of its container or unit (pids, TasksMax), or "
                   "ulimit -u or -v\n";
      SayAddressSpace();
      std::_Exit(EXIT_FAILURE);
    }
  } catch (...) {
  }
  std::abort();
}

// Libraries in C, such as gRPC, abort if they get no memory or thread.
void ExplainAbort(int) { SayAddressSpace(); }

absl::string_view ProgramName(absl::string_view path) {
  return path.substr(path.rfind('/') + 1);
}

// absl::ParseCommandLine answers these itself.
bool AsksForHelp(absl::string_view name) {
  return absl::StartsWith(name, "help") || name == "version" ||
         name == "only_check_args";
}

// Returns the problem with the flags, or "". After a mistake,
// absl::ParseCommandLine would end the process with exit code 1. Sets
// `has_help` if it will print the help.
std::string FlagProblem(absl::Span<char* const> words, bool& has_help) {
  for (size_t i = 0; i < words.size(); ++i) {
    absl::string_view word = words[i];
    if (word == "--") break;
    if (!absl::ConsumePrefix(&word, "-") || word.empty()) continue;
    absl::ConsumePrefix(&word, "-");
    const size_t equals = word.find('=');
    const bool has_value = equals != absl::string_view::npos;
    const absl::string_view name = word.substr(0, equals);
    absl::CommandLineFlag* const flag = absl::FindCommandLineFlag(name);
    if (flag == nullptr) {
      absl::string_view positive = name;
      const bool negates = !has_value && absl::ConsumePrefix(&positive, "no") &&
                           absl::FindCommandLineFlag(positive) != nullptr;
      has_help |= absl::StartsWith(name, "help") && !has_value;
      if (negates || AsksForHelp(name)) continue;
      return absl::StrCat("there is no flag --", name);
    }
    if (flag->IsOfType<bool>() && !has_value) continue;
    if (!has_value && ++i == words.size()) {
      return absl::StrCat("--", name, " needs a value");
    }
    const absl::string_view value =
        has_value ? word.substr(equals + 1) : absl::string_view(words[i]);
    std::string error;
    if (!flag->ParseFrom(value, &error)) {
      // Abseil says more about some types, after words like these.
      const size_t more = std::min(error.find("; "), error.size());
      return absl::StrCat("--", name, " is \"", value, "\"",
                          error.substr(more));
    }
  }
  return "";
}

}  // namespace

void StartDaemon(int argc, char** argv, absl::string_view usage,
                 absl::string_view main_file) {
  BlockTerminationSignals();
  struct sigaction explain = {};
  explain.sa_handler = ExplainBusError;
  explain.sa_flags = SA_RESETHAND;
  sigaction(SIGBUS, &explain, nullptr);
  explain.sa_handler = ExplainAbort;
  sigaction(SIGABRT, &explain, nullptr);
  std::set_terminate(ExplainLimits);
  // gRPC's own log repeats our errors in its words.
  setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0);
  // Debian's Abseil otherwise looks each lock up in a graph.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  FLAGS_logtostderr = true;
  google::InitGoogleLogging(argv[0]);
  absl::SetProgramUsageMessage(usage);
  absl::FlagsUsageConfig config;
  config.version_string = [program = std::string(ProgramName(argv[0]))] {
    return absl::StrCat(program, " ", kVersion, "\n");
  };
  config.contains_help_flags = [main_file](absl::string_view file) {
    return absl::EndsWith(file, main_file) ||
           absl::EndsWith(file, "common/os/daemon.cc");
  };
  config.contains_helpshort_flags = config.contains_help_flags;
  absl::SetFlagsUsageConfig(config);
  bool has_help = false;
  const std::string problem = FlagProblem(
      absl::MakeSpan(argv + 1, static_cast<size_t>(argc - 1)), has_help);
  if (!problem.empty()) {
    std::exit(UsageError(ProgramName(argv[0]), problem));
  }
  if (has_help) {
    // Abseil ends the process with 1 after the help.
    std::atexit([] {
      std::cout.flush();
      std::_Exit(EXIT_SUCCESS);
    });
  }
  const std::vector<char*> words = absl::ParseCommandLine(argc, argv);
  if (words.size() > 1) {
    std::exit(UsageError(ProgramName(argv[0]),
                         absl::StrCat("unknown argument \"", words[1], "\"")));
  }
  if (absl::GetFlag(FLAGS_log_format).json) LogAsJson();
  const std::string trace = absl::GetFlag(FLAGS_trace);
  if (!trace.empty()) {
    const absl::Status started =
        StartTrace(trace, ProgramName(argv[0]), SteadyWallClock());
    if (!started.ok()) {
      std::exit(UsageError(ProgramName(argv[0]),
                           absl::StrCat("--trace: ", started.message())));
    }
  }
}

int UsageError(absl::string_view program, absl::string_view problem) {
  std::cerr << program << ": " << problem << "; see --help\n";
  return 2;
}

int ExitCode(absl::string_view program, const absl::Status& status) {
  StopTrace();
  if (status.ok()) return 0;
  if (absl::GetFlag(FLAGS_log_format).json) {
    LOG(ERROR) << PrintableLines(status.message());
    return 1;
  }
  std::cerr << program << ": " << PrintableLines(status.message()) << "\n";
  return 1;
}

void BlockTerminationSignals() {
  const sigset_t signals = TerminationSignals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);
}

int AwaitTerminationSignal(absl::Duration timeout) {
  const sigset_t signals = TerminationSignals();
  const timespec wait = absl::ToTimespec(timeout);
  return std::max(0, sigtimedwait(&signals, nullptr, &wait));
}

}  // namespace causeway
