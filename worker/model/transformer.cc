// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/model/transformer.h"

#include <algorithm>
#include <bit>
#include <string>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/run_config.h"
#include "common/status_macros.h"
#include "glog/logging.h"
#include "worker/model/rope_angles.h"

namespace causeway {
namespace {

// The least number of rows of logits at a time; matrix products with fewer are
// not efficient.
constexpr int64_t kMinLogitRows = 128;

// Arrays in the arena begin on a cache line, but at different places of their
// pages, since lines at the same place compete for the same sets of the cache.
constexpr int64_t kAlignment = 64;
constexpr int64_t kStagger = 5 * kAlignment;

const TensorSpec& FindTensor(const ModelLayout& layout,
                             absl::string_view name) {
  for (const TensorSpec& tensor : layout.tensors) {
    if (name == tensor.name) return tensor;
  }
  LOG(FATAL) << "the model layout has no tensor " << std::string(name);
}

// Returns the offset of adjacent tensors that are used as one.
int64_t FindAdjacent(const ModelLayout& layout, absl::string_view prefix,
                     std::vector<absl::string_view> names) {
  int64_t begin = -1;
  int64_t end = -1;
  for (const absl::string_view name : names) {
    const TensorSpec& tensor = FindTensor(layout, absl::StrCat(prefix, name));
    if (begin < 0) begin = end = tensor.offset;
    CHECK_EQ(tensor.offset, end) << tensor.name << " has moved in the layout";
    end += tensor.size;
  }
  return begin;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Transformer>> Transformer::Create(
    const v1::ModelConfig& config, const Options& options, Ops* ops) {
  if (options.micro_batch < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "micro_batch is ", options.micro_batch, "; it must be at least 1"));
  }
  auto model = absl::WrapUnique(new Transformer(config, options, ops));
  RETURN_IF_ERROR(model->AllocateMemory());
  model->UploadRopeTable(config);
  return model;
}

int64_t Transformer::BytesNeeded(const v1::ModelConfig& config,
                                 const Options& options, Ops* ops) {
  Transformer model(config, options, ops);
  const int64_t tokens = options.micro_batch * model.length_;
  const int64_t arrays = options.document_end.has_value() ? 3 : 2;
  return model.PlanArena().bytes + arrays * tokens * int64_t{sizeof(int32_t)};
}

Transformer::Transformer(const v1::ModelConfig& config, const Options& options,
                         Ops* ops)
    : ops_(ops),
      options_(options),
      layout_(MakeModelLayout(config)),
      layers_(static_cast<int>(config.layers())),
      hidden_(config.hidden_size()),
      intermediate_(config.intermediate_size()),
      heads_(config.heads()),
      kv_heads_(config.kv_heads()),
      head_dim_(HeadDim(config)),
      qkv_bias_(config.qkv_bias()),
      qk_norm_(config.qk_norm()),
      vocab_(config.vocab_size()),
      length_(config.sequence_length()),
      norm_epsilon_(static_cast<float>(config.norm_epsilon())),
      logit_rows_(
          std::min(options.micro_batch * length_,
                   std::max(kMinLogitRows, ops->logits_at_a_time() / vocab_))) {
  CHECK(config.head_dim() != 0 || hidden_ % heads_ == 0);
  CHECK_EQ(head_dim_ % 2, 0);
  CHECK_EQ(heads_ % kv_heads_, 0);
  FindOffsets();
}

void Transformer::FindOffsets() {
  for (int block = 0; block < layers_; ++block) {
    const std::string prefix = absl::StrCat("model.layers.", block, ".");
    const auto find = [&](std::vector<absl::string_view> names) {
      return FindAdjacent(layout_, prefix, std::move(names));
    };
    BlockOffsets& at = blocks_.emplace_back();
    at.input_norm = find({"input_layernorm.weight"});
    at.qkv = find({"self_attn.q_proj.weight", "self_attn.k_proj.weight",
                   "self_attn.v_proj.weight"});
    if (qkv_bias_) {
      at.qkv_bias = find({"self_attn.q_proj.bias", "self_attn.k_proj.bias",
                          "self_attn.v_proj.bias"});
    }
    if (qk_norm_) {
      at.qk_norm = find({"self_attn.q_norm.weight", "self_attn.k_norm.weight"});
    }
    at.output = find({"self_attn.o_proj.weight"});
    at.middle_norm = find({"post_attention_layernorm.weight"});
    at.gate_up = find({"mlp.gate_proj.weight", "mlp.up_proj.weight"});
    at.down = find({"mlp.down_proj.weight"});
  }
  embedding_ = FindTensor(layout_, "model.embed_tokens.weight").offset;
  final_norm_ = FindTensor(layout_, "model.norm.weight").offset;
  const bool tied = layout_.tensors.back().name != "lm_head.weight";
  head_ = tied ? embedding_ : FindTensor(layout_, "lm_head.weight").offset;
}

Transformer::ArenaPlan Transformer::PlanArena() {
  const int64_t rows = options_.micro_batch * length_;
  const AttentionShape shape = ShapeOf(options_.micro_batch, length_);
  ArenaPlan plan;
  const auto offset_of = [&](int64_t bytes) {
    const int64_t offset = plan.bytes;
    plan.bytes += (bytes + kAlignment - 1) / kAlignment * kAlignment + kStagger;
    return offset;
  };
  const auto reserve = [&](int64_t size, void** array) {
    plan.activations.push_back(
        {array, offset_of(size * ops_->activation_bytes())});
  };
  const auto reserve_floats = [&](int64_t size, float** array) {
    plan.floats.push_back({array, offset_of(size * int64_t{sizeof(float)})});
  };

  streams_.resize(static_cast<size_t>(layers_) + 1);
  for (size_t i = 0; i < kept_streams(); ++i) {
    reserve(rows * hidden_, &streams_[i]);
  }
  activations_.resize(static_cast<size_t>(layers_));
  for (size_t i = 0; i < kept_blocks(); ++i) {
    BlockActivations& block = activations_[i];
    reserve_floats(rows, &block.input_inverse_rms);
    if (qk_norm_) {
      reserve(rows * shape.qk_width(), &block.raw_heads);
      reserve_floats(rows * shape.qk_heads(), &block.heads_inverse_rms);
    }
    reserve_floats(rows * heads_, &block.log_sum_exp);
    reserve(rows * shape.query_width(), &block.attention);
    reserve(rows * hidden_, &block.middle);
    reserve_floats(rows, &block.middle_inverse_rms);
    reserve(rows * 2 * intermediate_, &block.gate_up);
  }
  for (size_t i = 0; i < kept_qkvs(); ++i) {
    reserve(rows * shape.qkv_width(), &activations_[i].qkv);
  }
  reserve_floats(length_ * shape.head_dim / 2, &rope_cosine_);
  reserve_floats(length_ * shape.head_dim / 2, &rope_sine_);
  reserve_floats(rows, &final_inverse_rms_);
  reserve(rows * hidden_, &normalized_);
  // It also holds the gradient of the attention's output.
  reserve(rows * std::max(hidden_, shape.query_width()), &residual_delta_);
  reserve(rows * intermediate_, &swiglu_);
  reserve(logit_rows_ * vocab_, &logits_);
  reserve_floats(rows, &losses_);
  if (options_.training) {
    reserve(rows * hidden_, &d_stream_);
    reserve(rows * shape.qkv_width(), &d_qkv_);
  }

  if (rounds_weights()) reserve(layout_.size, &weights_);
  return plan;
}

absl::Status Transformer::AllocateMemory() {
  const ArenaPlan plan = PlanArena();
  const int64_t rows = options_.micro_batch * length_;
  ASSIGN_OR_RETURN(arena_, DeviceArray<char>::Create(ops_, plan.bytes));
  ASSIGN_OR_RETURN(tokens_, DeviceArray<int32_t>::Create(ops_, rows));
  ASSIGN_OR_RETURN(targets_, DeviceArray<int32_t>::Create(ops_, rows));
  if (options_.document_end.has_value()) {
    ASSIGN_OR_RETURN(document_begin_, DeviceArray<int32_t>::Create(ops_, rows));
  }
  ASSIGN_OR_RETURN(loss_, DeviceArray<double>::Create(ops_, 1));
  for (const auto& [array, at] : plan.activations) *array = arena_.data() + at;
  for (const auto& [array, at] : plan.floats) {
    *array = reinterpret_cast<float*>(arena_.data() + at);
  }
  std::fill(streams_.begin() + static_cast<int64_t>(kept_streams()),
            streams_.end(), streams_[0]);
  for (size_t i = kept_blocks(); i < activations_.size(); ++i) {
    void* const qkv = activations_[i < kept_qkvs() ? i : 0].qkv;
    activations_[i] = activations_[0];
    activations_[i].qkv = qkv;
  }
  return absl::OkStatus();
}

void Transformer::UploadRopeTable(const v1::ModelConfig& config) {
  const RopeAngles angles = MakeRopeAngles(config);
  const size_t bytes = angles.cosine.size() * sizeof(float);
  ops_->CopyToDevice(angles.cosine.data(), bytes, rope_cosine_);
  ops_->CopyToDevice(angles.sine.data(), bytes, rope_sine_);
}

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
    absl::Span<const int32_t> targets, double loss_scale, GradientSum gradients,
    uint64_t rounding_seed) {
  RETURN_IF_ERROR(AddGradients(parameters, tokens, targets, loss_scale,
                               gradients, rounding_seed));
  return TakeLoss();
}

absl::Status Transformer::AddGradients(const float* parameters,
                                       absl::Span<const int32_t> tokens,
                                       absl::Span<const int32_t> targets,
                                       double loss_scale, GradientSum gradients,
                                       uint64_t rounding_seed) {
  CHECK(options_.training) << "the model was created without training memory";
  RETURN_IF_ERROR(CheckBatch(tokens, targets));
  const int64_t rows = static_cast<int64_t>(tokens.size());
  const AttentionShape shape = ShapeOf(rows / length_, length_);
  UploadBatch(tokens, targets);
  const auto scale = static_cast<float>(loss_scale / static_cast<double>(rows));
  const ReplayKey key = {reinterpret_cast<uintptr_t>(this),
                         reinterpret_cast<uintptr_t>(parameters),
                         reinterpret_cast<uintptr_t>(gradients.data()),
                         static_cast<uint64_t>(rows),
                         std::bit_cast<uint32_t>(scale)};
  PrepareWeights(parameters, options_.stochastic_rounding
                                 ? std::make_optional(rounding_seed)
                                 : std::nullopt);
  ops_->Replay(key, [&] {
    Forward(parameters, shape);
    HeadLoss(rows, scale, gradients);
    AddMeanLoss(rows);
    Backward(parameters, shape, gradients);
  });
  return absl::OkStatus();
}

absl::StatusOr<double> Transformer::Loss(const float* parameters,
                                         absl::Span<const int32_t> tokens,
                                         absl::Span<const int32_t> targets) {
  RETURN_IF_ERROR(CheckBatch(tokens, targets));
  const int64_t rows = static_cast<int64_t>(tokens.size());
  UploadBatch(tokens, targets);
  PrepareWeights(parameters, std::nullopt);
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
  if (kept_.empty()) PrepareWeights(parameters, std::nullopt);
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

void Transformer::PrepareWeights(const float* parameters,
                                 std::optional<uint64_t> rounding_seed) {
  linear_weights_ = parameters;
  if (!rounds_weights()) return;
  linear_weights_ = weights_;
  if (rounding_seed.has_value()) {
    ops_->RoundToActivationsAtRandom(parameters, layout_.size, *rounding_seed,
                                     weights_);
  } else {
    ops_->RoundToActivations(parameters, layout_.size, weights_);
  }
}

void Transformer::Forward(const float* parameters,
                          const AttentionShape& shape) {
  const int64_t rows = shape.rows() - shape.first;
  ops_->Embedding(tokens_.data(), parameters + embedding_, rows, hidden_,
                  streams_[0]);
  for (int b = 0; b < layers_; ++b) {
    const BlockActivations& block = activations_[b];
    // The norm that begins a block computes the sum that ends the block before.
    const bool first = b == 0;
    ops_->RmsNorm(first ? streams_[0] : activations_[b - 1].middle,
                  first ? nullptr : residual_delta_,
                  parameters + blocks_[b].input_norm, rows, hidden_,
                  norm_epsilon_, streams_[b], block.input_inverse_rms,
                  normalized_);
    ForwardBlock(parameters, b, shape);
    ops_->SwiGlu(block.gate_up, rows, intermediate_, swiglu_);
    ops_->Linear(swiglu_, Weight(blocks_[b].down),
                 {.rows = rows, .in = intermediate_, .out = hidden_},
                 residual_delta_);
  }
  ops_->RmsNorm(activations_.back().middle, residual_delta_,
                parameters + final_norm_, rows, hidden_, norm_epsilon_,
                streams_.back(), final_inverse_rms_, normalized_);
}

void Transformer::ForwardQkv(const float* parameters, int block,
                             const AttentionShape& shape) {
  const BlockActivations& to = activations_[block];
  const BlockOffsets& at = blocks_[block];
  const AttentionShape added = ShapeOf(shape.batch, shape.length - shape.first);
  void* const qkv = At(to.qkv, shape.first * shape.qkv_width());
  ops_->Linear(normalized_, Weight(at.qkv),
               {.rows = added.rows(), .in = hidden_, .out = added.qkv_width()},
               qkv);
  if (qkv_bias_) {
    ops_->AddBias(parameters + at.qkv_bias, added.rows(), added.qkv_width(),
                  qkv);
  }
  if (qk_norm_) {
    ops_->QkNorm(added, parameters + at.qk_norm, norm_epsilon_, qkv,
                 to.raw_heads, to.heads_inverse_rms);
  }
  const int64_t angles = shape.first * shape.head_dim / 2;
  ops_->Rope(added, {rope_cosine_ + angles, rope_sine_ + angles},
             RopeDirection::kForward, qkv);
}

void Transformer::ForwardBlock(const float* parameters, int block,
                               const AttentionShape& shape) {
  const BlockActivations& to = activations_[block];
  const BlockOffsets& at = blocks_[block];
  const int64_t rows = shape.rows() - shape.first;
  ForwardQkv(parameters, block, shape);
  ops_->Attention(shape, to.qkv, to.attention, to.log_sum_exp);
  ops_->Linear(At(to.attention, shape.first * shape.query_width()),
               Weight(at.output),
               {.rows = rows, .in = shape.query_width(), .out = hidden_},
               residual_delta_);
  ops_->RmsNorm(streams_[block], residual_delta_, parameters + at.middle_norm,
                rows, hidden_, norm_epsilon_, to.middle, to.middle_inverse_rms,
                normalized_);
  ops_->Linear(normalized_, Weight(at.gate_up),
               {.rows = rows, .in = hidden_, .out = 2 * intermediate_},
               to.gate_up);
}

void Transformer::HeadLoss(int64_t rows, std::optional<float> gradient_scale,
                           GradientSum gradients) {
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
  ops_->CopyToHost(loss_.data(), sizeof(loss), &loss);
  ops_->CopyToDevice(&kNone, sizeof(kNone), loss_.data());
  RETURN_IF_ERROR(ops_->Synchronize());
  return loss;
}

void Transformer::Backward(const float* parameters, const AttentionShape& shape,
                           GradientSum gradients) {
  const int64_t rows = shape.rows();
  ops_->RmsNormBackward(residual_delta_, streams_.back(), final_inverse_rms_,
                        parameters + final_norm_, rows, hidden_,
                        /*accumulate=*/false, d_stream_,
                        gradients + final_norm_, normalized_);
  for (int b = layers_ - 1; b >= 0; --b) {
    // The last block's activations are still there from the forward pass.
    if (options_.recompute_activations && b != layers_ - 1) {
      ops_->RmsNorm(streams_[b], nullptr, parameters + blocks_[b].input_norm,
                    rows, hidden_, norm_epsilon_, nullptr,
                    activations_[b].input_inverse_rms, normalized_);
      ForwardBlock(parameters, b, shape);
    }
    BackwardBlock(parameters, b, shape, gradients);
  }
  ops_->EmbeddingBackward(tokens_.data(), d_stream_, rows, hidden_,
                          gradients + embedding_);
}

// d_stream_ is the gradient of the block's output and becomes that of its
// input. RmsNormBackward adds to it, which is the gradient's way around each
// half of the block.
void Transformer::BackwardBlock(const float* parameters, int block,
                                const AttentionShape& shape,
                                GradientSum gradients) {
  const BlockActivations& from = activations_[block];
  const BlockOffsets& at = blocks_[block];
  const int64_t rows = shape.rows();
  void* d_normalized = residual_delta_;

  const LinearShape down = {.rows = rows, .in = intermediate_, .out = hidden_};
  ops_->LinearInputGradient(d_stream_, Weight(at.down), down, swiglu_);
  ops_->SwiGluBackward(from.gate_up, swiglu_, rows, intermediate_, from.gate_up,
                       swiglu_);
  ops_->LinearWeightGradient(d_stream_, swiglu_, down, gradients + at.down);
  const LinearShape gate_up = {
      .rows = rows, .in = hidden_, .out = 2 * intermediate_};
  ops_->LinearInputGradient(from.gate_up, Weight(at.gate_up), gate_up,
                            d_normalized);
  ops_->RmsNormBackward(d_normalized, from.middle, from.middle_inverse_rms,
                        parameters + at.middle_norm, rows, hidden_,
                        /*accumulate=*/true, d_stream_,
                        gradients + at.middle_norm, normalized_);
  ops_->LinearWeightGradient(from.gate_up, normalized_, gate_up,
                             gradients + at.gate_up);

  const LinearShape output = {
      .rows = rows, .in = shape.query_width(), .out = hidden_};
  void* d_attention = residual_delta_;
  ops_->LinearInputGradient(d_stream_, Weight(at.output), output, d_attention);
  ops_->LinearWeightGradient(d_stream_, from.attention, output,
                             gradients + at.output);
  ops_->AttentionBackward(shape, from.qkv, from.attention, from.log_sum_exp,
                          d_attention, d_qkv_);
  BackwardQkv(parameters, block, shape, gradients);
  const LinearShape qkv = {
      .rows = rows, .in = hidden_, .out = shape.qkv_width()};
  ops_->LinearInputGradient(d_qkv_, Weight(at.qkv), qkv, d_normalized);
  ops_->RmsNormBackward(d_normalized, streams_[block], from.input_inverse_rms,
                        parameters + at.input_norm, rows, hidden_,
                        /*accumulate=*/true, d_stream_,
                        gradients + at.input_norm, normalized_);
  ops_->LinearWeightGradient(d_qkv_, normalized_, qkv, gradients + at.qkv);
}

void Transformer::BackwardQkv(const float* parameters, int block,
                              const AttentionShape& shape,
                              GradientSum gradients) {
  const BlockActivations& from = activations_[block];
  const BlockOffsets& at = blocks_[block];
  ops_->Rope(shape, {rope_cosine_, rope_sine_}, RopeDirection::kBackward,
             d_qkv_);
  if (qk_norm_) {
    ops_->QkNormBackward(shape, from.raw_heads, from.heads_inverse_rms,
                         parameters + at.qk_norm, d_qkv_,
                         gradients + at.qk_norm);
  }
  if (qkv_bias_) {
    ops_->AddBiasBackward(d_qkv_, shape.rows(), shape.qkv_width(),
                          gradients + at.qkv_bias);
  }
}

}  // namespace causeway
