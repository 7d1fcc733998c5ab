// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// A measure for benchmarks of the codecs: reading memory and nothing else.
#ifndef QUANTIZATION_TESTING_MEMORY_SWEEP_H_
#define QUANTIZATION_TESTING_MEMORY_SWEEP_H_

#include <cstddef>

namespace causeway {

// The largest magnitude of `values`, which have no NaN, read once with the
// prefetch distance of the kernels. 0 if there are none.
float LargestMagnitude(const float* values, size_t count);

}  // namespace causeway

#endif  // QUANTIZATION_TESTING_MEMORY_SWEEP_H_
