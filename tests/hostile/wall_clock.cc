// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// A library for LD_PRELOAD that puts the wall clock of a process forward or
// back while it runs, as an administrator or NTP does to a machine's, and
// leaves its monotonic clock alone. $WALL_CLOCK_OFFSET names a file that begins
// with the offset, an int64_t in seconds.
#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdint>
#include <cstdlib>

namespace {

constexpr int64_t kNanosPerSecond = 1000 * 1000 * 1000;
// A wait for the wall clock reads the offset at this interval.
constexpr int64_t kLook = kNanosPerSecond / 20;

int64_t true_offset = 0;
volatile int64_t* offset = &true_offset;

__attribute__((constructor)) void MapOffset() {
  const char* const path = getenv("WALL_CLOCK_OFFSET");
  if (path == nullptr) return;
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return;
  void* const mapped =
      mmap(nullptr, sizeof(*offset), PROT_READ, MAP_SHARED, file, 0);
  if (mapped != MAP_FAILED) offset = static_cast<int64_t*>(mapped);
  close(file);
}

// Makes a system call. The C library's function is replaced below.
long Call(long number, long a, long b, long c, long d, long e, long f) {
  long result = number;
  register long r10 asm("r10") = d;
  register long r8 asm("r8") = e;
  register long r9 asm("r9") = f;
  asm volatile("syscall"
               : "+a"(result)
               : "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
               : "rcx", "r11", "memory");
  return result;
}

long WithErrno(long result) {
  if (result >= 0 || result < -4095) return result;
  errno = static_cast<int>(-result);
  return -1;
}

int64_t ToNanos(const timespec& time) {
  return time.tv_sec * kNanosPerSecond + time.tv_nsec;
}

int64_t Now(clockid_t clock) {
  timespec time;
  clock_gettime(clock, &time);
  return ToNanos(time);
}

}  // namespace

extern "C" {

int clock_gettime(clockid_t clock, timespec* time) noexcept {
  const long result =
      Call(SYS_clock_gettime, clock, reinterpret_cast<long>(time), 0, 0, 0, 0);
  if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) {
    time->tv_sec += *offset;
  }
  return static_cast<int>(WithErrno(result));
}

int gettimeofday(timeval* time, void*) noexcept {
  const int64_t now = Now(CLOCK_REALTIME);
  *time = {.tv_sec = now / kNanosPerSecond,
           .tv_usec = now % kNanosPerSecond / 1000};
  return 0;
}

time_t time(time_t* time) noexcept {
  const time_t now = Now(CLOCK_REALTIME) / kNanosPerSecond;
  if (time != nullptr) *time = now;
  return now;
}

// A futex wait may end at a time of the wall clock. The kernel does not know
// this process's clock, so such a wait is made of short ones.
long syscall(long number, ...) noexcept {
  va_list list;
  va_start(list, number);
  long words[6];
  for (long& word : words) word = va_arg(list, long);
  va_end(list);
  const auto call = [&](long operation, long timeout) {
    return Call(number, words[0], operation, words[2], timeout, words[4],
                words[5]);
  };
  if (number != SYS_futex || (words[1] & FUTEX_CMD_MASK) != FUTEX_WAIT_BITSET ||
      (words[1] & FUTEX_CLOCK_REALTIME) == 0 || words[3] == 0) {
    return WithErrno(call(words[1], words[3]));
  }
  const int64_t end = ToNanos(*reinterpret_cast<const timespec*>(words[3]));
  while (true) {
    const int64_t left = end - Now(CLOCK_REALTIME);
    if (left <= 0) return WithErrno(-ETIMEDOUT);
    const int64_t look = Now(CLOCK_MONOTONIC) + std::min(left, kLook);
    const timespec deadline = {.tv_sec = look / kNanosPerSecond,
                               .tv_nsec = look % kNanosPerSecond};
    const long result = call(words[1] & ~FUTEX_CLOCK_REALTIME,
                             reinterpret_cast<long>(&deadline));
    if (result != -ETIMEDOUT) return WithErrno(result);
  }
}

}  // extern "C"
