// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The part of Transformer that finds the parameters, and lays out memory.
#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/status_macros.h"
#include "glog/logging.h"
#include "worker/model/transformer.h"

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

// Returns the angle per token, in radians, of pair `pair` of `pairs` of the
// rotary embedding (Su et al. 2021), stretched as Llama 3.1 does if the
// configuration says so.
double RopeFrequency(const v1::ModelConfig& config, int64_t pair,
                     int64_t pairs) {
  const double frequency =
      std::pow(config.rope_theta(),
               -static_cast<double>(pair) / static_cast<double>(pairs));
  if (!config.has_rope_scaling()) return frequency;
  const v1::RopeScaling& scaling = config.rope_scaling();
  const double waves =
      scaling.original_length() * frequency / (2 * std::numbers::pi);
  const double kept = std::clamp(
      (waves - scaling.low_frequency_factor()) /
          (scaling.high_frequency_factor() - scaling.low_frequency_factor()),
      0.0, 1.0);
  return kept * frequency + (1 - kept) * frequency / scaling.factor();
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
      qk_norm_across_heads_(config.qk_norm_across_heads()),
      post_norm_(config.post_norm()),
      vocab_(config.vocab_size()),
      length_(config.sequence_length()),
      norm_epsilon_(static_cast<float>(config.norm_epsilon())),
      logit_rows_(
          std::min(options.micro_batch * length_,
                   std::max(kMinLogitRows, ops->logits_at_a_time() / vocab_))) {
  CHECK(config.head_dim() != 0 || hidden_ % heads_ == 0);
  CHECK_EQ(head_dim_ % 2, 0);
  CHECK_EQ(heads_ % kv_heads_, 0);
  FindOffsets(config);
}

void Transformer::FindOffsets(const v1::ModelConfig& config) {
  for (int block = 0; block < layers_; ++block) {
    const std::string prefix = absl::StrCat("model.layers.", block, ".");
    const auto find = [&](std::vector<absl::string_view> names) {
      return FindAdjacent(layout_, prefix, std::move(names));
    };
    BlockOffsets& at = blocks_.emplace_back();
    at.has_rope = HasRope(config, static_cast<uint32_t>(block));
    at.attention_norm = find({post_norm_ ? "post_attention_layernorm.weight"
                                         : "input_layernorm.weight"});
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
    at.mlp_norm = find({post_norm_ ? "post_feedforward_layernorm.weight"
                                   : "post_attention_layernorm.weight"});
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
    for (Half* const half : {&block.attention_half, &block.mlp_half}) {
      reserve_floats(rows, &half->inverse_rms);
      if (post_norm_) reserve(rows * hidden_, &half->output);
    }
    if (qk_norm_) {
      const QkNormShape heads(shape, qk_norm_across_heads_);
      reserve(rows * shape.qk_width(), &block.raw_heads);
      reserve_floats(rows * heads.groups(), &block.heads_inverse_rms);
    }
    reserve_floats(rows * heads_, &block.log_sum_exp);
    reserve(rows * shape.query_width(), &block.attention);
    reserve(rows * hidden_, &block.middle);
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
  const int64_t half = head_dim_ / 2;
  std::vector<float> cosine;
  std::vector<float> sine;
  for (int64_t position = 0; position < length_; ++position) {
    for (int64_t i = 0; i < half; ++i) {
      const double angle =
          static_cast<double>(position) * RopeFrequency(config, i, half);
      cosine.push_back(static_cast<float>(std::cos(angle)));
      sine.push_back(static_cast<float>(std::sin(angle)));
    }
  }
  const size_t bytes = cosine.size() * sizeof(float);
  ops_->CopyToDevice(cosine.data(), bytes, rope_cosine_);
  ops_->CopyToDevice(sine.data(), bytes, rope_sine_);
}

}  // namespace causeway
