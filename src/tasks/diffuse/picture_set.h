#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/captions/latents.h"
#include "encoders/picture_coder.h"
#include "tasks/diffuse/coded_pictures.h"
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
  /// Returns a warning about parts of the last prompts that were truncated for the text encoders; empty if
  /// none.
  virtual std::string note() const { return ""; }
  virtual data::Image picture(std::span<const float> latents, Extent size) const = 0;
};

/// Function that opens an autoencoder. Destroying the autoencoder frees its memory.
using OpenCoder = std::function<std::unique_ptr<encoders::PictureCoder>()>;

/// What people call a class; it may have several names.
struct NamedClass {
  std::string name;
  int32_t label = 0;
};
/// Labels 0, 1 and so on.
std::vector<NamedClass> numbered(std::span<const std::string> names);

struct ClassTranslatorOptions {
  std::vector<NamedClass> classes;  ///< of two of one name the last one counts
  int64_t num_classes = 0;          ///< of the model
  int64_t channels = 0;             ///< of latents
  OpenCoder open_coder;             ///< called for the first picture; none: latents are pixels
};
/// Prompts are names of classes.
std::unique_ptr<PictureTranslator> class_translator(ClassTranslatorOptions options);

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
  /// Before the first row is read: makes what has to be made of the pictures, and of the prompts that
  /// evaluations will ask for; it may take long, so that it tells people.
  virtual void prepare(std::span<const std::string> /*prompts*/, const Say&) const {}
  /// Whether nothing is left to make.
  virtual bool is_prepared(std::span<const std::string> /*prompts*/) const { return true; }
  /// What pictures are made of where a recipe does not say.
  virtual std::vector<std::string> prompts() const = 0;
  /// The share of pictures that show the label they were asked for; nothing without classes.
  virtual std::optional<double> agreement(std::span<const data::Image> /*pictures*/,
                                          std::span<const int32_t> /*labels*/) const {
    return std::nullopt;
  }
};

/// Where latents are those of an autoencoder.
struct LatentSpace {
  OpenCoder open_encoder;  ///< before a run takes its memory
  OpenCoder open_decoder;  ///< beside a run
  uint64_t hash = 0;       ///< of the autoencoder
  LatentFormat format;
  Extent pixels;   ///< what pictures are resized to; sides are multiples of factor * patch
  fs::path cache;  ///< folder of latents
};

struct LabeledPicturesOptions {
  data::DatasetOptions train, held_out;
  int64_t num_classes = 0;   ///< of the model
  int64_t val_pictures = 1;  ///< held-out pictures that are looked at, from all classes
  bool flip = false;
  std::optional<LatentSpace> space;  ///< none: latents are pixels
  uint64_t seed = 0;                 ///< and threads, of the classifier that judges
  int num_threads = 1;
};

/// Images with classes. UserError where there are more classes than the model has.
std::unique_ptr<PictureSet> labeled_pictures(const LabeledPicturesOptions& options);

/// Pictures of one size side by side in rows of `columns`, a pixel apart.
data::Image picture_grid(std::span<const data::Image> pictures, int64_t columns);

}  // namespace hearth::tasks
