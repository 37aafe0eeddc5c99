#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "exec/places.h"
#include "exec/program.h"

namespace hearth::exec {

/// Compares two runs of a program, from the same weights, states and inputs, bit for bit: the first launches
/// kernel by kernel, the second replays a recording. This detects kernels that a runtime omits from its
/// recording or runs in another order. Between the runs, the persistent buffers that the program changes are
/// restored. They are saved on the host; those on the GPU in the host image of the weights, which is not used
/// while programs run. Outputs are compared by hash. The GPU must be idle when a function other than
/// run_collective_once() is called.
class ReplayCheck {
 public:
  /// `addresses`: for each value of the program, its address.
  ReplayCheck(const Program& program, const Bindings& places, std::span<std::byte* const> addresses);

  /// Returns the number of bytes of host memory that the check needs.
  int64_t needed_bytes() const;
  /// Saves the persistent buffers that the program will change, and fills its arena with NaN.
  void save();
  /// Restores the buffers saved by save(), and fills the arena with NaN again.
  void restore();
  /// Stores the hashes of all results of the first run.
  void store_result_hashes();
  /// Describes the first result that differs from the first run, as the end of a sentence; empty if none
  /// does.
  std::string difference();
  /// Called in place of a collective, which other workers take part in only once: the first call runs it and
  /// stores its results; later calls return the stored results.
  void run_collective_once(const Step& step, const ir::KernelArgs& args) noexcept;

 private:
  /// A buffer that a run changes: a weight, state or output.
  struct Result {
    std::string name;
    std::byte* at = nullptr;
    int64_t num_bytes = 0;
    bool on_gpu = false;
    /// True for persistent buffers: a run reads them, so they are restored before the next run.
    bool is_kept = false;
    std::byte* saved = nullptr;
    uint64_t hash = 0;
  };
  struct Collective {
    /// True once the first call has run the collective.
    bool is_made = false;
    uint64_t sent = 0;  ///< hash of the inputs of the first call
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
  int64_t host_bytes_ = 0;        ///< total size of the results that are saved in saved_on_host_
  int64_t collective_bytes_ = 0;  ///< total size of the stored results of collectives
  std::vector<std::byte> piece_;
  std::map<const Step*, Collective> collectives_;
  std::string different_collective_;  ///< name of the first collective whose inputs differed between the runs
};

}  // namespace hearth::exec
