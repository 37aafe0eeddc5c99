#pragma once

#include <span>
#include <string_view>

#include "base/dtype.h"
#include "ir/graph.h"

namespace hearth::passes {

/// Rates that turn the cost of a node into seconds. A model, for choosing among plans.
struct Machine {
  double flops_per_second = 1e11;
  double bytes_per_second = 1e10;
  /// Between the device and host memory, each way.
  double link_bytes_per_second = 1e10;
  /// Whether moments of a product are cheaper where it is made than where they are needed: on GPUs.
  bool measures_products = false;
};

/// A GPU as programs are modeled on it: what its libraries reach, not what is printed on the box.
struct GpuModel {
  std::string_view name;             ///< "rx7900xt"
  std::string_view full_name;        ///< as its driver says it
  double half_flops_per_second = 0;  ///< products of bf16 and f16 with sums in f32
  double full_flops_per_second = 0;  ///< f32
  double bytes_per_second = 0;
  double link_bytes_per_second = 0;
  double launch_seconds = 0;              ///< from the end of a kernel to the start of the next
  double half_peak_flops_per_second = 0;  ///< by the vendor; what MFU is a share of
  double full_peak_flops_per_second = 0;
  std::string_view sources;  ///< of the figures, in their order
};
/// All that are known; a figure is changed, and a GPU added, in machine.cpp.
std::span<const GpuModel> gpu_models();
/// The GPU of that name; UserError with the known ones otherwise.
const GpuModel& find_gpu(std::string_view name);
/// The GPU whose driver says that name; null where it is not known.
const GpuModel* find_gpu_by_full_name(std::string_view full_name);
/// The vendor's arithmetic rate for a model in that precision.
double peak_flops_per_second(const GpuModel& gpu, DType precision);
/// Its rates for a model in that precision.
Machine machine_of(const GpuModel& gpu, DType precision);

/// Seconds of a node alone.
double cost_seconds(const ir::Graph& graph, const ir::Node& node, const Machine& machine);

struct StepTime {
  double seconds = 0;
  double compute_seconds = 0;
  /// The busier direction of the link.
  double link_seconds = 0;
};

/// Runs the order on three queues: computing, copies to the device, copies to the host. A copy may start when
/// the node before it is done; a node waits for what it reads.
StepTime simulate(const ir::Graph& graph, const Machine& machine);

}  // namespace hearth::passes
