#pragma once

#include "base/path.h"

namespace hearth {

/// Names in a run folder: the recipe, the JSON log (report.html is drawn from it, and a resumed run appends
/// to it), the folder of checkpoints, and the weights, last and best.
inline constexpr const char* kRunRecipe = "config.yaml";
inline constexpr const char* kLogFile = "trainer_log.jsonl";
inline constexpr const char* kCheckpoints = "checkpoints";
inline constexpr const char* kModelWeights = "model.safetensors";
inline constexpr const char* kBestWeights = "best.safetensors";
/// Names in a model folder of Hugging Face: the description of a model, and that of a diffusers pipeline.
inline constexpr const char* kModelConfig = "config.json";
inline constexpr const char* kModelIndex = "model_index.json";

/// Names of the file of class names in a run folder: for detection, for segmentation (data::read_class_table)
/// and for image generation (one class name per line).
inline constexpr const char* kDetectionClasses = "classes.json";
inline constexpr const char* kClassTable = "classes.csv";
inline constexpr const char* kClassNames = "classes.txt";

/// Throws a UserError if the path itself is a symbolic link, because a link in a run folder may point
/// anywhere.
void refuse_link(const fs::path& path);

/// Calls make_folder for a folder inside a run folder. UserError if it is a symbolic link.
void make_inner_folder(const fs::path& folder);

/// An open file of a run folder, to detect that the file was deleted or replaced during the run.
class WatchedFile {
 public:
  /// Opens the file. UserError if that fails.
  explicit WatchedFile(fs::path path);
  ~WatchedFile();
  WatchedFile(const WatchedFile&) = delete;
  WatchedFile& operator=(const WatchedFile&) = delete;

  /// Throws a UserError if the path no longer leads to this file.
  void check() const;

 private:
  fs::path path_;
  int descriptor_;
};

}  // namespace hearth
