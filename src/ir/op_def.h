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

/// A node as seen by the functions of OpDef: its attributes and the types of its inputs and outputs. Output
/// types are available to every function except `infer`.
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
  /// True if optional input `index` is present (absent inputs have rank 0 and dtype boolean).
  bool has_input(size_t index) const { return index < in.size() && in[index].dtype != DType::boolean; }
};

/// Result of shape inference: the output types, or the reason why the node is invalid (one sentence without
/// the node's name).
struct Inferred {
  std::vector<Type> out;
  std::string error;
};
/// Returns an inference error.
inline Inferred refuse(std::string error) { return {.out = {}, .error = std::move(error)}; }

/// Arguments of a kernel run. Absent inputs are null. Buffers are 64-byte aligned and do not overlap, except
/// where the op declares that it writes an input or may work in place.
struct KernelArgs {
  std::span<void* const> in;
  std::span<void* const> out;
  std::byte* workspace = nullptr;
  ThreadPool* threads = nullptr;
  distributed::ProcessGroup* group = nullptr;  ///< for collectives; null if there is a single worker
  /// GPU kernels: the stream on which run() enqueues its work; buffers are in GPU memory
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

/// A prepared kernel: all decisions are made in advance, and no memory is allocated at run time. Outputs are
/// uninitialized before a run.
struct Kernel {
  std::function<void(const KernelArgs&)> run;
  int64_t workspace_bytes = 0;
};

/// Arguments of an op's reference implementation, which evaluates one node in double precision on row-major
/// arrays, for tests.
struct ReferenceArgs {
  const NodeView& node;
  std::span<const std::vector<double>> in;
  std::span<std::vector<double>> out;  ///< resized to the output shapes by the caller
};

/// Arguments of an op's vector-Jacobian product (vjp), which builds the gradient of a node from ordinary
/// nodes. `grad_out[i]` is the cotangent of output i, or kNone. The result has one entry per input: its
/// cotangent, or kNone if there is none.
struct VjpContext {
  Graph& graph;
  const Node& node;
  std::span<const ValueId> grad_out;
  /// Returns an op by name: gradients may use ops of any family.
  const OpDef& (*op)(std::string_view name);
};

/// Kind of a GPU kernel; cost/kernel_share.cpp has the fraction of the GPU's matmul rate that each kind
/// reaches. Matmuls: n or t as operand a, then b, is transposed; nt includes matmuls with both transposed.
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

/// Floating-point operations and bytes read and written by one run of a node.
struct Cost {
  double flops = 0;
  double bytes = 0;
  KernelKind kernel = KernelKind::elementwise;
  double rows = 0;    ///< of a quantized matmul
  double blocks = 0;  ///< equal parts of the flops, of which each unit of a GPU takes one at a time; 0: any
  double filled = 1;  ///< fraction of the blocks' outputs that exist
};

/// Treatment of an op by autocast (mixed precision).
enum class Precision : uint8_t {
  follow,   ///< runs in the dtype of its inputs
  compute,  ///< runs in the low-precision dtype (matmul, convolution)
  full,     ///< needs fp32 inputs (losses, optimizers)
};

/// A node outside any graph, which owns its attributes and types.
struct StandaloneNode {
  Attrs attrs;
  std::vector<Type> in, out;

  NodeView view() const { return {.attrs = attrs, .in = in, .out = out}; }
};

/// Data movement of an op: the direction of a copy between device and host memory, or communication
/// with other workers.
enum class Transfer : uint8_t {
  none,
  fetch,  ///< host to device: the last input is in host memory, output 0 on the device
  store,  ///< device to host: overwrites input 1, which is in host memory, with input 0
  stash,  ///< device to host: output 0 is a new value in host memory
  /// collective or message: output k is where input k is, in memory that the host can access; no input is in
  /// host memory; may run concurrently with nodes that do not touch its values
  exchange,
};

/// An input of a generated test case: its type and the random distribution of its elements.
struct SampleInput {
  enum class Fill : uint8_t { normal, positive, label, label_or_none, absent, zero, one, unit };
  Type type;
  Fill fill = Fill::normal;
  /// For labels: exclusive upper bound; label_or_none also generates -1.
  int64_t bound = 0;
};
/// A generated test case: inputs, attributes, and tolerance of the fp32 kernel against float64.
struct Sample {
  std::vector<SampleInput> in = {};
  Attrs attrs = {};
  double tolerance = 1e-5;
};

/// The record of an operation: all that the engine knows about it. To add an op, add a source with its record
/// and kernels to the family's folder and one line to ops/op_list.cpp. If an optional function is missing,
/// the field next to it (no_..._because) contains the reason.
struct OpDef {
  std::string_view name;
  std::string_view doc;
  /// Names of the inputs, in order: {"x", "weight", "bias?"}. A trailing ? marks an optional input: kNone in
  /// a node, or omitted if only optional inputs follow. A trailing + on the last name: one or more inputs.
  std::vector<std::string_view> inputs;
  /// Maximum total number of inputs, for ops with a + input.
  size_t max_inputs = std::numeric_limits<size_t>::max();
  /// Returns the name of a node's input number `index`, without ? or +.
  std::string_view input_name(size_t index) const;
  /// Returns the index of the input with that name, which must exist.
  size_t input_index(std::string_view input) const;
  /// True if input `index` is optional.
  bool is_optional(size_t index) const { return index < inputs.size() && inputs[index].ends_with('?'); }
  /// Returns why a node cannot have these inputs, as one sentence with the op's name; empty if it can.
  std::string inputs_error(std::span<const ValueId> given) const;
  Inferred (*infer)(const NodeView&) = nullptr;
  std::vector<ValueId> (*vjp)(const VjpContext&) = nullptr;
  std::string_view no_vjp_because = "";
  Kernel (*cpu)(const NodeView&) = nullptr;
  /// True if every GPU module has a kernel for the op (ir/gpu_kernel.h). Otherwise the host computes
  /// it on copies.
  bool gpu = false;
  /// True if that GPU kernel can run many nodes at once.
  bool gpu_many = false;
  void (*reference)(const ReferenceArgs&) = nullptr;
  std::string_view no_reference_because = "";
  Cost (*cost)(const NodeView&) = nullptr;  ///< null: no arithmetic, each byte moved once
  Precision precision = Precision::follow;
  /// For Precision::follow: number of leading inputs that autocast casts to the dtype of the first.
  size_t num_following = 2;
  /// For Precision::compute: number of leading inputs that autocast casts to the low-precision dtype.
  size_t num_lowered = std::numeric_limits<size_t>::max();
  /// Returns a node that recomputes output 0 without side effects (its `outputs` are empty). Null: the node
  /// itself if it has one output and writes nothing; otherwise output 0 cannot be recomputed.
  Node (*repeat)(const Node&) = nullptr;
  /// Returns attributes with which the op gives the same result, up to rounding, with a smaller workspace in
  /// more time (see `cost`); nullopt if the workspace cannot shrink. Null: never.
  std::optional<Attrs> (*smaller)(const NodeView&) = nullptr;
  /// True if output 0 may share the bytes of an input of equal type whose lifetime ends at this node.
  bool may_work_in_place = false;
  /// True if output 0 is a view: the same bytes as input 0 with another shape; no kernel runs.
  bool is_view = false;
  /// writes[k] = index of the input whose bytes output k overwrites, or -1. Empty: no output
  /// overwrites an input.
  std::vector<int> writes = {};
  Transfer transfer = Transfer::none;
  /// True if the node has an effect beyond its outputs (updates persistent state): never removed
  /// as dead code.
  bool keeps_alive() const { return !writes.empty(); }
  /// For elementwise ops: evaluates a range of f32 elements, out[i] = f(in0[i], in1[i], p0, p1).
  void (*elementwise)(const float* in0, const float* in1, float* out, int64_t count, float p0,
                      float p1) = nullptr;
  std::vector<Sample> (*samples)() = nullptr;
};

}  // namespace hearth::ir
