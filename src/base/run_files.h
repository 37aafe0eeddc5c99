#pragma once

#include "base/path.h"

namespace hearth {

/// Names of files and folders in a run folder: the recipe, the JSON log (the source of report.html; a resumed
/// run appends to it), the checkpoints, the latest weights, and the weights with the best evaluation.
inline constexpr const char* kRunRecipe = "config.yaml";
inline constexpr const char* kLogFile = "trainer_log.jsonl";
inline constexpr const char* kCheckpoints = "checkpoints";
inline constexpr const char* kModelWeights = "model.safetensors";
inline constexpr const char* kBestWeights = "best.safetensors";
/// Names of files in a Hugging Face model folder: the config of a model, and the index of a diffusers
/// pipeline.
inline constexpr const char* kModelConfig = "config.json";
inline constexpr const char* kModelIndex = "model_index.json";

/// Names of the file with class names in a run folder, by task: detection, segmentation
/// (data::read_class_table), image generation (one class name per line).
inline constexpr const char* kDetectionClasses = "classes.json";
inline constexpr const char* kClassTable = "classes.csv";
inline constexpr const char* kClassNames = "classes.txt";

/// Throws a UserError if the path itself is a symbolic link: files of a run are not written or deleted
/// through links.
void refuse_link(const fs::path& path);

/// Calls make_folder for a folder inside a run folder. UserError if it is a symbolic link.
void make_inner_folder(const fs::path& folder);

/// Keeps a file of a run folder open to detect that it was deleted or replaced during the run.
class WatchedFile {
 public:
  /// Opens the file. UserError if that fails.
  explicit WatchedFile(fs::path path);
  ~WatchedFile();
  WatchedFile(const WatchedFile&) = delete;
  WatchedFile& operator=(const WatchedFile&) = delete;

  /// Throws a UserError if the path no longer refers to this file.
  void check() const;

 private:
  fs::path path_;
  int descriptor_;
};

}  // namespace hearth
