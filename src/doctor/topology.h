#pragma once

#include <string>
#include <vector>

#include "system/machine.h"

namespace hearth::doctor {

/// How a machine's GPUs hang together.
struct Topology {
  struct Gpu {
    const system::PciGpu* gpu = nullptr;
    double link_bytes_per_second = 0;  ///< of its way to the processor at best; 0: not known
    /// What it reaches, alone and while all others copy too; 0: not measured.
    double alone_bytes_per_second = 0, together_bytes_per_second = 0;
    std::string shares;  ///< address of the first bridge that another GPU's way has too; empty: none
  };
  std::vector<Gpu> gpus;  ///< those with memory of their own

  /// What each GPU can count on while all copy: measured, else by the links. 0: not known.
  double common_bytes_per_second() const;
};
Topology topology_of(const system::Machine& machine);

/// Measures copies of each GPU to host memory, alone and all at once; forks, so this process has opened no
/// GPU. Returns why it could not, or nothing.
std::string measure_topology(Topology& topology, const std::string& device);

/// A typical training on one GPU and shared by all, by the model of the GPU: simulated, not measured.
struct SharedTraining {
  std::string name;    ///< "Llama 1B, LoRA"
  double speedup = 0;  ///< of all GPUs over one
};
std::vector<SharedTraining> model_sharing(const Topology& topology);

std::string to_text(const system::Machine& machine, const Topology& topology);
std::string to_json(const Topology& topology);

}  // namespace hearth::doctor
