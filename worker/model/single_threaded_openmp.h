// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#ifndef WORKER_MODEL_SINGLE_THREADED_OPENMP_H_
#define WORKER_MODEL_SINGLE_THREADED_OPENMP_H_

// OpenMP's header belongs to a compiler, and clang's package has none.
extern "C" {
int omp_get_max_threads();
void omp_set_num_threads(int threads);
}

namespace causeway {

// Sets one OpenMP thread for the calling thread; the destructor restores the
// setting. oneDNN divides each call among OpenMP's threads, but our callers
// have already divided the work, so a second team would only compete for the
// cores.
class SingleThreadedOpenMp {
 public:
  SingleThreadedOpenMp() : threads_(omp_get_max_threads()) {
    if (threads_ != 1) omp_set_num_threads(1);
  }
  ~SingleThreadedOpenMp() {
    if (threads_ != 1) omp_set_num_threads(threads_);
  }
  SingleThreadedOpenMp(const SingleThreadedOpenMp&) = delete;
  SingleThreadedOpenMp& operator=(const SingleThreadedOpenMp&) = delete;

 private:
  const int threads_;
};

}  // namespace causeway

#endif  // WORKER_MODEL_SINGLE_THREADED_OPENMP_H_
