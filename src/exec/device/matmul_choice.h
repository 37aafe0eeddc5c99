#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "backend/gpu/autotune.h"
#include "ir/graph.h"

namespace hearth::exec {

/// Autotunes matmuls on a GPU: chooses between the vendor's BLAS and Hearth's kernels, and among their
/// variants. Every variant that a node allows is run on random numbers, once per GPU, driver, library, shape
/// and dtype; the fastest one that agrees with the default variant is cached in a file. Measuring happens
/// before training only; matmuls that exceed the time limit use the default variant until a later run
/// measures them. A library that crashed the process while it was measured is not used again.
class MatmulChoice {
 public:
  /// `file` empty: results are kept in this object only. `max_seconds` limits the total time of measuring.
  MatmulChoice(gpu::DeviceInfo gpu, const fs::path& file, double max_seconds = 60);

  /// Writes the chosen variant into the attribute `way` of nodes that have GpuKernel::matmuls. Throws
  /// DeviceError.
  void choose(ir::Graph& graph);
  /// Number of matmuls measured by this object.
  int num_autotuned() const { return num_autotuned_; }
  /// Sentences on variants that failed, disagreed or were not measured.
  const std::vector<std::string>& dropped() const { return dropped_; }

 private:
  class Attempt;
  using Variants = std::vector<std::string_view>;
  std::string library_key() const;
  std::string winner(const ir::NodeView& node);
  gpu::AutotuneResult autotune(const ir::NodeView& node, const Variants& ways);
  gpu::Device& device();

  gpu::DeviceInfo gpu_;
  std::string gpu_name_;
  std::string library_;                  ///< name and version of the BLAS; empty: not used
  std::unique_ptr<gpu::Device> device_;  ///< open while a graph's matmuls are autotuned
  gpu::WinnerFile file_;
  std::map<std::string, std::string> winners_;
  std::vector<std::string> dropped_;
  int num_autotuned_ = 0;
  double seconds_left_;
};

}  // namespace hearth::exec
