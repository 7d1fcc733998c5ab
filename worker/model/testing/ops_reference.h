// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The operations of ops.h as plain scalar loops over T (float or double): the
// definition that backends are tested against. ops_reference_test.cc checks the
// double version of each backward pass against finite differences of its
// forward pass. Shapes, accumulation and aliasing are as in ops.h. Slow; for
// tests.
#ifndef WORKER_MODEL_TESTING_OPS_REFERENCE_H_
#define WORKER_MODEL_TESTING_OPS_REFERENCE_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "worker/model/ops.h"

namespace causeway::reference {

template <typename T>
void Embedding(const int32_t* tokens, const T* table, int64_t rows,
               int64_t width, T* output) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t i = 0; i < width; ++i) {
      output[r * width + i] = table[tokens[r] * width + i];
    }
  }
}

template <typename T>
void EmbeddingBackward(const int32_t* tokens, const T* d_output, int64_t rows,
                       int64_t width, T* d_table) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t i = 0; i < width; ++i) {
      d_table[tokens[r] * width + i] += d_output[r * width + i];
    }
  }
}

template <typename T>
void RmsNorm(const T* x, const T* delta, const T* gain, int64_t rows,
             int64_t width, T epsilon, T* sum, T* inverse_rms, T* normalized) {
  for (int64_t r = 0; r < rows; ++r, x += width, normalized += width) {
    const T* row = x;
    if (delta != nullptr) {
      for (int64_t i = 0; i < width; ++i) {
        sum[r * width + i] = x[i] + delta[r * width + i];
      }
      row = sum + r * width;
    }
    T squares = 0;
    for (int64_t i = 0; i < width; ++i) squares += row[i] * row[i];
    inverse_rms[r] = 1 / std::sqrt(squares / static_cast<T>(width) + epsilon);
    for (int64_t i = 0; i < width; ++i) {
      normalized[i] = row[i] * inverse_rms[r] * gain[i];
    }
  }
}

// With y_i = g_i x_i s and s = (mean(x^2) + epsilon)^(-1/2):
//   dL/dx_i = s (g_i dy_i - x_i s^2 mean_j(g_j dy_j x_j)).
template <typename T>
void RmsNormBackward(const T* d_normalized, const T* x, const T* inverse_rms,
                     const T* gain, int64_t rows, int64_t width,
                     bool accumulate, T* d_x, T* d_gain, T* normalized) {
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t row = r * width;
    const T s = inverse_rms[r];
    T dot = 0;
    for (int64_t i = 0; i < width; ++i) {
      dot += gain[i] * d_normalized[row + i] * x[row + i];
      d_gain[i] += d_normalized[row + i] * x[row + i] * s;
      normalized[row + i] = x[row + i] * s * gain[i];
    }
    const T mean = dot / static_cast<T>(width);
    for (int64_t i = 0; i < width; ++i) {
      const T d =
          s * (gain[i] * d_normalized[row + i] - x[row + i] * s * s * mean);
      d_x[row + i] = accumulate ? d_x[row + i] + d : d;
    }
  }
}

template <typename T>
void Linear(const T* input, const T* weight, const LinearShape& shape,
            T* output) {
  for (int64_t r = 0; r < shape.rows; ++r) {
    for (int64_t o = 0; o < shape.out; ++o) {
      T sum = 0;
      for (int64_t i = 0; i < shape.in; ++i) {
        sum += input[r * shape.in + i] * weight[o * shape.in + i];
      }
      output[r * shape.out + o] = sum;
    }
  }
}

template <typename T>
void LinearInputGradient(const T* d_output, const T* weight,
                         const LinearShape& shape, T* d_input) {
  for (int64_t r = 0; r < shape.rows; ++r) {
    for (int64_t i = 0; i < shape.in; ++i) {
      T sum = 0;
      for (int64_t o = 0; o < shape.out; ++o) {
        sum += d_output[r * shape.out + o] * weight[o * shape.in + i];
      }
      d_input[r * shape.in + i] = sum;
    }
  }
}

template <typename T>
void LinearWeightGradient(const T* d_output, const T* input,
                          const LinearShape& shape, T* d_weight) {
  for (int64_t o = 0; o < shape.out; ++o) {
    for (int64_t i = 0; i < shape.in; ++i) {
      T sum = 0;
      for (int64_t r = 0; r < shape.rows; ++r) {
        sum += d_output[r * shape.out + o] * input[r * shape.in + i];
      }
      d_weight[o * shape.in + i] += sum;
    }
  }
}

template <typename T>
void AddBias(const T* bias, int64_t rows, int64_t width, T* values) {
  for (int64_t i = 0; i < rows * width; ++i) values[i] += bias[i % width];
}

template <typename T>
void AddBiasBackward(const T* d_values, int64_t rows, int64_t width,
                     T* d_bias) {
  for (int64_t i = 0; i < rows * width; ++i) d_bias[i % width] += d_values[i];
}

template <typename T>
void QkNorm(const QkNormShape& shape, const T* gains, T epsilon, T* qkv, T* raw,
            T* inverse_rms) {
  for (int64_t r = 0; r < shape.rows; ++r) {
    T* row = qkv + r * shape.row_width;
    for (int64_t g = 0; g < shape.groups(); ++g) {
      const bool is_query = g < shape.query.groups;
      const int64_t width = is_query ? shape.query.width : shape.key.width;
      std::copy_n(row, width, raw);
      RmsNorm<T>(raw, nullptr, gains + (is_query ? 0 : shape.query.width), 1,
                 width, epsilon, nullptr, inverse_rms, row);
      row += width;
      raw += width;
      ++inverse_rms;
    }
  }
}

template <typename T>
void QkNormBackward(const QkNormShape& shape, const T* raw,
                    const T* inverse_rms, const T* gains, T* d_qkv,
                    T* d_gains) {
  std::vector<T> again(static_cast<size_t>(shape.qk_width));
  for (int64_t r = 0; r < shape.rows; ++r) {
    T* row = d_qkv + r * shape.row_width;
    for (int64_t g = 0; g < shape.groups(); ++g) {
      const bool is_query = g < shape.query.groups;
      const int64_t width = is_query ? shape.query.width : shape.key.width;
      const int64_t gain = is_query ? 0 : shape.query.width;
      const std::vector<T> d_normalized(row, row + width);
      RmsNormBackward(d_normalized.data(), raw, inverse_rms, gains + gain, 1,
                      width, /*accumulate=*/false, row, d_gains + gain,
                      again.data());
      row += width;
      raw += width;
      ++inverse_rms;
    }
  }
}

template <typename T>
void Rope(const AttentionShape& shape, const T* cosine, const T* sine,
          RopeDirection direction, T* qkv) {
  const int64_t half = shape.head_dim / 2;
  for (int64_t r = 0; r < shape.rows(); ++r) {
    const int64_t position = r % shape.length;
    for (int64_t h = 0; h < shape.qk_heads(); ++h) {
      T* head = qkv + r * shape.qkv_width() + h * shape.head_dim;
      for (int64_t i = 0; i < half; ++i) {
        const T c = cosine[position * half + i];
        const T s = direction == RopeDirection::kForward
                        ? sine[position * half + i]
                        : -sine[position * half + i];
        const T a = head[i];
        const T b = head[i + half];
        head[i] = a * c - b * s;
        head[i + half] = b * c + a * s;
      }
    }
  }
}

// The offsets of one (sequence, query head) in the fused projection.
struct HeadPlace {
  HeadPlace(const AttentionShape& shape, int64_t sequence, int64_t head)
      : stride(shape.qkv_width()),
        query(sequence * shape.length * stride + head * shape.head_dim),
        key(query - head * shape.head_dim + shape.query_width() +
            head / (shape.heads / shape.kv_heads) * shape.head_dim),
        value(key + shape.kv_width()),
        output_stride(shape.query_width()),
        output(sequence * shape.length * output_stride + head * shape.head_dim),
        log_sum_exp((sequence * shape.heads + head) * shape.length) {}

  int64_t stride;
  int64_t query;
  int64_t key;
  int64_t value;
  int64_t output_stride;
  int64_t output;
  int64_t log_sum_exp;
};

inline int64_t FirstKey(const AttentionShape& shape, int64_t sequence,
                        int64_t row) {
  return shape.document_begin == nullptr
             ? 0
             : shape.document_begin[sequence * shape.length + row];
}

template <typename T>
T Dot(const T* a, const T* b, int64_t size) {
  T sum = 0;
  for (int64_t i = 0; i < size; ++i) sum += a[i] * b[i];
  return sum;
}

template <typename T>
void Attention(const AttentionShape& shape, const T* qkv, T* output,
               T* log_sum_exp) {
  const T scale = 1 / std::sqrt(static_cast<T>(shape.head_dim));
  std::vector<T> scores(static_cast<size_t>(shape.length));
  for (int64_t sequence = 0; sequence < shape.batch; ++sequence) {
    for (int64_t h = 0; h < shape.heads; ++h) {
      const HeadPlace at(shape, sequence, h);
      for (int64_t r = 0; r < shape.length; ++r) {
        T max = -HUGE_VAL;
        const int64_t begin = FirstKey(shape, sequence, r);
        for (int64_t s = begin; s <= r; ++s) {
          scores[s] = scale * Dot(qkv + at.query + r * at.stride,
                                  qkv + at.key + s * at.stride, shape.head_dim);
          max = std::max(max, scores[s]);
        }
        T sum = 0;
        for (int64_t s = begin; s <= r; ++s) sum += std::exp(scores[s] - max);
        log_sum_exp[at.log_sum_exp + r] = max + std::log(sum);
        for (int64_t i = 0; i < shape.head_dim; ++i) {
          T mean = 0;
          for (int64_t s = begin; s <= r; ++s) {
            mean += std::exp(scores[s] - max) / sum *
                    qkv[at.value + s * at.stride + i];
          }
          output[at.output + r * at.output_stride + i] = mean;
        }
      }
    }
  }
}

// With P = softmax(S), O = P V:  dV = P^T dO,  dP = dO V^T,
// dS = P (dP - rowsum(dO O)),  dQ = scale dS K,  dK = scale dS^T Q.
template <typename T>
void AttentionBackward(const AttentionShape& shape, const T* qkv,
                       const T* output, const T* log_sum_exp, const T* d_output,
                       T* d_qkv) {
  const T scale = 1 / std::sqrt(static_cast<T>(shape.head_dim));
  std::fill(d_qkv, d_qkv + shape.rows() * shape.qkv_width(), T{0});
  for (int64_t sequence = 0; sequence < shape.batch; ++sequence) {
    for (int64_t h = 0; h < shape.heads; ++h) {
      const HeadPlace at(shape, sequence, h);
      for (int64_t r = 0; r < shape.length; ++r) {
        const T* query = qkv + at.query + r * at.stride;
        const T* d_out = d_output + at.output + r * at.output_stride;
        const T mean = Dot(d_out, output + at.output + r * at.output_stride,
                           shape.head_dim);
        for (int64_t s = FirstKey(shape, sequence, r); s <= r; ++s) {
          const T* key = qkv + at.key + s * at.stride;
          const T* value = qkv + at.value + s * at.stride;
          const T p = std::exp(scale * Dot(query, key, shape.head_dim) -
                               log_sum_exp[at.log_sum_exp + r]);
          const T d_score =
              scale * p * (Dot(d_out, value, shape.head_dim) - mean);
          for (int64_t i = 0; i < shape.head_dim; ++i) {
            d_qkv[at.query + r * at.stride + i] += d_score * key[i];
            d_qkv[at.key + s * at.stride + i] += d_score * query[i];
            d_qkv[at.value + s * at.stride + i] += p * d_out[i];
          }
        }
      }
    }
  }
}

template <typename T>
void SwiGlu(const T* gate_up, int64_t rows, int64_t width, T* output) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t i = 0; i < width; ++i) {
      const T gate = gate_up[2 * r * width + i];
      const T up = gate_up[(2 * r + 1) * width + i];
      output[r * width + i] = gate / (1 + std::exp(-gate)) * up;
    }
  }
}

template <typename T>
void SwiGluBackward(const T* gate_up, const T* d_output, int64_t rows,
                    int64_t width, T* d_gate_up, T* output) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t i = 0; i < width; ++i) {
      const T gate = gate_up[2 * r * width + i];
      const T up = gate_up[(2 * r + 1) * width + i];
      const T sigmoid = 1 / (1 + std::exp(-gate));
      const T d = d_output[r * width + i];
      d_gate_up[2 * r * width + i] =
          d * up * sigmoid * (1 + gate * (1 - sigmoid));
      d_gate_up[(2 * r + 1) * width + i] = d * gate * sigmoid;
      output[r * width + i] = gate * sigmoid * up;
    }
  }
}

template <typename T>
void CrossEntropyWithGradient(const int32_t* targets, int64_t rows,
                              int64_t vocab_size, T scale, T* logits,
                              T* losses) {
  for (int64_t r = 0; r < rows; ++r, logits += vocab_size) {
    const T max = *std::max_element(logits, logits + vocab_size);
    T sum = 0;
    for (int64_t i = 0; i < vocab_size; ++i) sum += std::exp(logits[i] - max);
    const bool counts = targets[r] >= 0;
    losses[r] = counts ? max + std::log(sum) - logits[targets[r]] : 0;
    for (int64_t i = 0; i < vocab_size; ++i) {
      const T p = std::exp(logits[i] - max) / sum;
      logits[i] = counts ? scale * (p - (i == targets[r] ? 1 : 0)) : 0;
    }
  }
}

template <typename T>
void AdamW(const AdamWCoefficients& c, const T* gradients, int64_t size,
           T* parameters, T* first_moment, T* second_moment) {
  for (int64_t i = 0; i < size; ++i) {
    const T g = c.gradient_scale * gradients[i];
    first_moment[i] = c.beta1 * first_moment[i] + (1 - c.beta1) * g;
    second_moment[i] = c.beta2 * second_moment[i] + (1 - c.beta2) * g * g;
    const T root = std::sqrt(second_moment[i]) * c.inverse_sqrt_correction2;
    parameters[i] = c.decay * parameters[i] -
                    c.step_size * first_moment[i] / (root + c.epsilon);
  }
}

// Returns the product of a [rows, inner] and b [inner, columns].
template <typename T>
std::vector<T> MatrixProduct(const std::vector<T>& a, const std::vector<T>& b,
                             int64_t rows, int64_t inner, int64_t columns) {
  std::vector<T> product(rows * columns);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t k = 0; k < inner; ++k) {
      for (int64_t i = 0; i < columns; ++i) {
        product[r * columns + i] += a[r * inner + k] * b[k * columns + i];
      }
    }
  }
  return product;
}

template <typename T>
std::vector<T> Transposed(const std::vector<T>& matrix, int64_t rows,
                          int64_t columns) {
  std::vector<T> transposed(matrix.size());
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t i = 0; i < columns; ++i) {
      transposed[i * rows + r] = matrix[r * columns + i];
    }
  }
  return transposed;
}

// Takes a X + b (X X^T) X + c (X X^T)^2 X as it is written.
template <typename T>
void Orthogonalize(absl::Span<const Quintic> iterations, int64_t rows,
                   int64_t columns, std::vector<T>& matrix) {
  T squares = 0;
  for (const T value : matrix) squares += value * value;
  for (T& value : matrix) value /= std::sqrt(squares) + 1e-7;
  for (const Quintic& quintic : iterations) {
    const std::vector<T> gram = MatrixProduct(
        matrix, Transposed(matrix, rows, columns), rows, columns, rows);
    const std::vector<T> third =
        MatrixProduct(gram, matrix, rows, rows, columns);
    const std::vector<T> fifth =
        MatrixProduct(gram, third, rows, rows, columns);
    for (size_t i = 0; i < matrix.size(); ++i) {
      matrix[i] =
          quintic.a * matrix[i] + quintic.b * third[i] + quintic.c * fifth[i];
    }
  }
}

}  // namespace causeway::reference

#endif  // WORKER_MODEL_TESTING_OPS_REFERENCE_H_
