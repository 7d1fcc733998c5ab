// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/model/cuda/cudnn_attention.h"

#include <cudnn_frontend.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <exception>
#include <map>
#include <string>
#include <unordered_map>

#include "absl/strings/str_cat.h"
#include "common/cuda_status.h"
#include "common/os/shared_library.h"
#include "common/status_macros.h"
#include "glog/logging.h"

namespace causeway {
namespace {

namespace fe = cudnn_frontend;
using fe::graph::Tensor_attributes;

constexpr int kCudaMajor = CUDART_VERSION / 1000;

// The deterministic backward pass keeps the gradient of all scores of a call in
// scratch memory, in bf16. Calls take as many sequences, or heads of one, as
// fit in this part of the device's memory.
constexpr size_t kScoresPartOfMemory = 64;

// Other lengths need masks for the missing part of a tile.
constexpr int64_t kLengthMultiple = 128;

absl::StatusOr<SharedLibrary> LoadLibrary() {
  // cuDNN looks for NVRTC itself, but not in all the places that we do.
  RETURN_IF_ERROR(
      LoadCudaLibrary("libnvrtc", kCudaMajor,
                      absl::StrCat("install the NVRTC of CUDA ", kCudaMajor))
          .status());
  ASSIGN_OR_RETURN(const SharedLibrary library,
                   LoadCudaLibrary("libcudnn", CUDNN_MAJOR,
                                   absl::StrCat("install cuDNN ", CUDNN_MAJOR,
                                                " for CUDA ", kCudaMajor)));
  // cuDNN for another CUDA ends the process if it does not find its libraries.
  decltype(&cudnnGetCudartVersion) cuda_version = nullptr;
  RETURN_IF_ERROR(library.Find("cudnnGetCudartVersion", cuda_version));
  if (cuda_version() / 1000 != kCudaMajor) {
    return absl::FailedPreconditionError(
        absl::StrCat(library.Path(), " is for CUDA ", cuda_version() / 1000,
                     ", this program for CUDA ", kCudaMajor));
  }
  return library;
}

// The library is loaded once for the process, and never unloaded.
const absl::StatusOr<SharedLibrary>& Library() {
  static const auto& library =
      *new absl::StatusOr<SharedLibrary>(LoadLibrary());
  return library;
}

// Returns a function that every cuDNN 9 has.
template <typename Function>
Function* FunctionOf(const char* name) {
  Function* function = nullptr;
  CHECK(Library()->Find(name, function).ok()) << name;
  return function;
}

}  // namespace
}  // namespace causeway

// The frontend calls these by name, as if the program were linked with cuDNN.
#define FORWARD(result, name, parameters, ...)                                 \
  result name parameters {                                                     \
    static auto* const function = causeway::FunctionOf<decltype(name)>(#name); \
    return function(__VA_ARGS__);                                              \
  }
extern "C" {
FORWARD(size_t, cudnnGetVersion, ())
FORWARD(const char*, cudnnGetErrorString, (cudnnStatus_t status), status)
FORWARD(void, cudnnGetLastErrorString, (char* message, size_t size), message,
        size)
FORWARD(cudnnStatus_t, cudnnCreate, (cudnnHandle_t * handle), handle)
FORWARD(cudnnStatus_t, cudnnDestroy, (cudnnHandle_t handle), handle)
FORWARD(cudnnStatus_t, cudnnSetStream,
        (cudnnHandle_t handle, cudaStream_t stream), handle, stream)
FORWARD(cudnnStatus_t, cudnnGetStream,
        (cudnnHandle_t handle, cudaStream_t* stream), handle, stream)
FORWARD(cudnnStatus_t, cudnnBackendCreateDescriptor,
        (cudnnBackendDescriptorType_t type,
         cudnnBackendDescriptor_t* descriptor),
        type, descriptor)
FORWARD(cudnnStatus_t, cudnnBackendDestroyDescriptor,
        (cudnnBackendDescriptor_t descriptor), descriptor)
FORWARD(cudnnStatus_t, cudnnBackendFinalize,
        (cudnnBackendDescriptor_t descriptor), descriptor)
FORWARD(cudnnStatus_t, cudnnBackendSetAttribute,
        (cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
         cudnnBackendAttributeType_t type, int64_t count, const void* values),
        descriptor, name, type, count, values)
FORWARD(cudnnStatus_t, cudnnBackendGetAttribute,
        (const cudnnBackendDescriptor_t descriptor,
         cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
         int64_t requested, int64_t* count, void* values),
        descriptor, name, type, requested, count, values)
FORWARD(cudnnStatus_t, cudnnBackendExecute,
        (cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
         cudnnBackendDescriptor_t arrays),
        handle, plan, arrays)
}
#undef FORWARD

namespace causeway {
namespace {

enum Array : int64_t {
  kQuery = 1,
  kKey,
  kValue,
  kOutput,
  kLogSumExp,
  kOutputGradient,
  kQueryGradient,
  kKeyGradient,
  kValueGradient,
};

// The further lines of the frontend's messages are for its developers.
absl::Status FromFrontend(fe::error_t error) {
  if (error.is_good()) return absl::OkStatus();
  const std::string message = error.get_message();
  return absl::UnimplementedError(
      absl::StrCat("cuDNN: ", message.substr(0, message.find('\n'))));
}

// Calls `function`, which returns a status and may throw.
template <typename Function>
absl::Status WithoutExceptions(Function function) {
  try {
    return function();
  } catch (const std::exception& error) {
    return absl::UnimplementedError(absl::StrCat("cuDNN: ", error.what()));
  }
}

std::string Describe(const AttentionShape& shape, AttentionPass pass) {
  return absl::StrCat(pass == AttentionPass::kForward ? "" : "the gradient of ",
                      "attention of ", shape.batch, " by ", shape.length, ", ",
                      shape.heads, " heads of ", shape.head_dim, ", ",
                      shape.kv_heads, " for keys");
}

// Returns the largest divisor of `number` that is at most `most`, which is at
// least 1.
int64_t LargestDivisor(int64_t number, int64_t most) {
  int64_t divisor = std::min(number, most);
  while (number % divisor != 0) --divisor;
  return divisor;
}

// Returns what one call computes: sequences of the batch, or heads of one.
//   UNIMPLEMENTED  the scores of one key head are too many.
absl::StatusOr<AttentionShape> PartOf(const AttentionShape& shape,
                                      AttentionPass pass,
                                      int64_t most_score_bytes) {
  AttentionShape part = shape;
  if (pass == AttentionPass::kForward) return part;
  const int64_t group = shape.heads / shape.kv_heads;
  const int64_t most_kv_heads =
      most_score_bytes / (group * shape.length * shape.length * 2);
  if (most_kv_heads == 0) {
    return absl::UnimplementedError("too long for a deterministic gradient");
  }
  part.kv_heads = LargestDivisor(shape.kv_heads, most_kv_heads);
  part.heads = part.kv_heads * group;
  part.batch = part.kv_heads < shape.kv_heads
                   ? 1
                   : LargestDivisor(shape.batch, most_kv_heads / part.kv_heads);
  return part;
}

// Checks that cuDNN may take the shape. Other shapes may change from call to
// call, so they have no plans, and the log does not name them.
absl::Status CheckShape(const AttentionShape& shape) {
  if (shape.document_begin == nullptr && shape.first == 0 &&
      shape.length % kLengthMultiple == 0) {
    return absl::OkStatus();
  }
  return absl::UnimplementedError(absl::StrCat(
      "cuDNN takes only whole sequences of one document, of a multiple of ",
      kLengthMultiple, " tokens"));
}

// Describes a pass over a part of `shape`.
void DescribePass(const AttentionShape& shape, const AttentionShape& part,
                  AttentionPass pass, fe::graph::Graph& graph) {
  graph.set_io_data_type(fe::DataType_t::BFLOAT16)
      .set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_compute_data_type(fe::DataType_t::FLOAT);
  // Places heads in rows of `width` values.
  const auto place = [&](Array array, int64_t heads, int64_t width,
                         Tensor_attributes& tensor) {
    tensor.set_uid(array)
        .set_dim({part.batch, heads, part.length, part.head_dim})
        .set_stride({part.length * width, part.head_dim, width, 1});
  };
  const auto input = [&](Array array, int64_t heads, int64_t width) {
    Tensor_attributes tensor;
    place(array, heads, width, tensor);
    return graph.tensor(tensor);
  };
  const auto place_log_sum_exp = [&](Tensor_attributes& tensor) {
    tensor.set_uid(kLogSumExp)
        .set_data_type(fe::DataType_t::FLOAT)
        .set_dim({part.batch, part.heads, part.length, 1})
        .set_stride({part.heads * part.length, part.length, 1, 1});
  };
  const int64_t width = shape.qkv_width();
  const float scale = 1 / std::sqrt(static_cast<float>(shape.head_dim));
  const auto query = input(kQuery, part.heads, width);
  const auto key = input(kKey, part.kv_heads, width);
  const auto value = input(kValue, part.kv_heads, width);
  if (pass == AttentionPass::kForward) {
    const auto [output, log_sum_exp] =
        graph.sdpa(query, key, value,
                   fe::graph::SDPA_attributes()
                       .set_name("attention")
                       .set_causal_mask(true)
                       .set_attn_scale(scale)
                       .set_generate_stats(true));
    place(kOutput, part.heads, shape.query_width(), output->set_output(true));
    place_log_sum_exp(log_sum_exp->set_output(true));
    return;
  }
  Tensor_attributes log_sum_exp;
  place_log_sum_exp(log_sum_exp);
  const auto [d_query, d_key, d_value] = graph.sdpa_backward(
      query, key, value, input(kOutput, part.heads, shape.query_width()),
      input(kOutputGradient, part.heads, shape.query_width()),
      graph.tensor(log_sum_exp),
      fe::graph::SDPA_backward_attributes()
          .set_name("attention")
          .set_causal_mask(true)
          .set_attn_scale(scale)
          .set_deterministic_algorithm(true));
  place(kQueryGradient, part.heads, width, d_query->set_output(true));
  place(kKeyGradient, part.kv_heads, width, d_key->set_output(true));
  place(kValueGradient, part.kv_heads, width, d_value->set_output(true));
  graph.deselect_numeric_notes({fe::NumericalNote_t::NONDETERMINISTIC});
}

// Returns the address after `values` values of bf16 at `array`.
void* At(const void* array, int64_t values) {
  return const_cast<char*>(static_cast<const char*>(array)) + 2 * values;
}

// The arrays of a pass; those for gradients are null in the forward pass.
struct Arrays {
  const void* qkv = nullptr;
  const void* output = nullptr;
  const float* log_sum_exp = nullptr;
  const void* d_output = nullptr;
  void* d_qkv = nullptr;
};

struct Plan {
  // An error says why cuDNN does not compute the pass.
  absl::Status status;
  // One call computes the pass for this part of the shape.
  AttentionShape part;
  fe::graph::Graph graph;
  size_t scratch_bytes = 0;
};

// Keeps and logs an error, after which cuDNN does not compute the pass.
void KeepStatus(const AttentionShape& shape, AttentionPass pass,
                const absl::Status& status, Plan& plan) {
  plan.status.Update(status);
  if (status.ok()) return;
  LOG(WARNING) << "cuDNN does not compute " << Describe(shape, pass) << ": "
               << status.message();
}

class LoadedCudnnAttention final : public CudnnAttention {
 public:
  explicit LoadedCudnnAttention(cudnnHandle_t handle) : handle_(handle) {}
  ~LoadedCudnnAttention() override {
    plans_.clear();
    cudnnDestroy(handle_);
  }

  absl::Status Prepare(const AttentionShape& shape,
                       AttentionPass pass) override {
    RETURN_IF_ERROR(CheckShape(shape));
    return Find(shape, pass).status;
  }
  absl::Status Forward(const AttentionShape& shape, const void* qkv,
                       void* output, float* log_sum_exp,
                       Scratch scratch) override {
    return Run(shape, AttentionPass::kForward,
               {.qkv = qkv, .output = output, .log_sum_exp = log_sum_exp},
               scratch);
  }
  absl::Status Backward(const AttentionShape& shape, const void* qkv,
                        const void* output, const float* log_sum_exp,
                        const void* d_output, void* d_qkv,
                        Scratch scratch) override {
    return Run(shape, AttentionPass::kBackward,
               {.qkv = qkv,
                .output = output,
                .log_sum_exp = log_sum_exp,
                .d_output = d_output,
                .d_qkv = d_qkv},
               scratch);
  }

 private:
  Plan& Find(const AttentionShape& shape, AttentionPass pass);
  absl::Status MakePlan(const AttentionShape& shape, AttentionPass pass,
                        Plan& plan);
  absl::Status Run(const AttentionShape& shape, AttentionPass pass,
                   const Arrays& arrays, Scratch scratch);
  absl::Status Execute(const AttentionShape& shape, AttentionPass pass,
                       const Arrays& arrays, void* scratch, Plan& plan);

  const cudnnHandle_t handle_;
  std::map<std::array<int64_t, 6>, Plan> plans_;
};

absl::Status LoadedCudnnAttention::MakePlan(const AttentionShape& shape,
                                            AttentionPass pass, Plan& plan) {
  size_t free = 0;
  size_t total = 0;
  RETURN_IF_ERROR(CudaStatus(cudaMemGetInfo(&free, &total),
                             "querying the device's free memory"));
  ASSIGN_OR_RETURN(
      plan.part,
      PartOf(shape, pass, static_cast<int64_t>(total / kScoresPartOfMemory)));
  std::string name;
  RETURN_IF_ERROR(WithoutExceptions([&]() -> absl::Status {
    fe::graph::Graph& graph = plan.graph;
    DescribePass(shape, plan.part, pass, graph);
    RETURN_IF_ERROR(FromFrontend(graph.validate()));
    RETURN_IF_ERROR(FromFrontend(graph.build_operation_graph(handle_)));
    RETURN_IF_ERROR(
        FromFrontend(graph.create_execution_plans({fe::HeurMode_t::A})));
    RETURN_IF_ERROR(FromFrontend(graph.check_support()));
    RETURN_IF_ERROR(FromFrontend(graph.build_plans()));
    int64_t bytes = 0;
    RETURN_IF_ERROR(FromFrontend(graph.get_workspace_size(bytes)));
    plan.scratch_bytes = static_cast<size_t>(bytes);
    return FromFrontend(graph.get_plan_name(name));
  }));
  // Training takes more memory after its first pass.
  if (plan.scratch_bytes > free / 2) {
    return absl::ResourceExhaustedError(
        absl::StrCat("it needs ", plan.scratch_bytes >> 20,
                     " MiB of scratch memory, and ", free >> 20, " are free"));
  }
  LOG(INFO) << "cuDNN " << cudnnGetVersion() << " computes "
            << Describe(shape, pass) << ", by " << name << " on "
            << plan.part.batch << " by " << plan.part.heads << " heads with "
            << (plan.scratch_bytes >> 20) << " MiB of scratch memory";
  return absl::OkStatus();
}

Plan& LoadedCudnnAttention::Find(const AttentionShape& shape,
                                 AttentionPass pass) {
  const auto [found, is_new] = plans_.try_emplace(
      {shape.batch, shape.length, shape.heads, shape.kv_heads, shape.head_dim,
       static_cast<int64_t>(pass)});
  Plan& plan = found->second;
  if (is_new) KeepStatus(shape, pass, MakePlan(shape, pass, plan), plan);
  return plan;
}

absl::Status LoadedCudnnAttention::Run(const AttentionShape& shape,
                                       AttentionPass pass, const Arrays& arrays,
                                       Scratch scratch) {
  RETURN_IF_ERROR(CheckShape(shape));
  Plan& plan = Find(shape, pass);
  RETURN_IF_ERROR(plan.status);
  void* const memory = scratch(std::max<size_t>(plan.scratch_bytes, 1));
  if (memory == nullptr) {
    return absl::ResourceExhaustedError("no scratch memory for cuDNN");
  }
  KeepStatus(shape, pass, Execute(shape, pass, arrays, memory, plan), plan);
  return plan.status;
}

absl::Status LoadedCudnnAttention::Execute(const AttentionShape& shape,
                                           AttentionPass pass,
                                           const Arrays& arrays, void* scratch,
                                           Plan& plan) {
  const AttentionShape& part = plan.part;
  const int64_t group = shape.heads / shape.kv_heads;
  for (int64_t b = 0; b < shape.batch; b += part.batch) {
    for (int64_t h = 0; h < shape.kv_heads; h += part.kv_heads) {
      const int64_t row = b * shape.length;
      const int64_t query =
          row * shape.qkv_width() + h * group * shape.head_dim;
      const int64_t key =
          row * shape.qkv_width() + shape.query_width() + h * shape.head_dim;
      const int64_t value = key + shape.kv_width();
      const int64_t output =
          row * shape.query_width() + h * group * shape.head_dim;
      std::unordered_map<int64_t, void*> pointers = {
          {kQuery, At(arrays.qkv, query)},
          {kKey, At(arrays.qkv, key)},
          {kValue, At(arrays.qkv, value)},
          {kOutput, At(arrays.output, output)},
          {kLogSumExp, const_cast<float*>(arrays.log_sum_exp) +
                           row * shape.heads + h * group * shape.length},
      };
      if (pass == AttentionPass::kBackward) {
        pointers[kOutputGradient] = At(arrays.d_output, output);
        pointers[kQueryGradient] = At(arrays.d_qkv, query);
        pointers[kKeyGradient] = At(arrays.d_qkv, key);
        pointers[kValueGradient] = At(arrays.d_qkv, value);
      }
      RETURN_IF_ERROR(WithoutExceptions([&] {
        return FromFrontend(plan.graph.execute(handle_, pointers, scratch));
      }));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<CudnnAttention>> MakeCudnnAttention(
    cudaStream_t stream) {
  RETURN_IF_ERROR(Library().status());
  cudnnHandle_t handle = nullptr;
  cudnnStatus_t status = cudnnCreate(&handle);
  if (status == CUDNN_STATUS_SUCCESS) status = cudnnSetStream(handle, stream);
  if (status != CUDNN_STATUS_SUCCESS) {
    return absl::FailedPreconditionError(
        absl::StrCat("starting cuDNN: ", cudnnGetErrorString(status)));
  }
  return std::make_unique<LoadedCudnnAttention>(handle);
}

}  // namespace causeway
