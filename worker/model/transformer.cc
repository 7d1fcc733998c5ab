// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/model/transformer.h"

#include <algorithm>
#include <bit>

#include "absl/strings/str_cat.h"
#include "common/config/run_config.h"
#include "common/status_macros.h"
#include "glog/logging.h"

namespace causeway {

absl::Status Transformer::CheckTokens(absl::Span<const int32_t> tokens,
                                      int32_t lowest, const char* name) const {
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < lowest || tokens[i] >= vocab_) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, "[", i, "] is ", tokens[i],
                       "; the vocabulary has the tokens 0 to ", vocab_ - 1));
    }
  }
  return absl::OkStatus();
}

absl::Status Transformer::CheckBatch(absl::Span<const int32_t> tokens,
                                     absl::Span<const int32_t> targets) const {
  const int64_t size = static_cast<int64_t>(tokens.size());
  if (size == 0 || size % length_ != 0 ||
      size > options_.micro_batch * length_) {
    return absl::InvalidArgumentError(
        absl::StrCat("got ", size, " tokens; want 1 to ", options_.micro_batch,
                     " sequences of ", length_));
  }
  if (targets.size() != tokens.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("got ", targets.size(), " targets for ", size, " tokens"));
  }
  RETURN_IF_ERROR(CheckTokens(tokens, 0, "tokens"));
  return CheckTokens(targets, kNoTarget, "targets");
}

const void* Transformer::At(const void* activations, int64_t offset) const {
  return static_cast<const char*>(activations) +
         offset * ops_->activation_bytes();
}
void* Transformer::At(void* activations, int64_t offset) const {
  return static_cast<char*>(activations) + offset * ops_->activation_bytes();
}

AttentionShape Transformer::ShapeOf(int64_t batch, int64_t length) const {
  return {.batch = batch,
          .length = length,
          .heads = heads_,
          .kv_heads = kv_heads_,
          .head_dim = head_dim_,
          .document_begin = document_begin_.data()};
}

void Transformer::UploadDocuments(absl::Span<const int32_t> tokens,
                                  int64_t length) {
  if (!options_.document_end.has_value()) return;
  std::vector<int32_t> begins(tokens.size());
  for (size_t i = 1; i < tokens.size(); ++i) {
    const auto position =
        static_cast<int32_t>(static_cast<int64_t>(i) % length);
    const bool begins_here =
        position == 0 || tokens[i - 1] == *options_.document_end;
    begins[i] = begins_here ? position : begins[i - 1];
  }
  ops_->CopyToDevice(begins.data(), begins.size() * sizeof(int32_t),
                     document_begin_.data());
}

void Transformer::UploadBatch(absl::Span<const int32_t> tokens,
                              absl::Span<const int32_t> targets) {
  kept_.clear();
  ops_->CopyToDevice(tokens.data(), tokens.size() * 4, tokens_.data());
  ops_->CopyToDevice(targets.data(), targets.size() * 4, targets_.data());
  UploadDocuments(tokens, length_);
}

absl::StatusOr<double> Transformer::ForwardBackward(
    const float* parameters, absl::Span<const int32_t> tokens,
    absl::Span<const int32_t> targets, double loss_scale, float* gradients) {
  RETURN_IF_ERROR(
      AddGradients(parameters, tokens, targets, loss_scale, gradients));
  return TakeLoss();
}

absl::Status Transformer::AddGradients(const float* parameters,
                                       absl::Span<const int32_t> tokens,
                                       absl::Span<const int32_t> targets,
                                       double loss_scale, float* gradients) {
  CHECK(options_.training) << "the model was created without training memory";
  RETURN_IF_ERROR(CheckBatch(tokens, targets));
  const int64_t rows = static_cast<int64_t>(tokens.size());
  UploadBatch(tokens, targets);
  if (summed_parameters_ != parameters) {
    PrepareWeights(parameters);
    summed_parameters_ = parameters;
  }
  ReplayPass(&Ops::Replay, parameters, rows, loss_scale, gradients);
  return absl::OkStatus();
}

void Transformer::PrepareGradients(const float* parameters, double loss_scale,
                                   float* gradients) {
  ReplayPass(&Ops::PrepareReplay, parameters, options_.micro_batch * length_,
             loss_scale, gradients);
}

void Transformer::ReplayPass(ReplayFunction replay, const float* parameters,
                             int64_t rows, double loss_scale,
                             float* gradients) {
  const AttentionShape shape = ShapeOf(rows / length_, length_);
  const auto scale = static_cast<float>(loss_scale / static_cast<double>(rows));
  const ReplayKey key = {reinterpret_cast<uintptr_t>(this),
                         reinterpret_cast<uintptr_t>(parameters),
                         reinterpret_cast<uintptr_t>(gradients),
                         static_cast<uint64_t>(rows),
                         std::bit_cast<uint32_t>(scale)};
  (ops_->*replay)(key, [&] {
    Forward(parameters, shape);
    HeadLoss(rows, scale, gradients);
    AddMeanLoss(rows);
    Backward(parameters, shape, gradients);
  });
}

absl::StatusOr<double> Transformer::Loss(const float* parameters,
                                         absl::Span<const int32_t> tokens,
                                         absl::Span<const int32_t> targets) {
  RETURN_IF_ERROR(CheckBatch(tokens, targets));
  const int64_t rows = static_cast<int64_t>(tokens.size());
  UploadBatch(tokens, targets);
  PrepareWeights(parameters);
  Forward(parameters, ShapeOf(rows / length_, length_));
  HeadLoss(rows, std::nullopt, nullptr);
  AddMeanLoss(rows);
  return TakeLoss();
}

absl::Status Transformer::NextTokenLogits(const float* parameters,
                                          absl::Span<const int32_t> prefix,
                                          absl::Span<float> logits) {
  const int64_t length = static_cast<int64_t>(prefix.size());
  if (length < 1 || length > length_) {
    return absl::InvalidArgumentError(
        absl::StrCat("a prefix of ", length, " tokens; want 1 to ", length_));
  }
  if (static_cast<int64_t>(logits.size()) != vocab_) {
    return absl::InvalidArgumentError(
        absl::StrCat("room for ", logits.size(), " logits; want ", vocab_));
  }
  RETURN_IF_ERROR(CheckTokens(prefix, 0, "prefix"));
  // The last token is always computed, because its logits are asked for.
  const auto kept = std::mismatch(kept_.begin(), kept_.end(), prefix.begin(),
                                  prefix.end() - 1)
                        .first;
  kept_.erase(kept, kept_.end());
  AttentionShape shape = ShapeOf(1, length);
  shape.first = static_cast<int64_t>(kept_.size());
  UploadDocuments(prefix, length);
  const absl::Span<const int32_t> added = prefix.subspan(kept_.size());
  ops_->CopyToDevice(added.data(), added.size() * 4, tokens_.data());
  if (kept_.empty()) PrepareWeights(parameters);
  if (options_.keep_prefix) {
    kept_.insert(kept_.end(), added.begin(), added.end());
  }
  Forward(parameters, shape);
  ops_->Linear(At(normalized_, (length - shape.first - 1) * hidden_),
               Weight(head_), {.rows = 1, .in = hidden_, .out = vocab_},
               logits_);
  ops_->CopyActivationsToHost(logits_, vocab_, logits.data());
  return ops_->Synchronize();
}

void Transformer::PrepareWeights(const float* parameters) {
  linear_weights_ = parameters;
  summed_parameters_ = nullptr;
  if (!rounds_weights()) return;
  linear_weights_ = weights_;
  ops_->RoundToActivations(parameters, layout_.size, weights_);
}

void Transformer::Forward(const float* parameters,
                          const AttentionShape& shape) {
  const int64_t rows = shape.rows() - shape.first;
  ops_->Embedding(tokens_.data(), parameters + embedding_, rows, hidden_,
                  streams_[0]);
  for (int b = 0; b < layers_; ++b) {
    // Entering a block computes the sum that ends the block before.
    const bool first = b == 0;
    const void* const input =
        EnterHalf(first ? streams_[0] : activations_[b - 1].middle,
                  first ? nullptr : residual_delta_,
                  parameters + blocks_[b].attention_norm,
                  activations_[b].attention_half, rows, streams_[b]);
    ForwardBlock(parameters, b, shape, input);
    ForwardDown(parameters, b, rows);
  }
  ops_->RmsNorm(activations_.back().middle, residual_delta_,
                parameters + final_norm_, rows, hidden_, norm_epsilon_,
                streams_.back(), final_inverse_rms_, normalized_);
}

const void* Transformer::EnterHalf(const void* x, const void* delta,
                                   const float* gain, const Half& half,
                                   int64_t rows, void* sum) {
  if (!post_norm_) {
    ops_->RmsNorm(x, delta, gain, rows, hidden_, norm_epsilon_, sum,
                  half.inverse_rms, normalized_);
    return normalized_;
  }
  if (delta == nullptr) return x;
  ops_->AddActivations(x, delta, rows * hidden_, sum);
  return sum;
}

void Transformer::LeaveHalf(const void* input, int64_t weight, int64_t width,
                            const float* gain, const Half& half, int64_t rows) {
  ops_->Linear(input, Weight(weight),
               {.rows = rows, .in = width, .out = hidden_},
               post_norm_ ? half.output : residual_delta_);
  if (!post_norm_) return;
  ops_->RmsNorm(half.output, nullptr, gain, rows, hidden_, norm_epsilon_,
                nullptr, half.inverse_rms, residual_delta_);
}

void Transformer::ForwardQkv(const float* parameters, int block,
                             const AttentionShape& shape, const void* input) {
  const BlockActivations& to = activations_[block];
  const BlockOffsets& at = blocks_[block];
  const AttentionShape added = ShapeOf(shape.batch, shape.length - shape.first);
  void* const qkv = At(to.qkv, shape.first * shape.qkv_width());
  ops_->Linear(input, Weight(at.qkv),
               {.rows = added.rows(), .in = hidden_, .out = added.qkv_width()},
               qkv);
  if (qkv_bias_) {
    ops_->AddBias(parameters + at.qkv_bias, added.rows(), added.qkv_width(),
                  qkv);
  }
  if (qk_norm_) {
    ops_->QkNorm({added, qk_norm_across_heads_}, parameters + at.qk_norm,
                 norm_epsilon_, qkv, to.raw_heads, to.heads_inverse_rms);
  }
  if (!at.has_rope) return;
  const int64_t angles = shape.first * shape.head_dim / 2;
  ops_->Rope(added, {rope_cosine_ + angles, rope_sine_ + angles},
             RopeDirection::kForward, qkv);
}

void Transformer::ForwardBlock(const float* parameters, int block,
                               const AttentionShape& shape, const void* input) {
  const BlockActivations& to = activations_[block];
  const BlockOffsets& at = blocks_[block];
  const int64_t rows = shape.rows() - shape.first;
  ForwardQkv(parameters, block, shape, input);
  ops_->Attention(shape, to.qkv, to.attention, to.log_sum_exp);
  LeaveHalf(At(to.attention, shape.first * shape.query_width()), at.output,
            shape.query_width(), parameters + at.attention_norm,
            to.attention_half, rows);
  const void* const middle =
      EnterHalf(streams_[block], residual_delta_, parameters + at.mlp_norm,
                to.mlp_half, rows, to.middle);
  ops_->Linear(middle, Weight(at.gate_up),
               {.rows = rows, .in = hidden_, .out = 2 * intermediate_},
               to.gate_up);
}

void Transformer::ForwardDown(const float* parameters, int block,
                              int64_t rows) {
  const BlockActivations& from = activations_[block];
  const BlockOffsets& at = blocks_[block];
  ops_->SwiGlu(from.gate_up, rows, intermediate_, swiglu_);
  LeaveHalf(swiglu_, at.down, intermediate_, parameters + at.mlp_norm,
            from.mlp_half, rows);
}

void Transformer::HeadLoss(int64_t rows, std::optional<float> gradient_scale,
                           float* gradients) {
  for (int64_t first = 0; first < rows; first += logit_rows_) {
    const LinearShape head = {.rows = std::min(logit_rows_, rows - first),
                              .in = hidden_,
                              .out = vocab_};
    const void* normalized = At(normalized_, first * hidden_);
    const int32_t* targets = targets_.data() + first;
    ops_->Linear(normalized, Weight(head_), head, logits_);
    ops_->CrossEntropy(targets, head.rows, vocab_, gradient_scale, logits_,
                       losses_ + first);
    if (!gradient_scale.has_value()) continue;
    ops_->LinearWeightGradient(logits_, normalized, head, gradients + head_);
    // residual_delta_ holds the gradient of the normalized stream from here on.
    ops_->LinearInputGradient(logits_, Weight(head_), head,
                              At(residual_delta_, first * hidden_));
  }
}

void Transformer::AddMeanLoss(int64_t rows) {
  ops_->AddSum(losses_, rows, 1 / static_cast<double>(rows), loss_.data());
}

absl::StatusOr<double> Transformer::TakeLoss() {
  constexpr double kNone = 0;
  double loss = 0;
  summed_parameters_ = nullptr;
  ops_->CopyToHost(loss_.data(), sizeof(loss), &loss);
  ops_->CopyToDevice(&kNone, sizeof(kNone), loss_.data());
  RETURN_IF_ERROR(ops_->Synchronize());
  return loss;
}

void Transformer::Backward(const float* parameters, const AttentionShape& shape,
                           float* gradients) {
  const int64_t rows = shape.rows();
  ops_->RmsNormBackward(residual_delta_, streams_.back(), final_inverse_rms_,
                        parameters + final_norm_, rows, hidden_,
                        /*accumulate=*/false, d_stream_,
                        gradients + final_norm_, normalized_);
  for (int b = layers_ - 1; b >= 0; --b) {
    // The last block's activations are still there from the forward pass.
    if (options_.recompute_activations && b != layers_ - 1) {
      const void* const input = EnterHalf(
          streams_[b], nullptr, parameters + blocks_[b].attention_norm,
          activations_[b].attention_half, rows, nullptr);
      ForwardBlock(parameters, b, shape, input);
      // The gradient of a norm at the end needs the output of the MLP.
      if (post_norm_) ForwardDown(parameters, b, rows);
    }
    BackwardBlock(parameters, b, shape, gradients);
  }
  ops_->EmbeddingBackward(tokens_.data(), d_stream_, rows, hidden_,
                          gradients + embedding_);
}

const void* Transformer::LeaveHalfBackward(const float* gain, const Half& half,
                                           int64_t rows, float* d_gain) {
  if (!post_norm_) return d_stream_;
  ops_->RmsNormBackward(d_stream_, half.output, half.inverse_rms, gain, rows,
                        hidden_, /*accumulate=*/false, normalized_, d_gain,
                        residual_delta_);
  return normalized_;
}

const void* Transformer::EnterHalfBackward(const void* x, const float* gain,
                                           const Half& half, int64_t rows,
                                           float* d_gain) {
  if (post_norm_) {
    ops_->AddActivations(d_stream_, residual_delta_, rows * hidden_, d_stream_);
    return x;
  }
  ops_->RmsNormBackward(residual_delta_, x, half.inverse_rms, gain, rows,
                        hidden_, /*accumulate=*/true, d_stream_, d_gain,
                        normalized_);
  return normalized_;
}

// d_stream_ holds the gradient of the block's output, and then of its input:
// EnterHalfBackward adds to it, so gradients also flow around each half of the
// block.
void Transformer::BackwardBlock(const float* parameters, int block,
                                const AttentionShape& shape, float* gradients) {
  const BlockActivations& from = activations_[block];
  const BlockOffsets& at = blocks_[block];
  const int64_t rows = shape.rows();
  void* const d_input = residual_delta_;

  const void* d_output = LeaveHalfBackward(
      parameters + at.mlp_norm, from.mlp_half, rows, gradients + at.mlp_norm);
  const LinearShape down = {.rows = rows, .in = intermediate_, .out = hidden_};
  ops_->LinearInputGradient(d_output, Weight(at.down), down, swiglu_);
  ops_->SwiGluBackward(from.gate_up, swiglu_, rows, intermediate_, from.gate_up,
                       swiglu_);
  ops_->LinearWeightGradient(d_output, swiglu_, down, gradients + at.down);
  const LinearShape gate_up = {
      .rows = rows, .in = hidden_, .out = 2 * intermediate_};
  ops_->LinearInputGradient(from.gate_up, Weight(at.gate_up), gate_up, d_input);
  const void* input =
      EnterHalfBackward(from.middle, parameters + at.mlp_norm, from.mlp_half,
                        rows, gradients + at.mlp_norm);
  ops_->LinearWeightGradient(from.gate_up, input, gate_up,
                             gradients + at.gate_up);

  d_output =
      LeaveHalfBackward(parameters + at.attention_norm, from.attention_half,
                        rows, gradients + at.attention_norm);
  const LinearShape output = {
      .rows = rows, .in = shape.query_width(), .out = hidden_};
  void* d_attention = residual_delta_;
  ops_->LinearInputGradient(d_output, Weight(at.output), output, d_attention);
  ops_->LinearWeightGradient(d_output, from.attention, output,
                             gradients + at.output);
  ops_->AttentionBackward(shape, from.qkv, from.attention, from.log_sum_exp,
                          d_attention, d_qkv_);
  BackwardQkv(parameters, block, shape, gradients);
  const LinearShape qkv = {
      .rows = rows, .in = hidden_, .out = shape.qkv_width()};
  ops_->LinearInputGradient(d_qkv_, Weight(at.qkv), qkv, d_input);
  input = EnterHalfBackward(streams_[block], parameters + at.attention_norm,
                            from.attention_half, rows,
                            gradients + at.attention_norm);
  ops_->LinearWeightGradient(d_qkv_, input, qkv, gradients + at.qkv);
}

void Transformer::BackwardQkv(const float* parameters, int block,
                              const AttentionShape& shape, float* gradients) {
  const BlockActivations& from = activations_[block];
  const BlockOffsets& at = blocks_[block];
  if (at.has_rope) {
    ops_->Rope(shape, {rope_cosine_, rope_sine_}, RopeDirection::kBackward,
               d_qkv_);
  }
  if (qk_norm_) {
    ops_->QkNormBackward({shape, qk_norm_across_heads_}, from.raw_heads,
                         from.heads_inverse_rms, parameters + at.qk_norm,
                         d_qkv_, gradients + at.qk_norm);
  }
  if (qkv_bias_) {
    ops_->AddBiasBackward(d_qkv_, shape.rows(), shape.qkv_width(),
                          gradients + at.qkv_bias);
  }
}

}  // namespace causeway
