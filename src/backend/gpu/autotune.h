#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/gpu/device.h"
#include "backend/gpu/tolerance.h"
#include "base/file.h"
#include "base/function_ref.h"

namespace hearth::gpu {

/// One way of doing a piece of work.
struct Candidate {
  std::string name;
  int64_t workspace_bytes = 0;
  /// Queues it; what it writes does not depend on what was there.
  std::function<void(Stream&, std::byte* workspace)> run;
};

/// What autotuning found.
struct Verdict {
  std::string name;  ///< of the fastest that agrees with the first
  double seconds = 0;
  /// Sentences on those that failed, or whose result was another than the first's.
  std::vector<std::string> dropped;
  int num_untried = 0;  ///< for want of time
};

struct AutotuneOptions {
  Tolerance tolerance;  ///< of every number of a result
  int num_runs = 5;     ///< of each candidate by the GPU's clock, of which the median counts
  /// Beyond them no candidate is begun, and one run is enough.
  double most_seconds = 60;
  std::function<double()> now = {};  ///< seconds; none: those of the host's steady clock
};

/// Runs each candidate to warm up and to compare what `result` then reads with the first candidate's, which
/// is trusted, and then a few times more to measure it. A GPU that fails under the first fails autotuning
/// with its DeviceError.
Verdict autotune(std::span<const Candidate> candidates, Device& device,
                 FunctionRef<std::vector<float>(Stream&)> result, const AutotuneOptions& options);

/// Winners by key in a JSON file, so that no GPU is asked twice. A key says all that a measurement depends
/// on: GPU, driver, library, shape, layout, dtype. A file that is missing or broken counts as empty.
class WinnerFile {
 public:
  explicit WinnerFile(fs::path path);
  /// ~/.cache/hearth/matmuls.json, or below XDG_CACHE_HOME; nothing where neither is known.
  static std::optional<fs::path> usual_path();

  std::optional<std::string> find(const std::string& key) const;
  /// Adds it to what the file holds by then, atomically. A file that cannot be written is let be: the next
  /// run measures again.
  void keep(const std::string& key, const Verdict& verdict);

 private:
  fs::path path_;
};

/// The winner that the file has for the key, if it is among the candidates, or else that of autotuning, which
/// is kept if every candidate was tried.
Verdict find_or_autotune(WinnerFile& file, const std::string& key, std::span<const Candidate> candidates,
                         FunctionRef<Verdict()> autotune);

}  // namespace hearth::gpu
