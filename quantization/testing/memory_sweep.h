// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// A sweep over memory that does nothing but read, for benchmarks of the codecs.
#ifndef QUANTIZATION_TESTING_MEMORY_SWEEP_H_
#define QUANTIZATION_TESTING_MEMORY_SWEEP_H_

#include <cstddef>

namespace causeway {

// Returns the largest magnitude of `values`, which have no NaN, or 0 if there
// are none. Reads them once, with the prefetch distance of the kernels.
float LargestMagnitude(const float* values, size_t count);

}  // namespace causeway

#endif  // QUANTIZATION_TESTING_MEMORY_SWEEP_H_
