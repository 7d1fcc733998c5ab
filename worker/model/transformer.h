// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// A decoder-only transformer in the Llama layout (Touvron et al. 2023), with
// the biases of Qwen2, the QK-norm of Qwen3, the blocks without rotary
// embedding of SmolLM3 and the norms of OLMo 2 where the configuration has
// them: forward pass, exact backward pass, and logits for sampling, written
// once over the operations of ops.h. Parameters and gradients are flat fp32
// vectors in the order of common/tensors/model_layout.h, in the device memory
// of the Ops object.
//
//   std::unique_ptr<Ops> ops = MakeCpuOps(2);
//   ASSIGN_OR_RETURN(auto model, Transformer::Create(
//       config.model(), {.micro_batch = 8}, ops.get()));
//   ASSIGN_OR_RETURN(auto parameters, DeviceArray<float>::Create(
//       ops.get(), model->layout().size));
//   ASSIGN_OR_RETURN(auto gradients, DeviceArray<float>::Create(
//       ops.get(), model->layout().size));   // zeroed
//   ...
//   ASSIGN_OR_RETURN(double loss, model->ForwardBackward(
//       parameters.data(), tokens, targets, /*loss_scale=*/1,
//       gradients.data()));
//
// Memory. Create allocates everything; activation_bytes() reports all but the
// tokens. Per token a block keeps its input, the rotated queries, keys and
// values, the attention's output, the stream between its halves, and gate and
// up; with QK-norm, also queries and keys before it. It keeps neither what one
// pass can recompute on the way (normalized streams, SwiGLU's output) nor
// attention scores. With recompute_activations only the blocks' inputs are
// kept, and the backward pass recomputes the rest. Logits exist for a bounded
// number of rows at a time. If activations are bf16 (ops.h), so is a copy of
// the parameters for the matrix products, which is made before a pass.
#ifndef WORKER_MODEL_TRANSFORMER_H_
#define WORKER_MODEL_TRANSFORMER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/tensors/model_layout.h"
#include "proto/run_config.pb.h"
#include "worker/model/device_array.h"
#include "worker/model/ops.h"

namespace causeway {

// Not thread-safe: one thread at a time may use an object.
class Transformer {
 public:
  struct Options {
    // The largest number of sequences per call; bounds the memory.
    int64_t micro_batch = 1;
    // If false, ForwardBackward may not be called, and there is memory for only
    // one block.
    bool training = true;
    // TrainingConfig.recompute_activations. Changes no bit of the results.
    bool recompute_activations = false;
    // If true, NextTokenLogits keeps the queries, keys and values of its
    // prefix, so that a longer prefix costs only its new tokens. Every block
    // then has memory for them, and the parameters must not change between two
    // calls.
    bool keep_prefix = false;
    // The token that ends a document. Tokens attend only to their own document;
    // positions need not begin again, because the rotary embedding depends only
    // on distances. If unset, a sequence is one document.
    std::optional<int32_t> document_end;
  };

  // Creates a model. `config` must have been validated
  // (common/config/run_config.h) and have vocab_size and kv_heads resolved.
  // `ops` must outlive the object.
  //   RESOURCE_EXHAUSTED  not enough device memory.
  //   INVALID_ARGUMENT    micro_batch is not positive.
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<Transformer>> Create(
      const v1::ModelConfig& config, const Options& options, Ops* ops);

  // Returns the bytes of device memory that Create allocates.
  static int64_t BytesNeeded(const v1::ModelConfig& config,
                             const Options& options, Ops* ops);

  Transformer(const Transformer&) = delete;
  Transformer& operator=(const Transformer&) = delete;

  const ModelLayout& layout() const { return layout_; }
  int64_t sequence_length() const { return length_; }
  int64_t vocab_size() const { return vocab_; }
  // Returns the bytes of device memory that the object holds, without the
  // tokens.
  int64_t activation_bytes() const { return arena_.size(); }

  // The functions below take at most micro_batch consecutive whole sequences;
  // targets[i] is the token that should follow tokens[i], or kNoTarget
  // (common/config/run_config.h). Their loss is the sum of the negative log
  // likelihoods of the targets, in nats, divided by the number of tokens, with
  // or without target. After an error nothing is changed.
  //   INVALID_ARGUMENT  sizes are wrong or a token is not in the vocabulary.

  // Adds loss_scale * (the mean's gradient) to `gradients`. With a batch of n
  // equal micro-batches, loss_scale = 1 / n gives the batch's gradient. Returns
  // before the device is done; the parameters must not change before TakeLoss.
  absl::Status AddGradients(const float* parameters,
                            absl::Span<const int32_t> tokens,
                            absl::Span<const int32_t> targets,
                            double loss_scale, float* gradients);
  // Prepares AddGradients for other vectors and a whole micro-batch, after a
  // call of it.
  void PrepareGradients(const float* parameters, double loss_scale,
                        float* gradients);
  // Returns the sum of the losses of AddGradients since the last call. Waits
  // for them, and reports whether the device has failed.
  absl::StatusOr<double> TakeLoss();
  // Calls AddGradients and TakeLoss.
  absl::StatusOr<double> ForwardBackward(const float* parameters,
                                         absl::Span<const int32_t> tokens,
                                         absl::Span<const int32_t> targets,
                                         double loss_scale, float* gradients);
  // Computes the loss without gradients. Must not be called between
  // AddGradients and TakeLoss.
  absl::StatusOr<double> Loss(const float* parameters,
                              absl::Span<const int32_t> tokens,
                              absl::Span<const int32_t> targets);

  // Writes the logits (vocab_size of them, on the host) of the token that
  // follows `prefix`, which has 1 to sequence_length tokens. Computes the whole
  // prefix, or with keep_prefix only what follows the tokens that it shares
  // with the last call's prefix. INVALID_ARGUMENT as above.
  absl::Status NextTokenLogits(const float* parameters,
                               absl::Span<const int32_t> prefix,
                               absl::Span<float> logits);

 private:
  // Offsets into the flat vectors. Projections of the same input are adjacent
  // in the layout and are used as one matrix.
  struct BlockOffsets {
    // Not an offset: whether the block has the rotary embedding.
    bool has_rope = true;
    int64_t attention_norm = 0;
    int64_t qkv = 0;
    int64_t qkv_bias = 0;
    int64_t qk_norm = 0;
    int64_t output = 0;
    int64_t mlp_norm = 0;
    int64_t gate_up = 0;
    int64_t down = 0;
  };
  // The backward pass needs these of the norm of half a block: of attention or
  // the MLP.
  struct Half {
    float* inverse_rms = nullptr;
    // The input of a norm that ends the half; exists with post_norm only.
    void* output = nullptr;
  };
  // The activations that the backward pass of a block needs besides its input.
  struct BlockActivations {
    Half attention_half;
    Half mlp_half;
    void* qkv = nullptr;
    // These exist with QK-norm only.
    void* raw_heads = nullptr;
    float* heads_inverse_rms = nullptr;
    float* log_sum_exp = nullptr;
    void* attention = nullptr;
    void* middle = nullptr;
    void* gate_up = nullptr;
  };

  Transformer(const v1::ModelConfig& config, const Options& options, Ops* ops);
  void FindOffsets(const v1::ModelConfig& config);
  // The place of each array in the arena, and the length of the arena.
  struct ArenaPlan {
    int64_t bytes = 0;
    std::vector<std::pair<void**, int64_t>> activations;
    std::vector<std::pair<float**, int64_t>> floats;
  };
  ArenaPlan PlanArena();
  absl::Status AllocateMemory();
  // Return how many streams, blocks' activations, and blocks' qkv have memory
  // of their own.
  size_t kept_streams() const {
    return options_.training ? streams_.size() : 1;
  }
  size_t kept_blocks() const {
    const bool all = options_.training && !options_.recompute_activations;
    return all ? activations_.size() : 1;
  }
  size_t kept_qkvs() const {
    return options_.keep_prefix ? activations_.size() : kept_blocks();
  }
  void UploadRopeTable(const v1::ModelConfig& config);

  // Tokens must not be less than `lowest`.
  absl::Status CheckTokens(absl::Span<const int32_t> tokens, int32_t lowest,
                           const char* name) const;
  absl::Status CheckBatch(absl::Span<const int32_t> tokens,
                          absl::Span<const int32_t> targets) const;
  AttentionShape ShapeOf(int64_t batch, int64_t length) const;
  // Copies a batch to the device, and discards what NextTokenLogits has kept.
  void UploadBatch(absl::Span<const int32_t> tokens,
                   absl::Span<const int32_t> targets);
  // Tells attention the documents of sequences of `length` tokens.
  void UploadDocuments(absl::Span<const int32_t> tokens, int64_t length);

  // Sets linear_weights_ for a pass.
  void PrepareWeights(const float* parameters);
  // Computes the final normalized stream (normalized_) from the tokens. If
  // shape.first is not 0, there is one sequence, and the tokens and the stream
  // have only rows [first, length).
  void Forward(const float* parameters, const AttentionShape& shape);
  // Begins a half of a block: sum <- x + delta, the residual stream, unless
  // delta is null. Returns the input of the half's first projection: the norm
  // of the stream or, with post_norm, the stream.
  const void* EnterHalf(const void* x, const void* delta, const float* gain,
                        const Half& half, int64_t rows, void* sum);
  // Ends a half of a block: residual_delta_ <- the projection of `input`, which
  // has rows of `width`; with post_norm the norm of that.
  void LeaveHalf(const void* input, int64_t weight, int64_t width,
                 const float* gain, const Half& half, int64_t rows);
  // Computes queries, keys and values from what EnterHalf returned.
  void ForwardQkv(const float* parameters, int block,
                  const AttentionShape& shape, const void* input);
  // Computes gate and up from what EnterHalf returned.
  void ForwardBlock(const float* parameters, int block,
                    const AttentionShape& shape, const void* input);
  // Computes the rest of the block from gate and up.
  void ForwardDown(const float* parameters, int block, int64_t rows);
  // Propagates the gradient of the final normalized stream back.
  void Backward(const float* parameters, const AttentionShape& shape,
                float* gradients);
  void BackwardBlock(const float* parameters, int block,
                     const AttentionShape& shape, float* gradients);
  // Returns the gradient of the output of a half's last projection, from that
  // of the stream. With post_norm it overwrites normalized_ and
  // residual_delta_.
  const void* LeaveHalfBackward(const float* gain, const Half& half,
                                int64_t rows, float* d_gain);
  // Adds to d_stream_ the gradient that comes through the input of a half's
  // first projection. The gradient of that input is residual_delta_. Returns
  // that input; x is the stream.
  const void* EnterHalfBackward(const void* x, const float* gain,
                                const Half& half, int64_t rows, float* d_gain);
  // Turns d_qkv_ from the gradient of attention's input into the projection's.
  void BackwardQkv(const float* parameters, int block,
                   const AttentionShape& shape, float* gradients);
  // Passes `replay` the operations of AddGradients that are always the same.
  using ReplayFunction = void (Ops::*)(const ReplayKey&,
                                       absl::FunctionRef<void()>);
  void ReplayPass(ReplayFunction replay, const float* parameters, int64_t rows,
                  double loss_scale, float* gradients);
  // Computes the logits and the losses, in chunks of rows. With
  // `gradient_scale`, also computes the head's backward pass: the gradient of
  // the sum of losses times `gradient_scale`.
  void HeadLoss(int64_t rows, std::optional<float> gradient_scale,
                float* gradients);
  // Adds the mean loss to what TakeLoss returns.
  void AddMeanLoss(int64_t rows);

  // Returns whether Linear reads other weights than the parameters themselves.
  bool rounds_weights() const {
    return ops_->activation_bytes() != int64_t{sizeof(float)};
  }
  // Returns the weights at `offset` for the current pass.
  const void* Weight(int64_t offset) const {
    return At(linear_weights_, offset);
  }
  const void* At(const void* activations, int64_t offset) const;
  void* At(void* activations, int64_t offset) const;

  Ops* const ops_;
  const Options options_;
  const ModelLayout layout_;
  const int layers_;
  const int64_t hidden_;
  const int64_t intermediate_;
  const int64_t heads_;
  const int64_t kv_heads_;
  const int64_t head_dim_;
  const bool qkv_bias_;
  const bool qk_norm_;
  const bool qk_norm_across_heads_;
  const bool post_norm_;
  const int64_t vocab_;
  const int64_t length_;
  const float norm_epsilon_;
  // The number of rows of logits that exist at a time.
  const int64_t logit_rows_;

  std::vector<BlockOffsets> blocks_;
  int64_t embedding_ = 0;
  int64_t final_norm_ = 0;
  int64_t head_ = 0;

  // The tokens whose qkv the blocks keep for the next call of NextTokenLogits.
  std::vector<int32_t> kept_;

  // All memory below these arrays is part of the arena.
  DeviceArray<char> arena_;
  DeviceArray<int32_t> tokens_;
  DeviceArray<int32_t> targets_;
  // AttentionShape::document_begin; empty if a sequence is one document.
  DeviceArray<int32_t> document_begin_;
  // The sum that TakeLoss returns next.
  DeviceArray<double> loss_;
  float* rope_cosine_ = nullptr;
  float* rope_sine_ = nullptr;
  // streams_[b] is the input of block b, and the last one of the final norm.
  // For inference all share the same memory.
  std::vector<void*> streams_;
  // One per block; all share the same memory unless every block's activations
  // are kept.
  std::vector<BlockActivations> activations_;
  float* final_inverse_rms_ = nullptr;
  // The parameters rounded to activations, if Linear needs that.
  void* weights_ = nullptr;
  // weights_ or the parameters.
  const void* linear_weights_ = nullptr;
  // The parameters that linear_weights_ copies for all AddGradients until
  // TakeLoss, or null.
  const float* summed_parameters_ = nullptr;
  // All blocks share the arrays below.
  void* normalized_ = nullptr;
  void* residual_delta_ = nullptr;
  void* swiglu_ = nullptr;
  void* logits_ = nullptr;
  float* losses_ = nullptr;
  void* d_stream_ = nullptr;
  void* d_qkv_ = nullptr;
};

}  // namespace causeway

#endif  // WORKER_MODEL_TRANSFORMER_H_
