#include "bench/kernel.h"

#include "backend/cpu/convert.h"
#include "base/error.h"
#include "engine/gpu_options.h"
#include "exec/device/gpu.h"
#include "ops/op_list.h"

namespace hearth::bench {
namespace {

using ir::ValueId;

/// Number of launches between two readings of the GPU's clock: enough that launch overhead is negligible.
constexpr int kLaunches = 16;

/// The matmul op(a) op(b), where op(a) is [m, k] and op(b) is [k, n]; either may be stored transposed.
struct Matmul {
  int64_t m, n, k;
  bool transpose_a = false, transpose_b = true;
};

Matmul matmul_of(const BenchCase& bench) {
  const models::DecoderConfig decoder = bench_decoder(bench);
  const int64_t tokens = bench.batch * bench.length, hidden = decoder.hidden, wide = decoder.intermediate;
  if (bench.kernel == "matmul_q") return {tokens, decoder.num_heads * decoder.head_size, hidden};
  if (bench.kernel == "matmul_kv") return {tokens, decoder.num_kv_heads * decoder.head_size, hidden};
  if (bench.kernel == "matmul_up") return {tokens, wide, hidden};
  if (bench.kernel == "matmul_down") return {tokens, hidden, wide};
  if (bench.kernel == "matmul_head") return {tokens, decoder.vocab_size, hidden};
  if (bench.kernel == "matmul_up_dx") return {tokens, hidden, wide, false, false};
  HEARTH_CHECK(bench.kernel == "matmul_up_dw");
  return {wide, hidden, tokens, true, false};
}

void add_matmul(ir::Graph& graph, const BenchCase& bench) {
  const Matmul p = matmul_of(bench);
  const auto input = [&](const char* name, int64_t rows, int64_t columns, bool transposed) {
    const Shape shape = transposed ? Shape{columns, rows} : Shape{rows, columns};
    return graph.add_value(name, {.dtype = bench.precision, .shape = shape}, ir::Role::input);
  };
  const ValueId a = input("a", p.m, p.k, p.transpose_a), b = input("b", p.k, p.n, p.transpose_b);
  graph.add1(*ops::find_op("matmul"), {a, b},
             {{"transpose_a", int64_t{p.transpose_a}}, {"transpose_b", int64_t{p.transpose_b}}});
}

void add_attention(ir::Graph& graph, const BenchCase& bench) {
  const models::DecoderConfig decoder = bench_decoder(bench);
  const auto input = [&](const char* name, int64_t heads) {
    const Shape shape{bench.batch * bench.length, heads * decoder.head_size};
    return graph.add_value(name, {.dtype = bench.precision, .shape = shape}, ir::Role::input);
  };
  const ir::Attrs attrs = {{"batch", bench.batch},
                           {"heads", decoder.num_heads},
                           {"kv_heads", decoder.num_kv_heads},
                           {"head_size", decoder.head_size},
                           {"scale", decoder.attention_scale}};
  const ValueId q = input("q", decoder.num_heads);
  const ValueId k = input("k", decoder.num_kv_heads), v = input("v", decoder.num_kv_heads);
  const std::vector<ValueId> made = graph.add(*ops::find_op("attention"), {q, k, v}, attrs);
  if (bench.kernel == "attention") return;
  const ValueId dout = input("dout", decoder.num_heads);
  graph.add(*ops::find_op("attention_grad"), {q, k, v, made[0], made[1], dout}, attrs);
}

/// Builds the graph of a kernel case. The last node is the one that is timed.
ir::Graph kernel_graph(const BenchCase& bench) {
  ir::Graph graph;
  const bool is_matmul = bench.kernel.starts_with("matmul");
  is_matmul ? add_matmul(graph, bench) : add_attention(graph, bench);
  return graph;
}

class Kernel : public Workload {
 public:
  Kernel(const BenchCase& bench, const gpu::DeviceInfo& gpu, ir::Graph graph, int num_threads)
      : graph_(std::move(graph)),
        device_(gpu),
        stream_(device_),
        num_tokens_(bench.batch * bench.length),
        num_launches_(bench.tiny ? 1 : kLaunches) {
    ThreadPool threads(num_threads);
    for (const ir::Value& value : graph_.values) {
      addresses_.push_back(allocate(value.type.num_bytes()));
      if (value.role == ir::Role::input) draw(value, addresses_.back(), threads);
    }
    for (const ir::Node& node : graph_.nodes) prepare(node);
    for (size_t node = 0; node < kernels_.size(); ++node) launch(node);
    stream_.synchronize();
  }

  double run(int64_t) override {
    stream_.record(start_);
    for (int i = 0; i < num_launches_; ++i) launch(kernels_.size() - 1);
    stream_.record(end_);
    stream_.synchronize();
    return end_.seconds_since(start_) / num_launches_;
  }
  double flops() const override { return ir::cost_of(graph_, graph_.nodes.back()).flops; }
  int64_t num_samples() const override { return num_tokens_; }
  const gpu::DeviceInfo* gpu() const override { return &device_.info(); }
  int64_t gpu_bytes() const override { return gpu_bytes_; }

 private:
  std::byte* allocate(int64_t num_bytes) {
    num_bytes += exec::Gpu::kSlackBytes;
    gpu_bytes_ += num_bytes;
    return memory_.emplace_back(std::make_unique<gpu::Memory>(device_, num_bytes))->data();
  }
  void draw(const ir::Value& value, std::byte* address, ThreadPool& threads) {
    const Shape flat{value.type.shape.num_elements()};
    std::vector<float> values(static_cast<size_t>(flat[0]));
    const nn::Tensor tensor{.name = value.name,
                            .init = {.kind = nn::Init::Kind::normal, .scale = 1},
                            .layout = {.memory_view = flat, .file_axes = {0}, .file_shape = flat}};
    nn::initialize(tensor, 0, values, threads);
    std::vector<std::byte> bytes(static_cast<size_t>(value.type.num_bytes()));
    cpu::store_f32(value.type.dtype, values.data(), bytes.data(), 0, std::ssize(values));
    stream_.copy_in(address, bytes.data(), std::ssize(bytes));
    stream_.synchronize();
  }
  void prepare(const ir::Node& node) {
    const ir::NodeTypes types(graph_, node);
    const ir::NodeView view = types.view(node);
    kernels_.push_back(device_.info().driver->kernel(node.op->name, view));
    workspaces_.push_back(allocate(kernels_.back().workspace_bytes));
  }
  void launch(size_t node) {
    std::vector<void*> in, out;
    for (const ValueId id : graph_.nodes[node].inputs) in.push_back(addresses_[static_cast<size_t>(id)]);
    for (const ValueId id : graph_.nodes[node].outputs) out.push_back(addresses_[static_cast<size_t>(id)]);
    kernels_[node].run({.in = in, .out = out, .workspace = workspaces_[node], .stream = &stream_});
  }

  ir::Graph graph_;
  gpu::Device device_;
  gpu::Stream stream_;
  gpu::Event start_{gpu::Event::Kind::timed}, end_{gpu::Event::Kind::timed};
  std::vector<std::unique_ptr<gpu::Memory>> memory_;
  std::vector<std::byte*> addresses_;  ///< GPU address of each value of the graph
  std::vector<ir::Kernel> kernels_;
  std::vector<std::byte*> workspaces_;
  int64_t gpu_bytes_ = 0;
  int64_t num_tokens_;
  int num_launches_;
};

}  // namespace

std::unique_ptr<Workload> open_kernel(const BenchCase& bench, const BenchMachine& machine) {
  if (!exec::names_gpu(machine.device))
    user_error("expected a GPU for '{}', got --device {}; try --device gpu", bench.name, machine.device);
  const gpu::DeviceInfo gpu = exec::find_gpu(machine.device);
  ir::Graph graph = kernel_graph(bench);
  if (!engine::is_emulated(machine.device))
    exec::MatmulChoice(gpu, gpu::WinnerFile::default_path().value_or("")).choose(graph);
  return std::make_unique<Kernel>(bench, gpu, std::move(graph), machine.num_threads);
}

}  // namespace hearth::bench
