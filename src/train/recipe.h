#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/loader.h"
#include "models/model.h"
#include "train/engine.h"
#include "train/optimizer.h"
#include "train/schedule.h"

namespace hearth::train {

/// Which pictures a run trains and is measured on.
struct DataRecipe {
  /// shapes, idx, cifar10, folder or tensors.
  std::string kind = "shapes";
  std::string path;
  /// shapes: how many pictures there are to train on and to measure with.
  int64_t count = 10000;
  int64_t val_count = 2000;
  data::AugmentOptions augment;
  std::vector<float> mean = {0.5F};
  std::vector<float> std = {0.5F};
  /// Threads that decode ahead.
  int64_t workers = 1;
  bool shuffle = true;
};

/// How long a run is, in which pieces, and what it leaves behind.
struct TrainRecipe {
  /// Updates; 0 = as many as `epochs` need. With both, the first to be reached ends the run.
  int64_t steps = 0;
  int64_t epochs = 0;
  /// Samples per micro-batch of one worker.
  int64_t batch = 32;
  /// Micro-batches per update.
  int64_t accumulate = 1;
  /// Steps between checkpoints; 0 = only at the end.
  int64_t checkpoint_every = 500;
  int64_t keep_checkpoints = 3;
  /// Steps between evaluations; 0 = at the end of each epoch.
  int64_t eval_every = 0;
  int64_t log_every = 10;
  double label_smoothing = 0;
  /// Evaluations without a better accuracy before the run stops; 0 = never.
  int64_t early_stop = 0;
};

/// Everything that decides a run. One table of fields (recipe_fields.cpp) reads, checks, writes and documents
/// it; to add a key, add a member here and a line there.
struct Recipe {
  uint64_t seed = 0;
  int threads = 0;  ///< 0 = every processor
  std::string device = "cpu";
  int devices = 1;
  DType precision = DType::f32;
  /// A num_classes of 0 means as many as the data has.
  models::ModelOptions model{.num_classes = 0};
  DataRecipe data;
  TrainRecipe train;
  OptimizerOptions optimizer;  ///< clip_norm is the key train.clip_norm, ema_decay is train.ema
  double lr = 0.1;
  ScheduleOptions schedule;
  int64_t memory_bytes = 0;  ///< 0 = no budget
  std::vector<std::string> passes_off;
  std::string init;  ///< a safetensors file with the first weights; empty = drawn from the seed
};

/// Reads a recipe file, then `overrides`: command-line words of the forms train.batch=64, --train.batch=64
/// and
/// --train.batch 64, where - and _ are the same. UserError "FILE:LINE: ..." for an unknown key (with the
/// nearest one), a wrong type, a value out of range or keys that do not fit together.
Recipe load_recipe(const fs::path& path, std::span<const std::string> overrides = {});
/// The same from text; `name` stands for the file in messages.
Recipe parse_recipe(std::string_view text, std::string_view name,
                    std::span<const std::string> overrides = {});

/// The recipe as YAML with every key; parse_recipe gives the same recipe back.
std::string write_recipe(const Recipe& recipe);

/// What a key is, for people.
struct RecipeKey {
  std::string key;
  std::string type;  ///< "integer", "number", "fp32 | bf16 | fp16", ...
  std::string fallback;
  std::string doc;
  std::vector<std::string> aliases;
};
std::vector<RecipeKey> recipe_keys();
/// Whether `name` (with - or _) is a key, an alias of one, or looks like one (has a dot).
bool looks_like_recipe_key(std::string_view name);

/// UserError when keys that are right one by one do not fit together.
void check_recipe(const Recipe& recipe);

/// The recipe in the terms of the parts below. `num_classes` replaces a model.num_classes of 0.
EngineOptions engine_options(const Recipe& recipe, int64_t num_classes);
enum class Split : uint8_t { train, val };
data::DatasetOptions dataset_options(const Recipe& recipe, Split split);
data::LoaderOptions loader_options(const Recipe& recipe, Split split);
/// model.num_classes, or what the kind of data says (shapes 8, idx and cifar10 10), or 0: look at the data.
int64_t known_num_classes(const Recipe& recipe);
/// Threads to compute with: `threads`, or every processor.
int num_threads(const Recipe& recipe);

}  // namespace hearth::train
