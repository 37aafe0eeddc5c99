#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "exec/places.h"
#include "exec/program.h"

namespace hearth::exec {

/// Compares two runs of a program from the same weights, states and inputs, bit for bit: first queued kernel
/// by kernel, then replayed from a recording. This detects kernels that a runtime drops from, or reorders in,
/// its recording. In between, the persistent buffers that the program changes are saved on the host: the
/// GPU's part in the image of the weights, which is stale while programs run. Outputs are compared by hash.
/// The GPU must be idle whenever a function other than meet() is called.
class ReplayCheck {
 public:
  /// `addresses` has the address of each value of the program.
  ReplayCheck(const Program& program, const Bindings& places, std::span<std::byte* const> addresses);

  /// Returns the bytes of host memory that the check takes.
  int64_t needed_bytes() const;
  /// Saves the buffers that the program will change, and fills its arena with NaN.
  void save();
  /// Restores the state after save().
  void restore();
  /// Stores the hashes of a run's results.
  void store_result_hashes();
  /// Describes the first difference from the stored results, as the end of a sentence; empty if there is
  /// none.
  std::string difference();
  /// Replaces a collective: the first run executes it and stores its results, later runs receive these.
  void run_collective_once(const Step& step, const ir::KernelArgs& args) noexcept;

 private:
  /// A buffer that a run changes: a weight, state or output.
  struct Result {
    std::string name;
    std::byte* at = nullptr;
    int64_t num_bytes = 0;
    bool on_gpu = false;
    /// true for persistent buffers, which a run reads and must be restored before the next one
    bool is_kept = false;
    std::byte* saved = nullptr;
    uint64_t hash = 0;
  };
  struct Collective {
    /// True once the collective has run.
    bool is_made = false;
    uint64_t sent = 0;  ///< hash of its inputs
    std::vector<std::vector<std::byte>> received;
  };

  void add(ir::ValueId id, bool is_kept);
  std::byte* image_of(const std::byte* at) const;
  void clear_arena();
  uint64_t hash_of(const Result& result);
  uint64_t hash_of(const Step& step, const ir::KernelArgs& args) const;

  const Program& program_;
  const Bindings& bindings_;
  std::span<std::byte* const> addresses_;
  gpu::Stream& stream_;
  std::vector<Result> results_;
  Region saved_on_host_;
  int64_t host_bytes_ = 0;        ///< bytes of saved results in saved_on_host_
  int64_t collective_bytes_ = 0;  ///< bytes of the stored results of collectives
  std::vector<std::byte> piece_;
  std::map<const Step*, Collective> collectives_;
  std::string different_collective_;  ///< name of the first collective whose inputs differed
};

}  // namespace hearth::exec
