#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "backend/gpu/autotune.h"
#include "ir/graph.h"

namespace hearth::exec {

/// Autotunes matmuls on a GPU: chooses between the vendor's BLAS and the variants of Hearth's kernels. Every
/// variant that is valid for a node is timed on random numbers, once per GPU, driver, library, shape and
/// dtype. Each algorithm that the library recommends is a variant. The fastest variant whose result agrees
/// with the default variant is cached in a file, including the algorithm, so that later runs use the same
/// one. Timing happens before training only. Matmuls for which no time is left use the default variant until
/// a later run measures them. A library that crashed the process during measurement is disabled in later
/// runs.
class MatmulChoice {
 public:
  /// `file`: the cache; if empty, results are kept in this object only. `max_seconds`: limit of the total
  /// measuring time.
  MatmulChoice(gpu::DeviceInfo gpu, const fs::path& file, double max_seconds = 60);
  ~MatmulChoice();

  /// Sets the attribute `way` of nodes that have GpuKernel::matmuls to the fastest kernel variants. Throws
  /// DeviceError.
  void choose(ir::Graph& graph);
  /// Number of matmuls measured by this object.
  int num_autotuned() const { return num_autotuned_; }
  /// Messages about variants that failed, disagreed with the default or were not measured.
  const std::vector<std::string>& dropped() const { return dropped_; }
  /// Messages about matmuls that were measured again because their cached variant is not valid; results may
  /// differ in their last bits.
  const std::vector<std::string>& replaced() const { return replaced_; }

 private:
  class Attempt;
  struct Session;
  using Variants = std::vector<std::string>;
  std::string library_key() const;
  std::string winner(const ir::NodeView& node);
  bool accepts(const ir::NodeView& node, const Variants& ways, const std::string& name);
  void find_other_versions(const ir::NodeView& node);
  void report_other_versions();
  void add_algorithms(const ir::NodeView& node, Variants& ways);
  gpu::AutotuneResult autotune(const ir::NodeView& node, const Variants& ways);
  Session& session();

  gpu::DeviceInfo gpu_;
  std::string gpu_name_;
  std::string library_;               ///< name and version of the BLAS library; empty if it is not used
  std::unique_ptr<Session> session_;  ///< open while a graph's matmuls are chosen
  gpu::WinnerFile file_;
  std::map<std::string, std::string> winners_;
  std::vector<std::string> dropped_, replaced_;
  std::set<std::string> other_versions_;  ///< other versions of the library in the file
  int num_of_other_versions_ = 0;         ///< number of matmuls that only they measured
  int num_autotuned_ = 0;
  double seconds_left_;
};

}  // namespace hearth::exec
