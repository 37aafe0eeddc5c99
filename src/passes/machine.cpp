#include "passes/machine.h"

#include <algorithm>
#include <vector>

#include <fmt/ranges.h>

#include "base/error.h"
#include "ir/op_def.h"

namespace hearth::passes {

namespace {

/// PCIe 4.0 x16 as an RX 7900 XTX uses it in both directions at once (ROCm issue 2253).
constexpr double kLink = 24e9;
/// Nothing was published for these GPUs; a few microseconds are usual.
constexpr double kLaunch = 5e-6;

constexpr GpuModel kGpus[] = {
    {.name = "rx7900xt",
     .full_name = "AMD Radeon RX 7900 XT",
     .half_flops_per_second = 75e12,
     .full_flops_per_second = 20e12,
     .bytes_per_second = 680e9,
     .link_bytes_per_second = kLink,
     .launch_seconds = kLaunch,
     .half_peak_flops_per_second = 103e12,
     .full_peak_flops_per_second = 51.5e12,
     .sources =
         "16 bits: 73% of the peak, as an RX 7900 XTX (72 to 79%, ROCm issue 5725); f32: an XTX's 23 to "
         "26 TFLOP/s (the same) by the ratio of the peaks; bandwidth: 85% of AMD's 800 GB/s, assumed; "
         "link: ROCm issue 2253; launch: assumed; peaks: AMD"},
    {.name = "rx7900xtx",
     .full_name = "AMD Radeon RX 7900 XTX",
     .half_flops_per_second = 91e12,
     .full_flops_per_second = 25e12,
     .bytes_per_second = 816e9,
     .link_bytes_per_second = kLink,
     .launch_seconds = kLaunch,
     .half_peak_flops_per_second = 122.8e12,
     .full_peak_flops_per_second = 61.4e12,
     .sources = "16 bits and f32: PyTorch 2.9 and 2.10 products of 4096 and more (ROCm issue 5725, "
                "zzc0721/torch-performance-test-data issues 68 and 103); bandwidth: 85% of AMD's 960 GB/s, "
                "assumed; link: ROCm issue 2253; launch: assumed; peaks: AMD"},
    {.name = "rtx4090",
     .full_name = "NVIDIA GeForce RTX 4090",
     .half_flops_per_second = 155.8e12,
     .full_flops_per_second = 62e12,
     .bytes_per_second = 857e9,
     .link_bytes_per_second = kLink,
     .launch_seconds = kLaunch,
     .half_peak_flops_per_second = 165.2e12,
     .full_peak_flops_per_second = 82.6e12,
     .sources =
         "16 bits: 13B fine-tuning of LoHan (arXiv 2403.06504, evaluation_data.md); f32: three quarters "
         "of the peak, assumed; bandwidth: 85% of NVIDIA's 1008 GB/s, assumed; link: as the others; "
         "launch: assumed; peaks: NVIDIA"},
    {.name = "h200",
     .full_name = "NVIDIA H200",
     .half_flops_per_second = 780e12,
     .full_flops_per_second = 50e12,
     .bytes_per_second = 4.3e12,
     .link_bytes_per_second = kLink,
     .launch_seconds = kLaunch,
     .half_peak_flops_per_second = 989e12,
     .full_peak_flops_per_second = 67e12,
     .sources =
         "16 bits: PyTorch 2.11 products of 8192 on random numbers (769 to 798 TFLOP/s, measured); f32: "
         "three quarters of the peak, assumed; bandwidth: copies of 8.6 GB, measured; link: as the "
         "others; launch: assumed; peaks: NVIDIA, of the SXM GPU without sparsity"},
};

}  // namespace

std::span<const GpuModel> gpu_models() { return kGpus; }

const GpuModel& find_gpu(std::string_view name) {
  std::vector<std::string_view> names;
  for (const GpuModel& gpu : kGpus) {
    if (gpu.name == name) return gpu;
    names.push_back(gpu.name);
  }
  user_error("there is no model of a GPU '{}'; known are {}", name, fmt::join(names, ", "));
}

const GpuModel* find_gpu_by_full_name(std::string_view full_name) {
  const auto* const found = std::ranges::find(kGpus, full_name, &GpuModel::full_name);
  return found == std::end(kGpus) ? nullptr : found;
}

double peak_flops_per_second(const GpuModel& gpu, DType precision) {
  return precision == DType::f32 ? gpu.full_peak_flops_per_second : gpu.half_peak_flops_per_second;
}

Machine machine_of(const GpuModel& gpu, DType precision) {
  return {.flops_per_second = precision == DType::f32 ? gpu.full_flops_per_second : gpu.half_flops_per_second,
          .bytes_per_second = gpu.bytes_per_second,
          .link_bytes_per_second = gpu.link_bytes_per_second,
          .measures_products = true};
}

double cost_seconds(const ir::Graph& graph, const ir::Node& node, const Machine& machine) {
  const ir::Cost cost = ir::cost_of(graph, node);
  if (node.op->transfer != ir::Transfer::none) return cost.bytes / machine.link_bytes_per_second;
  return cost.flops / machine.flops_per_second + cost.bytes / machine.bytes_per_second;
}

StepTime simulate(const ir::Graph& graph, const Machine& machine) {
  std::vector<double> ready(graph.values.size(), 0);
  double compute_done = 0;
  double in_done = 0;
  double out_done = 0;
  double in_seconds = 0;
  double out_seconds = 0;
  StepTime time;
  for (const ir::Node& node : graph.nodes) {
    const double seconds = cost_seconds(graph, node, machine);
    const bool computes = node.op->transfer == ir::Transfer::none;
    const bool comes_in = node.op->transfer == ir::Transfer::fetch;
    double& queue = computes ? compute_done : comes_in ? in_done : out_done;
    double start = std::max(queue, compute_done);
    for (const ir::ValueId in : node.inputs) {
      if (in != ir::kNone) start = std::max(start, ready[static_cast<size_t>(in)]);
    }
    queue = start + seconds;
    (computes ? time.compute_seconds : comes_in ? in_seconds : out_seconds) += seconds;
    for (const ir::ValueId out : node.outputs) ready[static_cast<size_t>(out)] = queue;
  }
  time.seconds = std::max({compute_done, in_done, out_done});
  time.link_seconds = std::max(in_seconds, out_seconds);
  return time;
}

}  // namespace hearth::passes
