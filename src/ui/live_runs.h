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

/// The runs of a folder with their summaries and, for the runs that were opened last, indexes of their logs.
/// Functions may be called by any thread; refresh() by one thread.
class LiveRuns {
 public:
  explicit LiveRuns(fs::path root);
  ~LiveRuns();

  enum class Scope { running, all };
  /// Reads the files that have changed of the running runs or of all runs; `all` also finds new and deleted
  /// runs. Returns the changes as JSON, {"runs": [summaries], "removed": [names]}; empty if there are none.
  std::string refresh(Scope scope);
  /// Returns all runs in the form of refresh().
  std::string all() const;
  /// Returns the folder of a run; nullopt if there is no run of this name.
  std::optional<fs::path> folder_of(const std::string& name) const;
  std::optional<RunState> state_of(const std::string& name) const;

  /// Returns the curves of a run in a range of steps as JSON. Indexes up to 32 MiB of its log; "complete" is
  /// false if more of it is left. nullopt if there is no such run.
  std::optional<std::string> curves(const std::string& name, StepRange range, size_t max_points);

 private:
  struct Entry;
  struct OpenIndex;
  std::shared_ptr<OpenIndex> index_of(const std::string& name);
  void find_new_runs(std::vector<std::string>& removed);

  fs::path root_;
  mutable std::mutex mutex_;  ///< protects entries_ (not the readers in it) and indexes_
  std::map<std::string, std::unique_ptr<Entry>> entries_;
  std::list<std::shared_ptr<OpenIndex>> indexes_;  ///< most recently used first
};

}  // namespace hearth::ui
