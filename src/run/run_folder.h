#pragma once

#include <optional>
#include <string>

#include "base/dtype.h"
#include "base/file.h"
#include "engine/engine.h"
#include "recipe/recipe.h"

namespace hearth::run {

/// The folder of a run: its config.yaml and its weights. Held open, so that a run notices when someone moves
/// or deletes the folder and does not continue in a new one of the same name.
class RunFolder {
 public:
  explicit RunFolder(fs::path path) : path_(std::move(path)) {}

  const fs::path& path() const { return path_; }
  fs::path log() const;
  fs::path checkpoints() const { return path_ / "checkpoints"; }

  /// Chooses the dtype of saved weights: that of config.json for a resumed run, else the recipe's.
  void choose_dtype(const recipe::Recipe& recipe, bool resumed);
  DType saved_dtype() const { return saved_dtype_; }
  /// Holds the folder. Writes the recipe of a new run, and the configuration of its adapter if it has one.
  void open(const recipe::Recipe& recipe, const engine::Engine& engine, bool resumed);
  /// Writes the recipe of a resumed run, once. Called after its first step: a changed recipe that fails
  /// before that does not prevent resuming with the previous one.
  void update_config(const recipe::Recipe& recipe);
  /// Returns the keys in which a recipe differs from config.yaml, separated by commas.
  std::string changed_keys(const recipe::Recipe& recipe) const;

  void save_best_weights(const engine::Engine& engine) const;
  void save_last_weights(const engine::Engine& engine) const;

  /// Throws a UserError if the folder was moved, deleted or replaced since open().
  void check() const;

 private:
  fs::path path_;
  std::optional<HeldFolder> held_;  ///< set by open()
  bool wrote_config_ = false;       ///< true if config.yaml is up to date
  DType saved_dtype_ = DType::f32;  ///< of the files of weights; checkpoints hold f32
};

}  // namespace hearth::run
