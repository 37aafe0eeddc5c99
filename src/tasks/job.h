#pragma once

#include <optional>
#include <string>

#include "hub/adapter.h"
#include "models/autoencoder/autoencoder.h"
#include "models/decoder/config.h"
#include "models/denoiser/denoiser.h"
#include "recipe/recipe.h"
#include "text/teacher_file.h"

namespace hearth::tasks {

/// A recipe and the configuration files of its model, read once, so that a file that changes during a run
/// cannot mix two models. Text encoders read their config.json when they are opened.
struct Job {
  /// Reads the configuration files. UserError if one of them is missing, malformed or unsupported.
  explicit Job(recipe::Recipe recipe);

  recipe::Recipe recipe;
  std::string config_json;                         ///< config.json of the model; empty: image models by name
  std::optional<models::DecoderConfig> decoder;    ///< of language models
  std::optional<models::DenoiserConfig> denoiser;  ///< of diffusion models
  std::optional<models::AutoencoderConfig> autoencoder;  ///< of diffusion models that have one
  std::optional<hub::AdapterConfig>
      first_adapter;    ///< config of adapter.path, where training of a language model starts
  nn::Adapter adapter;  ///< adapter to train; rank 0: none
  /// Configuration of the teacher, and number of tokens of the tokenizer that it shares with the recipe's
  /// model, if distill.from is the folder of a language model.
  std::optional<models::DecoderConfig> teacher;
  int64_t teacher_vocab_size = 0;
  /// Recipe of the run in distill.from, the teacher of an image task.
  std::optional<recipe::Recipe> image_teacher;
  /// Header of distill.from, if it is a teacher file.
  std::optional<text::TeacherHeader> teacher_file;
};

/// Returns the folder of the recipe's autoencoder: model.autoencoder, or vae/ in the model's folder; empty if
/// neither exists.
fs::path autoencoder_folder(const recipe::Model& model);

}  // namespace hearth::tasks
