#pragma once

#include <memory>
#include <string>
#include <vector>

#include "data/latents.h"
#include "tasks/diffuse/picture_maker.h"

namespace hearth::tasks {

/// What a denoiser trains on and how its pictures are asked for and seen.
class PictureSet {
 public:
  virtual ~PictureSet() = default;
  virtual const data::LatentSource& train() const = 0;
  virtual const data::LatentSource& held_out() const = 0;
  /// "60000 training pictures of 10 classes".
  virtual std::string describe() const = 0;
  /// What people should know of them before they believe the results; empty: nothing.
  virtual std::string warning() const { return ""; }
  /// What pictures are made of where a recipe does not say.
  virtual std::vector<std::string> prompts() const = 0;
  /// UserError for a prompt that there is no condition for.
  virtual Condition condition(const std::string& prompt) const = 0;
  virtual Condition no_condition() const = 0;
  /// Latents as a picture for people.
  virtual data::Image picture(std::span<const float> latents, Extent size) const = 0;
  /// The share of pictures, latents each, that show the label they were asked for; nothing without classes.
  virtual std::optional<double> agreement(std::span<const std::vector<float>> /*pictures*/,
                                          std::span<const int32_t> /*labels*/) const {
    return std::nullopt;
  }
};

struct LabeledPicturesOptions {
  data::DatasetOptions train, held_out;
  int64_t num_classes = 0;  ///< of the model
  bool flip = false;
  uint64_t seed = 0;  ///< and threads, of the classifier that judges
  int num_threads = 1;
};

/// Images with classes, in pixel space. UserError where there are more classes than the model has.
std::unique_ptr<PictureSet> labeled_pictures(const LabeledPicturesOptions& options);

/// Pictures of one size side by side in rows of `columns`, a pixel apart.
data::Image picture_grid(std::span<const data::Image> pictures, int64_t columns);

}  // namespace hearth::tasks
