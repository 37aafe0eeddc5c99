#include "tasks/job.h"

#include "base/error.h"
#include "base/gguf_cache.h"
#include "base/run_files.h"
#include "hub/denoiser_adapter.h"
#include "hub/denoiser_config.h"
#include "hub/gguf_model.h"
#include "tasks/image_teacher.h"
#include "tasks/language/text_source.h"
#include "text/kd_sidecar.h"

namespace hearth::tasks {
namespace {

void read_decoder(Job& job) {
  const fs::path file = job.recipe.model.config_file();
  job.config_json = models::read_decoder_json(file);
  job.decoder = models::parse_decoder_config(job.config_json, file.string());
  const recipe::Adapter& adapter = job.recipe.adapter;
  if (!adapter.path.empty()) job.first_adapter = hub::read_adapter_config(adapter.path);
  job.adapter = hub::builder_adapter(adapter, job.first_adapter);
}

void read_denoiser(Job& job) {
  hub::DenoiserDescription described = hub::describe_denoiser(job.recipe.model);
  job.config_json = std::move(described.json);
  job.denoiser = described.config;
  if (const fs::path folder = autoencoder_folder(job.recipe.model); !folder.empty())
    job.autoencoder = models::read_autoencoder_config(folder / kModelConfig);
  job.adapter = hub::denoiser_adapter(job.recipe.adapter);
}

/// Reads the configuration of a teacher in a folder or GGUF file. Throws a UserError if it has another
/// tokenizer than the recipe's model.
void read_teacher_model(Job& job, const fs::path& given) {
  const fs::path from = hub::unpack_gguf(given);
  job.teacher = models::read_decoder_config(from / kModelConfig);
  job.teacher_vocab_size = std::min(job.teacher->vocab_size, job.decoder->vocab_size);
  if (job.recipe.data.path.extension() == ".safetensors") return;
  const auto vocabulary = vocabulary_of(tokenizer_path(job.recipe.model));
  if (vocabulary != vocabulary_of(from)) {
    user_error(
        "distill.from={}: the teacher has another tokenizer than the student; use a teacher with the same "
        "tokenizer",
        given.string());
  }
  job.teacher_vocab_size = vocabulary.first;
}

/// Reads the configuration of a language model's teacher, or the header of its file.
void read_teacher(Job& job) {
  const std::string& from = job.recipe.distill.from;
  if (from.empty()) return;
  if (!path_exists(from)) {
    user_error(
        "there is no teacher file '{0}'; create it: hearth distill capture TEACHER --recipe RECIPE --out {0}",
        from);
  }
  if (fs::is_directory(from) || is_gguf_file(from)) return read_teacher_model(job, from);
  job.teacher_file = text::is_kd_sidecar(from) ? text::read_kd_header(from) : text::read_teacher_header(from);
  const recipe::Distill &distill = job.recipe.distill, unset;
  if (distill.top_k != unset.top_k) {
    user_error(
        "distill.top_k is for a teacher that runs during training, but {} is a file of hearth distill "
        "capture, "
        "with {} tokens per entry; remove distill.top_k",
        from, job.teacher_file->top_k);
  }
  if (distill.quantize != unset.quantize) {
    user_error(
        "distill.quantize is for a teacher that runs during training, but {} is a file of hearth distill "
        "capture; remove distill.quantize",
        from);
  }
}

}  // namespace

Job::Job(recipe::Recipe given) : recipe(std::move(given)) {
  const std::string& config = recipe.model.config;
  if (!config.empty() && !path_exists(recipe.model.config_file()))
    user_error("there is no file '{}'; set model.config to the config.json of a model", config);
  if (recipe::is_text(recipe)) {
    hub::unpack_gguf(recipe.model.path);
    read_decoder(*this);
  } else if (recipe::is_image_generation(recipe)) {
    read_denoiser(*this);
  } else if (!recipe.distill.from.empty()) {
    image_teacher = read_image_teacher(recipe);
  }
  if (recipe::is_text(recipe) && !recipe::has_pairs(recipe)) read_teacher(*this);
}

fs::path autoencoder_folder(const recipe::Model& model) {
  if (!model.autoencoder.empty()) return model.autoencoder;
  const fs::path folder = fs::path(model.path) / "vae";
  return !model.path.empty() && path_exists(folder / kModelConfig) ? folder : "";
}

}  // namespace hearth::tasks
