#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "backend/gpu/autotune.h"
#include "ir/graph.h"

namespace hearth::exec {

/// Chooses by measurement who multiplies each pair of matrices on a GPU, the vendor's library or blocks of
/// Hearth's own, and how these share it: every way that a node allows is run on random numbers once per GPU,
/// driver, library, shape and dtype, and the fastest that agrees with the usual one is kept in a file.
/// Nothing is measured in a step; what the time does not suffice for goes the usual way until another run
/// measures it. A library that took a process with it while it was asked is not asked
/// again.
class MatmulChoice {
 public:
  /// `file` empty: nothing is remembered beyond this object. All measuring together ends after so long.
  MatmulChoice(gpu::DeviceInfo gpu, const fs::path& file, double most_seconds = 60);

  /// Writes the choice into the nodes that have GpuKernel::matmuls, as the attribute `way`. Throws
  /// DeviceError.
  void choose(ir::Graph& graph);
  int num_autotuned() const { return num_autotuned_; }
  /// Sentences on ways that failed, gave another result or were not measured.
  const std::vector<std::string>& dropped() const { return dropped_; }

 private:
  class Attempt;
  using Ways = std::vector<std::string_view>;
  std::string library_key() const;
  std::string winner(const ir::NodeView& node);
  gpu::Verdict autotune(const ir::NodeView& node, const Ways& ways);
  gpu::Device& device();

  gpu::DeviceInfo gpu_;
  std::string gpu_name_;
  std::string library_;                  ///< empty: not asked
  std::unique_ptr<gpu::Device> device_;  ///< open while a graph's matmuls are autotuned
  gpu::WinnerFile file_;
  std::map<std::string, std::string> winners_;
  std::vector<std::string> dropped_;
  int num_autotuned_ = 0;
  double seconds_left_;
};

}  // namespace hearth::exec
