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

/// What a node looks like to a rule: its attributes and the types around it. Output types are filled in for
/// every rule but `infer`.
struct NodeView {
  const Attrs& attrs;
  std::span<const Type> in;
  std::span<const Type> out;
  /// How many threads the kernel will be given.
  int num_threads = 1;
  /// True if convolutions on the CPU may use Winograd's algorithm.
  bool winograd = true;
  const Type& in_type(size_t index) const { return in[index]; }
  const Type& out_type(size_t index) const { return out[index]; }
  /// Whether optional input `index` is present (absent ones have rank 0 and dtype boolean).
  bool has_input(size_t index) const { return index < in.size() && in[index].dtype != DType::boolean; }
};

/// Result of shape inference: output types, or why the node is refused (one sentence without the node's
/// name).
struct Inferred {
  std::vector<Type> out;
  std::string error;
};
inline Inferred refuse(std::string error) { return {.out = {}, .error = std::move(error)}; }

/// What a kernel is called with. Absent inputs are null. Buffers are 64-byte aligned and never overlap,
/// except where the op declares that it writes an input or may work in place.
struct KernelArgs {
  std::span<void* const> in;
  std::span<void* const> out;
  std::byte* workspace = nullptr;
  ThreadPool* threads = nullptr;
  distributed::ProcessGroup* group = nullptr;  ///< of collectives; null: this worker is alone
  gpu::Stream* stream = nullptr;  ///< of GpuKernel, whose buffers are a GPU's; run() puts its work there

  template <typename T>
  const T* input(size_t index) const {
    return static_cast<const T*>(in[index]);
  }
  template <typename T>
  T* output(size_t index) const {
    return static_cast<T*>(out[index]);
  }
};

/// A prepared kernel: everything decided, nothing allocated at run time. Output contents before a run are
/// undefined.
struct Kernel {
  std::function<void(const KernelArgs&)> run;
  int64_t workspace_bytes = 0;
};

/// Double-precision evaluation of one node on row-major arrays, for tests: values in, values out.
struct ReferenceArgs {
  const NodeView& node;
  std::span<const std::vector<double>> in;
  std::span<std::vector<double>> out;  ///< already sized
};

/// Builds the gradient of a node out of ordinary nodes. `grad_out[i]` is the cotangent of output i or kNone;
/// the result has one entry per input: its cotangent, or kNone where there is none.
struct VjpContext {
  Graph& graph;
  const Node& node;
  std::span<const ValueId> grad_out;
  /// The ops that it may add, by name: gradients lead from one family of ops to any other.
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

/// Floating-point work and memory traffic of one run.
struct Cost {
  double flops = 0;
  double bytes = 0;
  KernelKind kernel = KernelKind::elementwise;
  double rows = 0;    ///< of a quantized matmul
  double blocks = 0;  ///< equal parts of the flops, of which each unit of a GPU takes one at a time; 0: any
  double filled = 1;  ///< fraction of the blocks' outputs that exist
};

/// How autocast treats an op.
enum class Precision : uint8_t {
  follow,   ///< runs in the dtype of its inputs
  compute,  ///< wants the low-precision dtype (matmul, convolution)
  full,     ///< wants fp32 inputs (losses, optimizers)
};

/// A node that stands in no graph.
struct LoneNode {
  Attrs attrs;
  std::vector<Type> in, out;

  NodeView view() const { return {.attrs = attrs, .in = in, .out = out}; }
};

/// Which way an op copies between the device and host memory, if it does, or whether it meets other workers.
enum class Transfer : uint8_t {
  none,
  fetch,     ///< the last input is on the host, output 0 on the device
  store,     ///< overwrites input 1, which is on the host, with input 0
  stash,     ///< output 0 is on the host
  exchange,  ///< output k is where input k is, in memory the host sees, without inputs on the host; runs
             ///< beside all that does not touch it
};

/// One generated test case: inputs filled by `fill`, attributes, and tolerance of the fp32 kernel against
/// float64.
struct SampleInput {
  enum class Fill : uint8_t { normal, positive, label, label_or_none, absent, zero, one, unit };
  Type type;
  Fill fill = Fill::normal;
  /// For labels: exclusive upper bound; label_or_none also draws -1.
  int64_t bound = 0;
};
struct Sample {
  std::vector<SampleInput> in = {};
  Attrs attrs = {};
  double tolerance = 1e-5;
};

/// One operation: everything the engine knows about it. To add one: a folder-mate file with the record and
/// kernels, one line in ops/op_list.cpp. A missing optional part says why in its partner field.
struct OpDef {
  std::string_view name;
  std::string_view doc;
  /// Names of the inputs, in order: {"x", "weight", "bias?"}. A trailing ? marks one that may be absent:
  /// kNone in a node, or left out where only such ones follow. A trailing + of the last one: one or more of
  /// it.
  std::vector<std::string_view> inputs;
  /// With a +: how many inputs a node has at most, in all.
  size_t most_inputs = std::numeric_limits<size_t>::max();
  /// The name of a node's input number `index`, without its mark.
  std::string_view input_name(size_t index) const;
  /// The other way round; it must be there.
  size_t input_index(std::string_view input) const;
  /// Whether a node may lack it.
  bool is_optional(size_t index) const { return index < inputs.size() && inputs[index].ends_with('?'); }
  /// Why a node may not have these inputs, in one sentence with the op's name; empty: it may.
  std::string inputs_fault(std::span<const ValueId> given) const;
  Inferred (*infer)(const NodeView&) = nullptr;
  std::vector<ValueId> (*vjp)(const VjpContext&) = nullptr;
  std::string_view no_vjp_because = "";
  Kernel (*cpu)(const NodeView&) = nullptr;
  /// Every module for GPUs has a kernel for it (ir/gpu_kernel.h); else the host computes in between, from
  /// copies.
  bool gpu = false;
  /// That kernel takes many nodes at once.
  bool gpu_many = false;
  void (*reference)(const ReferenceArgs&) = nullptr;
  std::string_view no_reference_because = "";
  Cost (*cost)(const NodeView&) = nullptr;  ///< null: no arithmetic, each byte moved once
  Precision precision = Precision::follow;
  /// Precision::follow: how many leading inputs autocast brings to the dtype of the first.
  size_t num_following = 2;
  /// Precision::compute: how many leading inputs autocast brings to the low-precision dtype.
  size_t num_lowered = std::numeric_limits<size_t>::max();
  /// The node that makes output 0 again without side effects, its outputs left empty. Null: the node itself,
  /// if it has one output and writes nothing; else output 0 cannot be made again.
  Node (*repeat)(const Node&) = nullptr;
  /// Attributes under which the op makes the same, but for rounding, in less workspace and more time, as its
  /// cost says; nothing where it needs what it has. Null: always nothing.
  std::optional<Attrs> (*smaller)(const NodeView&) = nullptr;
  /// Output 0 may share the bytes of an input of equal type that dies here.
  bool may_work_in_place = false;
  /// Output 0 is a view: the same bytes as input 0 under another shape; no kernel runs.
  bool is_view = false;
  /// writes[k] = index of the input whose bytes output k overwrites, or -1. Empty: none.
  std::vector<int> writes = {};
  Transfer transfer = Transfer::none;
  /// Has an effect beyond its outputs being read (updates persistent state): never removed as dead.
  bool keeps_alive() const { return !writes.empty(); }
  /// Elementwise ops (one row each) evaluate a run of f32 elements: out[i] = f(in0[i], in1[i], p0, p1).
  void (*elementwise)(const float* in0, const float* in1, float* out, int64_t count, float p0,
                      float p1) = nullptr;
  std::vector<Sample> (*samples)() = nullptr;
};

}  // namespace hearth::ir
