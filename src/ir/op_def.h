#pragma once

#include <cstddef>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/attrs.h"
#include "ir/value.h"

namespace hearth {
class ThreadPool;
}
namespace hearth::distributed {
class ProcessGroup;
}
namespace hearth::gpu {
class Stream;
}

namespace hearth::ir {

class Graph;
struct Node;
struct OpDef;

/// Description of a node that the functions of OpDef receive: attributes, and types of inputs and outputs.
/// For `infer`, the output types are not available yet.
struct NodeView {
  const Attrs& attrs;
  std::span<const Type> in;
  std::span<const Type> out;
  /// Number of threads that the kernel will run on.
  int num_threads = 1;
  /// True if convolutions on the CPU may use Winograd's algorithm.
  bool winograd = true;
  const Type& in_type(size_t index) const { return in[index]; }
  const Type& out_type(size_t index) const { return out[index]; }
  /// True if optional input `index` is present. An absent input has rank 0 and dtype boolean.
  bool has_input(size_t index) const { return index < in.size() && in[index].dtype != DType::boolean; }
};

/// Result of shape inference: the output types, or in `error` the reason why the node is invalid (one
/// sentence without the node's name).
struct Inferred {
  std::vector<Type> out;
  std::string error;
};
/// Returns a result of shape inference that rejects the node for the reason `error`.
inline Inferred refuse(std::string error) { return {.out = {}, .error = std::move(error)}; }

/// Arguments for one run of a kernel. Absent inputs are null. Buffers are aligned to 64 bytes, and do not
/// overlap unless the op writes an input or works in place.
struct KernelArgs {
  std::span<void* const> in;
  std::span<void* const> out;
  std::byte* workspace = nullptr;
  ThreadPool* threads = nullptr;
  distributed::ProcessGroup* group = nullptr;  ///< process group of a collective; null if there is one worker
  /// GPU kernels only: stream on which run() enqueues its work. Buffers are then in GPU memory.
  gpu::Stream* stream = nullptr;

  template <typename T>
  const T* input(size_t index) const {
    return static_cast<const T*>(in[index]);
  }
  template <typename T>
  T* output(size_t index) const {
    return static_cast<T*>(out[index]);
  }
};

/// A kernel prepared for one node. All decisions are made during preparation, and run() allocates no memory.
/// Outputs are uninitialized before a run.
struct Kernel {
  std::function<void(const KernelArgs&)> run;
  int64_t workspace_bytes = 0;
};

/// Arguments of an op's reference implementation, which tests use: it computes one node in double precision
/// on row-major arrays.
struct ReferenceArgs {
  const NodeView& node;
  std::span<const std::vector<double>> in;
  std::span<std::vector<double>> out;  ///< the caller has resized the arrays to the output shapes
};

/// Arguments of an op's vector-Jacobian product (vjp), which appends the nodes of a node's gradient to the
/// graph. `grad_out[i]` is the cotangent of output i; kNone if there is none. The vjp returns the cotangent
/// of each input, or kNone.
struct VjpContext {
  Graph& graph;
  const Node& node;
  std::span<const ValueId> grad_out;
  /// Returns the op with that name. A gradient may consist of any ops.
  const OpDef& (*op)(std::string_view name);
};

/// Kind of a GPU kernel. cost/kernel_share.cpp has the fraction of the GPU's matmul rate that each kind
/// reaches. The two letters of a matmul stand for its operands a and b, each normal (n) or transposed (t); nt
/// includes matmuls with both transposed.
enum class KernelKind : uint8_t {
  elementwise,
  matmul_nn,
  matmul_nt,
  matmul_tn,
  quantized_matmul_nn,
  quantized_matmul_nt,
  conv,
  conv_pool,
  grouped_conv,
  depthwise_conv,
  depthwise_conv_grad_input,
  depthwise_conv_grad_weight,
  attention,
  attention_grad,
  attention_grad_large_heads,  ///< head_size above 64
  head,
  resize,
  simota,
  rope_table,
  timestep_embedding,
};

/// Floating-point operations of one run of a node, and bytes that it reads and writes.
struct Cost {
  double flops = 0;
  double bytes = 0;
  KernelKind kernel = KernelKind::elementwise;
  double rows = 0;  ///< for a quantized matmul: number of rows of the result
  /// Number of equal parts into which the work is divided. A compute unit of a GPU processes one part at a
  /// time. 0: any number.
  double blocks = 0;
  /// Fraction of the computed work that `flops` counts; the rest is padding, or recomputed.
  double filled = 1;
};

/// Treatment of an op by autocast (mixed precision).
enum class Precision : uint8_t {
  follow,   ///< computes in the dtype of its inputs
  compute,  ///< computes in the low-precision dtype (matmul, convolution)
  full,     ///< requires f32 inputs (losses, optimizers)
};

/// A node outside of any graph, with its own attributes and types.
struct StandaloneNode {
  Attrs attrs;
  std::vector<Type> in, out;

  NodeView view() const { return {.attrs = attrs, .in = in, .out = out}; }
};

/// Data movement of an op: direction of a copy between device and host memory, or communication with other
/// workers.
enum class Transfer : uint8_t {
  none,
  fetch,  ///< copy from host to device: the last input is in host memory, output 0 on the device
  store,  ///< copy from device to host: overwrites input 1, which is in host memory, with input 0
  stash,  ///< copy from device to host: output 0 is a new value in host memory
  /// Collective or message. Output k is in the same memory as input k, which the host can access; no input is
  /// in host memory. May run concurrently with nodes that do not use its values.
  exchange,
};

/// An input of a test case: its type, and the distribution of its random elements.
struct SampleInput {
  enum class Fill : uint8_t {
    normal,
    positive,
    label,
    label_or_none,
    ascending,        ///< distinct integers below `bound`, ascending in each row
    log_probability,  ///< logarithms of probabilities whose sum over a row is below 1
    absent,
    zero,
    one,
    unit
  };
  Type type;
  Fill fill = Fill::normal;
  /// For Fill::label: exclusive upper bound of the labels. Fill::label_or_none also generates -1.
  int64_t bound = 0;
};
/// A test case of an op: inputs, attributes, and the tolerance of the fp32 kernel relative to float64.
struct Sample {
  std::vector<SampleInput> in = {};
  Attrs attrs = {};
  double tolerance = 1e-5;
};

/// Definition of an op: everything that the program knows about it. To add an op, add a source file with its
/// OpDef and kernels to its family's folder, and a line to ops/op_list.cpp. If an optional function is null,
/// the member after it (no_..._because) has the reason.
struct OpDef {
  std::string_view name;
  std::string_view doc;
  /// Names of the inputs in order, for example {"x", "weight", "bias?"}. A trailing ? marks an optional
  /// input, which a node sets to kNone, or omits if no required input follows. A trailing + on the last name
  /// means one or more inputs.
  std::vector<std::string_view> inputs;
  /// For ops whose last input has a +: max number of inputs in total.
  size_t max_inputs = std::numeric_limits<size_t>::max();
  /// Returns the name of a node's input at `index`, without ? or +.
  std::string_view input_name(size_t index) const;
  /// Returns the index of the input with that name, which must exist.
  size_t input_index(std::string_view input) const;
  /// True if input `index` is optional.
  bool is_optional(size_t index) const { return index < inputs.size() && inputs[index].ends_with('?'); }
  /// Returns why a node cannot have these inputs, as a sentence with the op's name; empty if it can.
  std::string inputs_error(std::span<const ValueId> given) const;
  Inferred (*infer)(const NodeView&) = nullptr;
  std::vector<ValueId> (*vjp)(const VjpContext&) = nullptr;
  std::string_view no_vjp_because = "";
  Kernel (*cpu)(const NodeView&) = nullptr;
  /// True if every GPU module has a kernel for the op (ir/gpu_kernel.h). Otherwise the host computes the op
  /// on copies of the inputs.
  bool gpu = false;
  /// True if the GPU kernel can execute several nodes at once (GpuKernel::many).
  bool gpu_many = false;
  void (*reference)(const ReferenceArgs&) = nullptr;
  std::string_view no_reference_because = "";
  /// null: no arithmetic, every input and output byte is moved once.
  Cost (*cost)(const NodeView&) = nullptr;
  Precision precision = Precision::follow;
  /// For Precision::follow: the number of first inputs that autocast casts to the dtype of the first one.
  size_t num_following = 2;
  /// For Precision::compute: the number of first inputs that autocast casts to the low-precision dtype.
  size_t num_lowered = std::numeric_limits<size_t>::max();
  /// Returns a node, without outputs, that recomputes output 0 of the given node without side effects. Null:
  /// the node itself is repeated if it has one output and writes no input; otherwise output 0 cannot be
  /// recomputed.
  Node (*repeat)(const Node&) = nullptr;
  /// For ops whose outputs are independent, instead of `repeat`: returns a node, without outputs, that
  /// recomputes output number `output` alone.
  Node (*repeat_output)(const Node&, size_t output) = nullptr;
  /// Returns attributes for which the op computes the same result, up to rounding, with a smaller workspace
  /// in more time (see `cost`); nullopt if the workspace is minimal. Null: the op has no such attributes.
  std::optional<Attrs> (*smaller)(const NodeView&) = nullptr;
  /// For ops with several outputs, instead of may_work_in_place: returns the index of the input whose bytes
  /// an output may share if it has the same type and is not read later; nullopt if there is none.
  std::optional<size_t> (*in_place_input)(const Node&, size_t output) = nullptr;
  /// True if output 0 may share the bytes of an input that has the same type and is not read later.
  bool may_work_in_place = false;
  /// True if output 0 is a view: it has the bytes of input 0 with another shape, and no kernel runs.
  bool is_view = false;
  /// For each output, the index of the input whose bytes it overwrites, or -1. Empty: no output overwrites an
  /// input.
  std::vector<int> writes = {};
  Transfer transfer = Transfer::none;
  /// True if the node updates persistent state in addition to its outputs, so it is not removed as dead code.
  bool keeps_alive() const { return !writes.empty(); }
  /// For elementwise ops: computes out[i] = f(in0[i], in1[i], p0, p1) for `count` elements in f32.
  void (*elementwise)(const float* in0, const float* in1, float* out, int64_t count, float p0,
                      float p1) = nullptr;
  std::vector<Sample> (*samples)() = nullptr;
};

}  // namespace hearth::ir
