#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "base/path.h"
#include "data/images/augment.h"
#include "engine/objective.h"
#include "recipe/recipe.h"
#include "tasks/data_report.h"
#include "tasks/job.h"
#include "tasks/predictor.h"
#include "tasks/task.h"

namespace hearth::tasks {

/// Folders of a prediction: the run, where results are written, and the file of weights.
struct PredictionPaths {
  fs::path run, out, weights;
};

/// Metadata of an exported image model.
struct ExportMetadata {
  data::PixelOptions pixels;       ///< normalization
  std::vector<std::string> names;  ///< class names
  std::string fit;                 ///< resizing of images: "stretch", "letterbox 114", "window"
};

/// Files of a model: weights of an image model that is built in by name, a transformers folder (config.json
/// and tokenizer), or a diffusers folder.
enum class ModelFormat : uint8_t { built_in, transformers, diffusers };

/// Receives the pixels of an image, interleaved, and its number of channels.
using TakePixels = FunctionRef<void(std::span<const uint8_t> pixels, int64_t channels)>;
/// Max number of training images that are read to measure their mean and standard deviation.
inline constexpr int64_t kMaxMeasured = 4096;

/// Record of a kind of training: the functions that open and describe it before a Task exists. To add a task:
/// a folder with its record, and a row in task_list.cpp.
struct TaskDef {
  std::string_view name;  ///< "detect"
  /// True if this task trains a recipe. The first such task of the list is used.
  bool (*owns)(const recipe::Recipe&);
  /// Returns the training objective; reads no files.
  std::shared_ptr<const engine::Objective> (*objective)(const Job&);
  /// Opens the data; GPU number `device` prepares it if the recipe uses GPUs. UserError if the data does not
  /// fit the model.
  std::unique_ptr<Task> (*open)(const Job&, int device);
  /// Returns the class names of the training data. Decodes no image, except masks if only their values give
  /// the number of classes. Null: the model has no classes that the data names.
  std::vector<std::string> (*classes)(const recipe::Recipe&) = nullptr;
  int64_t planned_classes = 0;  ///< number of classes that a plan without data assumes
  /// Fills in values of a recipe from the data, or from the recipe that an existing run was trained with
  /// (null: new run); returns notes about them. Null: no such values.
  std::vector<std::string> (*fill_in)(recipe::Recipe&, const recipe::Recipe* trained) = nullptr;
  /// Passes the pixels of training images and their number of channels to `take`, for data.normalize=dataset.
  /// Null: images are normalized by the model.
  void (*read_pixels)(const recipe::Recipe&, TakePixels take) = nullptr;
  /// Reads all records of the data and reports the invalid ones; training itself stops at the first. Returns
  /// the number of records that are left out. UserError if training would reject them. Null: no records.
  int64_t (*check_records)(const Job&, const DataReport& report) = nullptr;
  /// Decodes all images of a split, "train" or "test", and reports their counts; UserError if some are
  /// unusable. Null: no images.
  void (*check_images)(const Job&, const char* split, const DataReport& report) = nullptr;
  /// Returns the metadata for ONNX export. Null: the task has no ONNX export.
  ExportMetadata (*exported)(const recipe::Recipe&, const fs::path& run) = nullptr;
  /// Opens a predictor with the weights of a run. Null: the model makes no predictions for images.
  std::unique_ptr<Predictor> (*predictor)(const recipe::Recipe&, const PredictionPaths&) = nullptr;
  bool distills = false;  ///< true if the task supports the recipe's distill keys
  ModelFormat model_format = ModelFormat::built_in;
  bool evaluates_any_model =
      false;  ///< true: hearth eval needs only a model in this format, not a run of this task
  std::string_view generates = "";  ///< what its models generate: "text", "images"; empty: nothing
};

/// Returns the task that trains a recipe.
const TaskDef& task_of(const recipe::Recipe& recipe);
/// Returns the task of a run that makes predictions for images; UserError if its task generates something
/// instead.
const TaskDef& image_task_of(const recipe::Recipe& recipe, const fs::path& run);

}  // namespace hearth::tasks
