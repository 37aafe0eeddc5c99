#pragma once

#include <string>
#include <vector>

#include "system/machine.h"

namespace hearth::doctor {

/// PCIe topology of a machine's GPUs.
struct Topology {
  struct Gpu {
    const system::PciGpu* gpu = nullptr;
    double link_bytes_per_second = 0;  ///< rate of the slowest link between GPU and processor; 0: unknown
    /// Measured copy rates of this GPU: while no other GPU copies, and while all GPUs copy; 0: not measured.
    double alone_bytes_per_second = 0, together_bytes_per_second = 0;
    /// Address of the first bridge above the GPU that another GPU is behind too; empty: none.
    std::string shares;
  };
  std::vector<Gpu> gpus;  ///< GPUs with dedicated memory

  /// Returns the copy rate of each GPU while all copy: as measured, otherwise derived from the links; 0:
  /// unknown.
  double common_bytes_per_second() const;
};
/// Returns the topology without measured rates.
Topology topology_of(const system::Machine& machine);

/// Measures the copy rate between each GPU and host memory, alone and while all copy. Returns a description
/// of the failure, or an empty string. Forks, so this process must not have opened a GPU.
std::string measure_topology(Topology& topology, const std::string& device);

/// Predicted speedup of training one model on all GPUs.
struct SharedTraining {
  std::string name;    ///< "Llama 1B, LoRA"
  double speedup = 0;  ///< samples/s on all GPUs divided by samples/s on one
};
/// Predicts the speedup of data-parallel training of typical models, by the cost model.
std::vector<SharedTraining> model_sharing(const Topology& topology);

/// Formats the topology as text, with the modeled speedups and a recommendation for several GPUs.
std::string to_text(const system::Machine& machine, const Topology& topology);
std::string to_json(const Topology& topology);

}  // namespace hearth::doctor
