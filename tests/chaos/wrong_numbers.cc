// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// A library to preload (LD_PRELOAD) into the processes of an island. It
// imitates a processor that computes wrong numbers without an error: from some
// moment on, the matrix products of a process are wrong in one value.
//
//   CAUSEWAY_WRONG_NUMBERS  a file with a byte for each process of the island,
//                           which is not 0 while the process must be wrong
#include <dlfcn.h>
#include <dnnl.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

namespace {

// Returns the last --island_rank on this process's command line, or -1.
int OwnProcess() {
  std::ifstream file("/proc/self/cmdline");
  const std::string line{std::istreambuf_iterator<char>(file), {}};
  const std::string flag = "--island_rank=";
  const size_t found = line.rfind(flag);
  return found == std::string::npos
             ? -1
             : std::atoi(line.c_str() + found + flag.size());
}

// Returns the byte of this process, or null if there is none.
const volatile char* MapOwnByte() {
  const char* const path = std::getenv("CAUSEWAY_WRONG_NUMBERS");
  const int process = OwnProcess();
  if (path == nullptr || process < 0) return nullptr;
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return nullptr;
  void* const bytes =
      mmap(nullptr, process + 1, PROT_READ, MAP_SHARED, file, 0);
  close(file);
  return bytes == MAP_FAILED ? nullptr
                             : static_cast<const char*>(bytes) + process;
}

}  // namespace

extern "C" dnnl_status_t dnnl_sgemm(char transpose_a, char transpose_b,
                                    dnnl_dim_t m, dnnl_dim_t n, dnnl_dim_t k,
                                    float alpha, const float* a, dnnl_dim_t lda,
                                    const float* b, dnnl_dim_t ldb, float beta,
                                    float* c, dnnl_dim_t ldc) {
  static const auto next =
      reinterpret_cast<decltype(&dnnl_sgemm)>(dlsym(RTLD_NEXT, "dnnl_sgemm"));
  static const volatile char* const is_wrong = MapOwnByte();
  const dnnl_status_t status = next(transpose_a, transpose_b, m, n, k, alpha, a,
                                    lda, b, ldb, beta, c, ldc);
  if (is_wrong != nullptr && *is_wrong != 0) c[0] *= 1.001f;
  return status;
}
