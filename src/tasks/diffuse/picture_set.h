#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/latents.h"
#include "tasks/diffuse/picture_maker.h"

namespace hearth::tasks {

/// Between people and a denoiser: prompts become conditions, latents become pictures.
class PictureTranslator {
 public:
  virtual ~PictureTranslator() = default;
  /// Of each prompt, all at once, since text encoders go layer by layer. UserError for a prompt that there is
  /// no condition for.
  virtual std::vector<Condition> conditions(std::span<const std::string> prompts) const = 0;
  virtual Condition no_condition() const = 0;
  virtual data::Image picture(std::span<const float> latents, Extent size) const = 0;
};

/// Prompts are names of classes, latents are the pixels.
std::unique_ptr<PictureTranslator> class_translator(std::vector<std::string> names, int64_t num_classes,
                                                    int64_t channels);

/// What a denoiser trains on.
class PictureSet {
 public:
  virtual ~PictureSet() = default;
  virtual const data::LatentSource& train() const = 0;
  virtual const data::LatentSource& held_out() const = 0;
  /// Null where there are no encoders to ask for a picture with.
  virtual const PictureTranslator* translator() const = 0;
  /// "60000 training and 10000 validation pictures of 10 classes".
  virtual std::string describe() const = 0;
  /// What people should know of them before they believe the results; empty: nothing.
  virtual std::string warning() const { return ""; }
  using Say = std::function<void(const std::string&)>;
  /// Before the first row is read: makes what has to be made of the pictures; it may take long, so that it
  /// tells people.
  virtual void prepare(const Say&) const {}
  /// What pictures are made of where a recipe does not say.
  virtual std::vector<std::string> prompts() const = 0;
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
