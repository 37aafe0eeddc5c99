#pragma once

#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "ui/curve_index.h"
#include "ui/run_summary.h"

namespace hearth::ui {

/// The runs of a folder: their summaries, and the indexes of the logs of the runs that were opened most
/// recently. refresh() must be called by one thread only, the other functions by any thread.
class LiveRuns {
 public:
  explicit LiveRuns(fs::path root);
  ~LiveRuns();

  enum class Scope { running, all };
  /// Reads the changed files of the running runs or of all runs; `all` also finds new and deleted runs.
  /// Returns the changes as JSON, {"runs": [summaries], "removed": [names]}; empty if there are none.
  std::string refresh(Scope scope);
  /// Returns all runs as JSON with the same keys as refresh().
  std::string all() const;
  /// Returns the folder of a run; nullopt if there is no run of this name.
  std::optional<fs::path> folder_of(const std::string& name) const;
  std::optional<RunState> state_of(const std::string& name) const;

  /// Returns the curves of a run in a range of steps as JSON; nullopt if there is no such run. Each call
  /// indexes up to 32 MiB of the log; "complete" is false if a part of the log is not indexed yet.
  std::optional<std::string> curves(const std::string& name, StepRange range, size_t max_points);

 private:
  struct Entry;
  struct OpenIndex;
  std::shared_ptr<OpenIndex> index_of(const std::string& name);
  void find_new_runs(std::vector<std::string>& removed);

  fs::path root_;
  mutable std::mutex mutex_;  ///< protects entries_ (except Entry::reader) and indexes_
  std::map<std::string, std::unique_ptr<Entry>> entries_;
  std::list<std::shared_ptr<OpenIndex>> indexes_;  ///< most recently used first
};

}  // namespace hearth::ui
