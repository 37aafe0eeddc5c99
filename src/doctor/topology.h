#pragma once

#include <string>
#include <vector>

#include "system/machine.h"

namespace hearth::doctor {

/// PCIe topology of a machine's GPUs.
struct Topology {
  struct Gpu {
    const system::PciGpu* gpu = nullptr;
    double link_bytes_per_second = 0;  ///< of the slowest link to the processor; 0: unknown
    /// Measured copy rates, alone and while all GPUs copy; 0: not measured.
    double alone_bytes_per_second = 0, together_bytes_per_second = 0;
    std::string shares;  ///< address of the lowest bridge that is shared with another GPU; empty: none
  };
  std::vector<Gpu> gpus;  ///< GPUs with dedicated memory

  /// Returns the rate that each GPU has while all copy: measured, otherwise derived from the links; 0:
  /// unknown.
  double common_bytes_per_second() const;
};
/// Returns the topology without measured rates.
Topology topology_of(const system::Machine& machine);

/// Measures copies between each GPU and host memory, alone and all at once. Returns why it failed, or an
/// empty string. Forks, so this process must not have opened a GPU.
std::string measure_topology(Topology& topology, const std::string& device);

/// Simulated speedup of a typical training on all GPUs, predicted by the cost model.
struct SharedTraining {
  std::string name;    ///< "Llama 1B, LoRA"
  double speedup = 0;  ///< samples/s of all GPUs divided by those of one
};
/// Simulates data-parallel training of typical models.
std::vector<SharedTraining> model_sharing(const Topology& topology);

/// Formats the topology as text, with the modeled speedups and a recommendation for several GPUs.
std::string to_text(const system::Machine& machine, const Topology& topology);
std::string to_json(const Topology& topology);

}  // namespace hearth::doctor
