#pragma once

#include <optional>
#include <string>

#include "base/dtype.h"
#include "base/file.h"
#include "base/run_files.h"
#include "engine/engine.h"
#include "tasks/job.h"

namespace hearth::run {

/// The folder of a run with its config.yaml and weights. The folder is held open, so that check() detects
/// that it was moved, deleted or replaced by a new folder with the same name.
class RunFolder {
 public:
  explicit RunFolder(fs::path path) : path_(std::move(path)) {}

  const fs::path& path() const { return path_; }
  fs::path log() const;
  fs::path checkpoints() const { return path_ / kCheckpoints; }

  /// Sets the dtype of saved weights. For a resumed run it is the dtype in the run's config.json, otherwise
  /// that of the recipe's model.
  void choose_dtype(const tasks::Job& job, bool resumed);
  DType saved_dtype() const { return saved_dtype_; }
  /// Opens the folder and keeps it open. Writes config.yaml of a new run, and adapter_config.json if the run
  /// trains an adapter.
  void open(const tasks::Job& job, const engine::Engine& engine, bool resumed);
  /// Writes config.yaml of a resumed run at the first call. Call after each step, not before the first one:
  /// if a changed recipe fails before its first step, the run can still be resumed with the previous recipe.
  void update_config(const recipe::Recipe& recipe);
  /// Returns the comma-separated keys whose values differ between `recipe` and config.yaml.
  std::string changed_keys(const recipe::Recipe& recipe) const;

  void save_best_weights(const engine::Engine& engine) const;
  void save_last_weights(const engine::Engine& engine) const;

  /// Throws a UserError if the folder was moved, deleted or replaced since open().
  void check() const;

 private:
  fs::path path_;
  std::optional<WatchedFolder> held_;  ///< the open folder; set by open()
  bool wrote_config_ = false;          ///< true if config.yaml is up to date
  DType saved_dtype_ = DType::f32;     ///< dtype of saved weights; checkpoints are f32
};

}  // namespace hearth::run
