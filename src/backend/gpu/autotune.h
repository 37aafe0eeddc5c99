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

/// An implementation of an operation that is to be timed, for instance a matmul algorithm.
struct Candidate {
  std::string name;
  int64_t workspace_bytes = 0;
  /// Queues the work. The result must not depend on the previous contents of its output buffer.
  std::function<void(Stream&, std::byte* workspace)> run;
};

/// Result of autotuning.
struct AutotuneResult {
  std::string name;  ///< name of the fastest candidate that agrees with the first
  double seconds = 0;
  /// Messages about candidates that failed or disagreed with the first; one sentence each.
  std::vector<std::string> dropped;
  int num_not_measured = 0;  ///< number of candidates that were not run because time ran out
};

/// Limits and tolerance of autotuning.
struct AutotuneOptions {
  Tolerance tolerance;  ///< tolerance for elements of a result that is compared with the first candidate's
  int num_runs = 5;     ///< number of timed runs per candidate, of which the median is used
  /// Time limit: after it no further candidate is started, and the candidate being measured is timed once
  /// only.
  double max_seconds = 60;
  std::function<double()> now = {};  ///< clock in seconds; default: the host's steady clock
};

/// Times each candidate. In a warm-up run, the output read by `result` is compared with the output of the
/// first candidate, which is the reference. Candidates that fail or disagree are dropped; throws DeviceError
/// if the first one fails.
AutotuneResult autotune(std::span<const Candidate> candidates, Device& device,
                        FunctionRef<std::vector<float>(Stream&)> result, const AutotuneOptions& options);

/// Cache of winners by key, in a JSON file, so that each GPU is measured once. A key names everything that a
/// measurement depends on: GPU, driver, library, shape, layout, dtype. A missing or broken file counts as
/// empty.
class WinnerFile {
 public:
  /// `path`: the file; if empty, find() returns nothing and keep() stores nothing.
  explicit WinnerFile(fs::path path);
  const fs::path& path() const { return path_; }
  /// Returns ~/.cache/hearth/matmuls.json, or the same below XDG_CACHE_HOME; nullopt if neither is known.
  static std::optional<fs::path> default_path();

  /// Returns the winner stored for the key, if any.
  std::optional<std::string> find(const std::string& key) const;
  /// Returns, for each key that starts with `prefix` and ends with `suffix`, the text in between.
  std::vector<std::string> find_between(const std::string& prefix, const std::string& suffix) const;
  /// Adds the winner to the current contents of the file, atomically. If the file cannot be written, the
  /// result is discarded and the next run measures again.
  void keep(const std::string& key, const AutotuneResult& verdict);

 private:
  fs::path path_;
};

/// Returns the winner stored for the key if `accepts` returns true for its name; otherwise runs autotuning
/// and stores its winner if every candidate was measured.
AutotuneResult find_or_autotune(WinnerFile& file, const std::string& key,
                                FunctionRef<bool(const std::string& name)> accepts,
                                FunctionRef<AutotuneResult()> autotune);

}  // namespace hearth::gpu
