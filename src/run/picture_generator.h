#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/extent.h"
#include "data/images/image.h"
#include "recipe/recipe.h"
#include "tasks/diffuse/sampler.h"

namespace hearth::run {

/// What pictures are wanted of a model that makes them.
struct PictureWish {
  std::string prompt;
  std::vector<std::string> overrides;  ///< of the model's recipe: device, precision, adapter.quantize, memory
  fs::path adapter;                    ///< a LoRA adapter, as a run, its folder or file; empty: none
  Extent size = 0;                     ///< in pixels; 0: what the model was trained on, or 1024
  int64_t steps = 0;                   ///< 0: as the run's samples, or 20
  std::optional<double> guidance;      ///< none: as the run's samples, or 3.5
  std::optional<tasks::Solver> solver;  ///< none: what fits the model
  uint64_t seed = 0;
  int64_t count = 1;
  int threads = 0;  ///< 0: every core
};

struct GeneratedPicture {
  data::Image image;
  /// What it was made with, by name: prompt, seed, steps, guidance, size, model.
  std::vector<std::pair<std::string, std::string>> settings;
  std::string note;  ///< parts of the prompt that were cut off; empty: none
};

/// Whether a folder holds a run or a model (of diffusers) that makes pictures.
bool makes_pictures(const fs::path& model);

/// Pictures of a prompt by a run's best weights or a model's folder. The i-th depends on seed + i alone,
/// whatever else is made. UserError for what is no such model, or a class that a run does not know.
std::vector<GeneratedPicture> generate_pictures(const fs::path& model, const PictureWish& wish);

}  // namespace hearth::run
